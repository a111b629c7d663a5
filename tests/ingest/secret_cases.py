"""Labelled cases for redaction: secrets in the places where people keep them, and texts that only look like secrets.

All of it is drawn with a seed. Secrets have the forms that their issuers document, with random characters. A case is a
small file: detect-secrets reads some formats by the file's name.
"""

import base64
import json
import string
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random

from rag_context.ingest.redaction import redact
from tests.ingest.secret_texts import TOKENS

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
MIXED = UPPER + LOWER + DIGITS
URL = MIXED + "-_"
BASE64 = MIXED + "+/"
HEX = "0123456789abcdef"
Maker = Callable[[Random], str]


@dataclass(frozen=True, slots=True)
class Case:
    """A file, and the secrets in it; a benign one has none."""

    group: str
    kind: str
    file: str
    text: str
    secrets: tuple[str, ...]


def of(alphabet: str, size: int, before: str = "", after: str = "") -> Maker:
    """Makes strings of random characters between two that are always there."""
    return lambda random: before + "".join(random.choices(alphabet, k=size)) + after


def _uuid(random: Random) -> str:
    return str(uuid.UUID(bytes=random.randbytes(16), version=4))


def _typed(random: Random) -> str:
    """A password as people make them: words, digits and a sign."""
    word = random.choice(["Winter", "Summer", "Dragon", "Monkey", "Purple", "Coffee", "Thunder", "Rocket"])
    return word + str(random.randrange(1950, 2030)) + random.choice("!$%&*+?") + "".join(random.choices(LOWER, k=3))


PASSWORDS: Mapping[str, Maker] = {
    "12 letters and digits": of(MIXED, 12),
    "16 letters and digits": of(MIXED, 16),
    "16 small letters and digits": of(LOWER + DIGITS, 16),
    "24 letters and digits": of(MIXED, 24),
    "32 hexadecimal digits": of(HEX, 32),
    "typed": _typed,
}
KEYS: Mapping[str, Maker] = {
    "32 hexadecimal digits": of(HEX, 32),
    "40 letters and digits": of(MIXED, 40),
    "UUID": _uuid,
    "44 Base64": of(BASE64, 43, after="="),
}

MORE_TOKENS: Mapping[str, Maker] = {
    "stripe organization": of(MIXED, 32, "sk_" + "org_live_"),
    "slack client": lambda r: "xo" + f"xc-{of(DIGITS, 12)(r)}-{of(DIGITS, 12)(r)}-{of(DIGITS, 13)(r)}-{of(HEX, 64)(r)}",
    "slack cookie": of(MIXED + "%", 100, "xo" + "xd-"),
    "pinecone": lambda r: "pc" + f"sk_{of(MIXED, 6)(r)}_{of(MIXED, 63)(r)}",
    "tailscale": lambda r: "ts" + f"key-auth-k{of(MIXED, 10)(r)}CNTRL-{of(MIXED, 32)(r)}",
    "tailscale api": lambda r: "ts" + f"key-api-k{of(MIXED, 10)(r)}CNTRL-{of(MIXED, 32)(r)}",
    "bedrock": of(BASE64, 128, "AB" + "SK"),
    "azure devops": lambda r: of(MIXED, 76)(r) + "AZ" + "DO" + of(MIXED, 4)(r),
    "artifactory": of(MIXED, 69, "AK" + "Cp8"),
    "artifactory identity": of(MIXED, 56, "cmVmd" + "GtuOjAx"),
    "hubspot": lambda r: "pat-" + f"{r.choice(['na1', 'eu1'])}-{_uuid(r)}",
    "mapbox": lambda r: "sk." + f"eyJ{of(MIXED, 80)(r)}.{of(MIXED + '-_', 22)(r)}",
    "mailchimp": lambda r: of(HEX, 32)(r) + f"-us{r.randrange(1, 21)}",
    "square": of(URL, 43, "sq0" + "csp-"),
    "cloudflare origin": of(HEX, 146, "v1.0-"),
    "contentful": of(URL, 43, "CF" + "PAT-"),
    "typeform": of(URL, 59, "tf" + "p_"),
    "okta": of(URL, 40, "SSWS 00"),
    "sonar": of(HEX, 40, "sq" + "p_"),
    "vercel blob": of(MIXED, 30, "vercel" + "_blob_rw_"),
    "firecrawl": of(HEX, 32, "f" + "c-"),
    "gitlab feed": of(URL, 20, "gl" + "ft-"),
    "sentry user": of(HEX, 64, "sn" + "tryu_"),
    "easypost": of(MIXED, 54, "EZ" + "AK"),
    "prefect": of(LOWER + DIGITS, 36, "pn" + "u_"),
    "readme": of(LOWER + DIGITS, 70, "rd" + "me_"),
    "shippo": of(HEX, 40, "shippo" + "_live_"),
    "flutterwave": of(HEX, 32, "FLWSECK-", "-X"),
    "alibaba": of(MIXED, 20, "LT" + "AI"),
    "facebook": of(MIXED, 100, "EAA" + "CEdEose0cBA"),
    "lob": of(HEX, 35, "live_"),
}
_AFTER_ID = {"telegram bot": ":", "discord bot": ".", "terraform cloud": ".atlasv1."}
"""What separates the secret of a token from the public id of the bot, or of the token, before it."""

_TOKEN_FRAMES = (
    ("notes.md", "Use {} for now."),
    ("settings.py", 'client = Client("{}")'),
    ("chat.txt", "[Ann] here it is: {}\n"),
    ("config.yaml", "service:\n  value: {}\n"),
    ("a.json", '{{"value": "{}"}}'),
    ("run.sh", "curl -H 'X-Key: {}' $HOST"),
)

_NAMES = ("password", "db_password", "DB_PASSWORD", "POSTGRES_PASSWORD", "spring.datasource.password", "smtpPassword")
_KEY_NAMES = ("api_key", "API_KEY", "client_secret", "CLIENT_SECRET", "auth_token", "SECRET_KEY", "apiKey")

PASSWORD_SHAPES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "YAML": (
        ("config.yml", "database:\n  host: db\n  {name}: {value}\n  port: 5432\n"),
        ("compose.yaml", "services:\n  db:\n    environment:\n      {name}: {value}\n"),
        ("values.yaml", "auth:\n  username: app\n  {name}: {value}  # rotate\n"),
        ("config.yml", "database:\n  {name}: '{value}'\n"),
    ),
    "properties": (
        ("application.properties", "server.port=8080\n{name}={value}\n"),
        ("application.properties", "{name} = {value}\nx=1\n"),
    ),
    "ini": (
        ("my.cnf", "[client]\nuser=root\n{name}={value}\n"),
        ("my.cnf", "[client]\n{name} = {value}\nhost = db\n"),
        ("odbc.ini", "[dsn]\n{name}: {value}\n"),
    ),
    "environment file": ((".env", "PORT=1\n{upper}={value}\n"), (".env", '{upper}="{value}"\n')),
    "shell": (
        ("run.sh", "export {upper}={value}\n./run\n"),
        ("run.sh", "{upper}='{value}' ./run\n"),
        ("run.sh", "docker run -e {upper}={value} image\n"),
    ),
    "Dockerfile and Compose": (
        ("Dockerfile", "FROM a\nENV {upper} {value}\n"),
        ("Dockerfile", "FROM a\nENV {upper}={value}\n"),
        ("compose.yaml", "environment:\n  - {upper}={value}\n"),
        ("deployment.yaml", 'env:\n  - name: {upper}\n    value: "{value}"\n'),
        ("secret.yaml", "kind: Secret\nstringData:\n  {name}: {value}\n"),
    ),
    "JSON": (
        ("a.json", '{{"{name}": "{value}", "port": 1}}'),
        ("a.json", '{{\n  "host": "db",\n  "{name}": "{value}"\n}}\n'),
        ("vars.json", '[{{"key": "{upper}", "value": "{value}"}}]'),
    ),
    "TOML": (("a.toml", "[db]\n{lower} = '{value}'\n"), ("a.toml", '[db]\n{lower} = "{value}"\n')),
    "XML": (
        ("web.xml", "<db><password>{value}</password></db>"),
        ("web.config", '<add key="{name}" value="{value}"/>'),
        ("context.xml", '<Resource username="a" password="{value}" url="jdbc:a"/>'),
    ),
    "program": (
        ("a.py", '{lower} = "{value}"\n'),
        ("a.js", "const config = {{ {camel}: '{value}' }};\n"),
        ("A.java", 'private static final String {upper} = "{value}";\n'),
        ("a.go", '{camel} := "{value}"\n'),
        ("a.rb", "config.{lower} = '{value}'\n"),
        ("a.php", "define('{upper}', '{value}');\n"),
        ("a.cs", 'var {camel} = @"{value}";\n'),
        ("a.tf", '  {lower} = "{value}"\n'),
    ),
    "default of a variable": (
        ("a.py", 'os.getenv("{upper}", "{value}")\n'),
        ("a.py", 'os.environ.get("{upper}", "{value}")\n'),
        ("a.js", "const p = process.env.{upper} || '{value}';\n"),
        ("run.sh", ': "${{{upper}:-{value}}}"\n'),
        ("a.rb", 'ENV.fetch("{upper}", "{value}")\n'),
        ("compose.yaml", "    {upper}: ${{{upper}:-{value}}}\n"),
    ),
    "SQL": (
        ("a.sql", "CREATE USER 'app'@'%' IDENTIFIED BY '{value}';\n"),
        ("a.sql", "CREATE ROLE app WITH LOGIN PASSWORD '{value}';\n"),
        ("a.sql", "ALTER USER app IDENTIFIED WITH mysql_native_password BY '{value}';\n"),
    ),
    "Markdown": (
        ("a.md", "- {name}: {value}\n- port: 5432\n"),
        ("a.md", "* **Password:** {value}\n"),
        ("a.md", "- Password: `{value}`\n"),
        ("a.md", "| name | value | note |\n|---|---|---|\n| {upper} | {value} | db |\n"),
        ("a.md", "| system | user | password |\n|---|---|---|\n| db | admin | {value} |\n"),
        ("a.md", "| {upper} | the database | {value} |\n"),
        ("a.md", "The password is `{value}`.\n"),
    ),
    "command line": (
        ("run.sh", "docker login -u ann -p {value} registry.example.net\n"),
        ("run.sh", "mysql -h db -u root -p{value} shop\n"),
        ("run.sh", "sshpass -p {value} ssh root@host\n"),
        ("run.sh", "curl -u ann:{value} https://a.example.net\n"),
        ("run.sh", "deploy --password {value} now\n"),
        ("run.sh", "PGPASSWORD={value} psql -h db\n"),
        ("run.sh", "redis-cli -h cache -a {value} ping\n"),
        ("run.sh", "echo '{value}' | docker login --password-stdin -u ann\n"),
        ("run.sh", "deploy --password={value} --now\n"),
    ),
    "password file": (
        (".pgpass", "db.example.net:5432:shop:app:{value}\n"),
        (".netrc", "machine a.example login ann password {value}\n"),
        (".netrc", "machine a.example\n  login ann\n  password {value}\n"),
        (".my.cnf", "[mysql]\npassword={value}\n"),
    ),
    "connection string": (
        ("a.config", "Server=db;User Id=sa;Password={value};Encrypt=true"),
        ("a.txt", "postgres://app:{value}@db:5432/x\n"),
        ("a.txt", "jdbc:mysql://db/x?user=root&password={value}&ssl=1\n"),
        ("a.txt", "host=db user=app password={value} dbname=x\n"),
        ("a.yaml", "url: redis://:{value}@cache:6379/0\n"),
        ("a.py", 'engine("mysql://root:{value}@10.0.0.3/app")\n'),
        ("a.txt", "git clone https://ann:{value}@git.example.net/r.git\n"),
    ),
    "message": (
        ("a.txt", "[Ann] the password is: {value}\n"),
        ("a.txt", "[Ann] Password: {value}\n[Bob] thanks\n"),
        ("a.txt", "login: ann\npass: {value}\n"),
        ("a.txt", "user ann / password {value}\n"),
    ),
}

_OF_KEYS = [
    "YAML",
    "properties",
    "ini",
    "JSON",
    "TOML",
    "program",
    "environment file",
    "shell",
    "default of a variable",
]
KEY_SHAPES: Mapping[str, tuple[tuple[str, str], ...]] = {
    **{group: PASSWORD_SHAPES[group] for group in _OF_KEYS},
    "Markdown": PASSWORD_SHAPES["Markdown"][:1] + PASSWORD_SHAPES["Markdown"][3:4] + PASSWORD_SHAPES["Markdown"][5:6],
    "command line": (("run.sh", "deploy --token {value} now\n"), ("run.sh", "curl -H 'X-Api-Key: {value}' $HOST\n")),
    "address": (
        ("a.txt", "https://a.example/v1?api_key={value}\n"),
        ("a.txt", "GET /v1/items?access_token={value}&page=2\n"),
        ("a.txt", "https://a.example/cb#access_token={value}&state=1\n"),
    ),
    "HTTP header": (
        ("a.http", "Authorization: Bearer {value}\n"),
        ("a.http", "Authorization: Token {value}\n"),
        ("a.http", "X-Api-Key: {value}\n"),
        ("a.http", "X-Auth-Token: {value}\n"),
        ("a.http", "Set-Cookie: session={value}; HttpOnly; Path=/\n"),
        ("a.http", "Cookie: sessionid={value}; theme=dark\n"),
        ("a.http", "Proxy-Authorization: Basic {value}\n"),
        ("a.http", "PRIVATE-TOKEN: {value}\n"),
    ),
}


def _jwk(random: Random) -> tuple[str, str, tuple[str, ...]]:
    d = of(URL, 43)(random)
    text = json.dumps({"kty": "EC", "crv": "P-256", "x": of(URL, 43)(random), "y": of(URL, 43)(random), "d": d})
    return "key.jwk", text, (d,)


def _oct(random: Random) -> tuple[str, str, tuple[str, ...]]:
    k = of(URL, 43)(random)
    return "key.jwk", json.dumps({"kty": "oct", "k": k, "alg": "HS256"}, indent=2), (k,)


def _putty(random: Random) -> tuple[str, str, tuple[str, ...]]:
    lines = [of(BASE64, 64)(random) for _ in range(4)]
    head = "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: ann\nPublic-Lines: 1\n"
    public = "AAAAC3NzaC1lZDI1NTE5AAAA" + of(BASE64, 40)(random) + "\n"
    mac = of(HEX, 64)(random)
    return "id.ppk", f"{head}{public}Private-Lines: 4\n" + "\n".join(lines) + f"\nPrivate-MAC: {mac}\n", tuple(lines)


def _kubeconfig(random: Random) -> tuple[str, str, tuple[str, ...]]:
    key = base64.b64encode(b"-----BEGIN RSA PRIVATE " + b"KEY-----\n" + random.randbytes(300)).decode()
    certificate = base64.b64encode(b"-----BEGIN CERTIFICATE-----\n" + random.randbytes(90)).decode()
    text = f"users:\n- name: ann\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}\n"
    return "config", text, (key[40:],)  # what precedes it is the encoded head, which certificates have too


def _docker(random: Random) -> tuple[str, str, tuple[str, ...]]:
    auth = base64.b64encode(b"ann:" + of(MIXED, 16)(random).encode()).decode()
    return "config.json", json.dumps({"auths": {"registry.example.net": {"auth": auth}}}), (auth,)


def _docker_secret(random: Random) -> tuple[str, str, tuple[str, ...]]:
    secret = base64.b64encode(_docker(random)[1].encode()).decode()
    return "s.yaml", f"type: kubernetes.io/dockerconfigjson\ndata:\n  .dockerconfigjson: {secret}\n", (secret,)


def _tfstate(random: Random) -> tuple[str, str, tuple[str, ...]]:
    value = of(MIXED, 20)(random)
    text = {"outputs": {"db_password": {"value": value, "type": "string", "sensitive": True}}}
    return "terraform.tfstate", json.dumps(text, indent=2), (value,)


def _shadow(random: Random) -> tuple[str, str, tuple[str, ...]]:
    kind, size = random.choice([("$6$", 86), ("$5$", 43), ("$1$", 22), ("$y$j9T$", 43)])
    hashed = f"{kind}{of(MIXED + './', 8 if kind == '$1$' else 16)(random)}${of(MIXED + './', size)(random)}"
    return "shadow", f"root:{hashed}:19700:0:99999:7:::\n", (hashed,)


def _htpasswd(random: Random) -> tuple[str, str, tuple[str, ...]]:
    hashed = f"$apr1${of(MIXED, 8)(random)}${of(MIXED + './', 22)(random)}"
    return ".htpasswd", f"ann:{hashed}\n", (hashed,)


def _presigned(random: Random) -> tuple[str, str, tuple[str, ...]]:
    signature = of(HEX, 64)(random)
    query = f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Date=20260101T000000Z&X-Amz-Signature={signature}"
    return "a.txt", f"https://b.s3.amazonaws.com/report.pdf?{query}\n", (signature,)


def _presigned_google(random: Random) -> tuple[str, str, tuple[str, ...]]:
    signature = of(HEX, 256)(random)
    return (
        "a.txt",
        f"https://storage.googleapis.com/b/o?X-Goog-Expires=900&X-Goog-Signature={signature}\n",
        (signature,),
    )


def _gcp(random: Random) -> tuple[str, str, tuple[str, ...]]:
    body = [of(BASE64, 64)(random) for _ in range(6)]
    key = "-----BEGIN PRIVATE " + "KEY-----\n" + "\n".join(body) + "\n-----END PRIVATE " + "KEY-----\n"
    return "sa.json", json.dumps({"type": "service_account", "private_key": key}, indent=2), tuple(body)


def _npmrc(random: Random) -> tuple[str, str, tuple[str, ...]]:
    token = _uuid(random)
    return ".npmrc", f"//registry.example.net/:_authToken={token}\n", (token,)


def _pypirc(random: Random) -> tuple[str, str, tuple[str, ...]]:
    value = of(MIXED, 16)(random)
    return ".pypirc", f"[example]\nrepository = https://a.example\nusername = ann\npassword = {value}\n", (value,)


def _aws(random: Random) -> tuple[str, str, tuple[str, ...]]:
    key, secret = of(UPPER + "234567", 16, "AK" + "IA")(random), of(BASE64, 40)(random)
    return "credentials", f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n", (key, secret)


def _azure(random: Random) -> tuple[str, str, tuple[str, ...]]:
    key = base64.b64encode(random.randbytes(64)).decode()
    return "a.config", f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={key};EndpointSuffix=b.net\n", (key,)


def _gpg(random: Random) -> tuple[str, str, tuple[str, ...]]:
    body = [of(BASE64, 64)(random) for _ in range(5)]
    block = "\n".join(body)
    text = "-----BEGIN PGP PRIVATE KEY " + f"BLOCK-----\n\n{block}\n=aBcD\n-----END PGP PRIVATE KEY " + "BLOCK-----\n"
    return "key.asc", text, tuple(body)


KEY_FILES: Mapping[str, tuple[str, Callable[[Random], tuple[str, str, tuple[str, ...]]]]] = {
    "JWK": ("private keys", _jwk),
    "JWK, symmetric": ("private keys", _oct),
    "PuTTY": ("private keys", _putty),
    "service account": ("private keys", _gcp),
    "OpenPGP": ("private keys", _gpg),
    "kubeconfig": ("credentials of programs", _kubeconfig),
    "docker": ("credentials of programs", _docker),
    "docker in Kubernetes": ("credentials of programs", _docker_secret),
    "tfstate": ("credentials of programs", _tfstate),
    "npmrc": ("credentials of programs", _npmrc),
    "pypirc": ("credentials of programs", _pypirc),
    "aws credentials": ("credentials of programs", _aws),
    "azure storage": ("credentials of programs", _azure),
    "shadow": ("password hashes", _shadow),
    "htpasswd": ("password hashes", _htpasswd),
    "presigned S3": ("address", _presigned),
    "presigned Google": ("address", _presigned_google),
}


def _camel(name: str) -> str:
    first, *others = name.lower().replace(".", "_").split("_")
    return first + "".join(map(str.capitalize, others))


def _shaped(group: str, shape: tuple[str, str], kind: str, name: str, value: str) -> Case:
    flat = name.replace(".", "_")
    upper = name if name.isupper() else "".join("_" * c.isupper() + c for c in flat).strip("_").upper()
    text = shape[1].format(name=name, upper=upper, lower=upper.lower(), camel=_camel(upper), value=value)
    return Case(group, kind, shape[0], text, (value,))


def secret_cases(seed: int) -> Iterator[Case]:
    """Cases with secrets, in groups of shapes."""
    random = Random(seed)
    for kind, maker in {**TOKENS, **MORE_TOKENS}.items():
        group = "private keys" if kind.endswith(" key") and "PRIVATE" in maker(random) else "tokens by their form"
        for file, frame in random.sample(_TOKEN_FRAMES, 4):
            token = maker(random)
            yield Case(
                group,
                kind,
                file,
                frame.format(token),
                (token.partition(_AFTER_ID[kind])[2] if kind in _AFTER_ID else token,),
            )
    for shapes, makers, names in ((PASSWORD_SHAPES, PASSWORDS, _NAMES), (KEY_SHAPES, KEYS, _KEY_NAMES)):
        for group, members in shapes.items():
            for shape in members:
                for kind, maker in makers.items():
                    yield _shaped(group, shape, kind, random.choice(names), maker(random))
    for kind, (group, make) in KEY_FILES.items():
        for _ in range(5):
            file, text, secrets = make(random)
            yield Case(group, kind, file, text, secrets)


def leaks(case: Case) -> bool:
    """Whether eight characters in a row of a case's secrets are left."""
    text = redact(case.text).content
    return any(part in text for secret in case.secrets for part in _parts(secret))


def _parts(secret: str) -> Iterator[str]:
    size = min(8, len(secret))
    return (secret[start : start + size] for start in range(len(secret) - size + 1))


def benign_cases(seed: int) -> Iterator[Case]:
    """Texts without a secret that look as if there were one."""
    random = Random(seed + 1)
    for kind, shapes in _BENIGN.items():
        for file, shape in shapes:
            for _ in range(3):
                values = {
                    "hex32": of(HEX, 32)(random),
                    "hex40": of(HEX, 40)(random),
                    "hex64": of(HEX, 64)(random),
                    "uuid": _uuid(random),
                    "b64": of(BASE64, 64)(random),
                    "word": random.choice(["db", "api", "web2"]),
                    "number": str(random.randrange(10, 10**6)),
                    "letters": of(LOWER, 10)(random),
                }
                text = shape
                for name, value in values.items():
                    text = text.replace(f"<{name}>", value)
                yield Case("benign", kind, file, text, ())


_BENIGN: Mapping[str, tuple[tuple[str, str], ...]] = {
    "reference": (
        (".env", "DB_PASSWORD=op://vault-<number>/<word>/password\n"),
        ("a.yaml", "password: op://Prod2/db-<number>/password\n"),
        ("a.yaml", "secret: arn:aws:secretsmanager:eu-west-1:<number>1234:secret:<word>-Ab12Cd\n"),
        (".env", "API_SECRET=arn:aws:ssm:us-east-1:<number>:parameter/prod2/key\n"),
        ("compose.yaml", "POSTGRES_PASSWORD_FILE: /run/secrets/<word>_password2\n"),
        (".env", "DB_PASSWORD=/run/secrets/db_password_<number>\n"),
        ("a.yaml", "password: vault:secret/data/<word>2#password\n"),
        (".env", "DB_PASSWORD=${DB_PASSWORD_<number>}\n"),
        ("a.yaml", "password: ${{ secrets.DB_PASSWORD_2 }}\n"),
        ("a.yaml", "password: {{ .Values.auth.password2 }}\n"),
        ("a.yaml", "password: !vault_<word>2\n"),
        ("a.py", 'password = os.environ["DB_PASSWORD_<number>"]\n'),
        ("a.py", "api_key = config.get('api_key_2', None)\n"),
        ("a.tf", "password = var.db_password_<number>\n"),
        ("a.tf", "password = random_password.db2.result\n"),
        ("a.tf", "secret = data.aws_secretsmanager_secret_version.db2.secret_string\n"),
        ("a.yaml", "password: ENC[AES256_GCM,data:<b64>,iv:abc=,tag:def=,type:str]\n"),
        ("a.yaml", "secretKeyRef:\n  name: <word>-credentials-v2\n  key: password-1\n"),
        ("a.yaml", "password: file:///etc/app2/db-password\n"),
        ("a.yaml", "token: ssm:/prod2/<word>/token-<number>\n"),
        ("a.properties", "db.password=@db.password2@\n"),
        ("a.yaml", "password: projects/p1/secrets/db-<number>/versions/2\n"),
        ("a.yaml", "keyVaultSecret: https://kv2.vault.azure.net/secrets/db/<hex32>\n"),
        ("a.yaml", "password: lookup('env', 'DB_PASSWORD2')\n"),
        ("a.yaml", "imagePullSecrets:\n  - name: registry-<number>\n"),
    ),
    "placeholder": (
        ("a.yaml", "password: <your-password-1>\n"),
        (".env", "DB_PASSWORD=changeme123\n"),
        (".env", "API_KEY=your-api-key-here1\n"),
        ("a.yaml", "password: change-me-please-1\n"),
        ("a.md", "Set `password: <PASSWORD>` first.\n"),
        ("a.md", "`export TOKEN=YOUR_TOKEN_1`\n"),
        ("a.yaml", "api_key: xxxxxxxxxxxxxxxx1234\n"),
        ("a.py", 'password = "password123"\n'),
        ("a.md", "postgres://user:password@localhost:5432/db\n"),
        (".env", "SECRET_KEY=replace-this-with-a-long-string-1\n"),
        ("a.yaml", "token: ********1234\n"),
        ("a.md", "Authorization: Bearer <access_token>\n"),
        ("a.md", "| DB_PASSWORD | your-password-1 | the database |\n"),
        ("a.md", "docker login -u USER -p PASSWORD1 registry\n"),
        ("a.sql", "CREATE USER app IDENTIFIED BY '<password-1>';\n"),
        (".env", "API_TOKEN=insert_token_here_2\n"),
        ("a.md", "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n"),
        ("a.py", 'api_key = "example-api-key-12345"\n'),
        ("a.py", 'os.getenv("DB_PASSWORD", "changeme1")\n'),
        (".pgpass", "hostname:5432:database:username:password1\n"),
    ),
    "prose": (
        ("a.md", "password: must have at least 12 characters, one digit and one sign\n"),
        ("a.md", "Enter your password:\n"),
        ("a.md", "The token expires after <number> seconds.\n"),
        ("a.md", "- Password: see the team's page2 in the wiki\n"),
        ("a.md", "* **Token:** issued by auth2 service\n"),
        ("a.md", "| password | string | at least 8 characters, 1 digit |\n"),
        ("a.md", "| token | string | the OAuth2 access token |\n"),
        ("a.md", "Your password is stored as SHA256 hash.\n"),
        ("a.txt", "[Ann] I forgot my password, can you reset it by 10am?\n"),
        ("a.md", "The secret is 42kilometres of practice.\n"),
        ("a.md", "The password is case-sensitive and has 12 characters.\n"),
        ("a.md", "Pass: 12 of 14 tests, key: value2\n"),
        ("a.md", "| `API_KEY` | no | key of the server, since v2.1.0 |\n"),
        ("a.md", "password: kennwort2\n"),
    ),
    "hash and id": (
        ("a.txt", "commit <hex40>\n"),
        ("a.txt", "sha256:<hex64>  a.tar.gz\n"),
        ("a.lock", 'checksum = "<hex64>"\n'),
        ("a.json", '{"integrity": "sha512-<b64><b64>"}\n'),
        ("a.py", 'password_hash = "<hex32>"\n'),
        ("a.json", '{"id": "<uuid>"}\n'),
        ("a.yaml", "sessionId: <uuid>\n"),
        ("a.yaml", "image: a@sha256:<hex64>\n"),
        ("a.txt", "etag: <hex32>\n"),
        ("a.json", '{"traceId": "<hex32>", "spanId": "<hex40>"}\n'),
        ("a.yaml", "cache_key: <hex40>\n"),
        ("a.yaml", "token: <hex40>\n"),
        ("a.json", '{"public_key": "<b64>"}\n'),
        ("a.pub", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA<b64> ann@host\n"),
        ("a.txt", "-----BEGIN CERTIFICATE-----\n<b64>\n<b64>\n-----END CERTIFICATE-----\n"),
        ("a.json", '{"kty": "RSA", "n": "<b64>", "e": "AQAB"}\n'),
        ("a.yaml", "client-certificate-data: <b64>\n"),
        ("a.html", '<img src="data:image/png;base64,<b64><b64>">\n'),
        ("a.txt", "Set-Cookie: theme=dark; Path=/\n"),
        ("go.sum", "example.net/a v1.2.3 h1:<b64>=\n"),
        ("a.txt", 'ETag: W/"<hex32>"\n'),
        ("a.json", '{"revision": "<hex40>"}\n'),
    ),
    "program": (
        ("a.css", ".password-input-2x, .token-badge-v2 { color: #ff00aa }\n"),
        ("a.html", '<input class="password-field-2 w-100">\n'),
        ("a.html", '<div class="sk-fading-circle12 token-list-item-2"></div>\n'),
        ("a.py", "def login(password: str, token2: Token2):\n"),
        ("a.py", "password = getpass.getpass(prompt=f'{user1}: ')\n"),
        ("a.js", "const token = tokens2[index1];\n"),
        ("a.ts", "password: z.string().min(12).max(128),\n"),
        ("a.ts", "  token: AccessTokenResponse2\n"),
        ("a.java", "private String passwordResetTokenV2;\n"),
        ("a.go", "token, err := jwt2.Parse(raw, keyFunc)\n"),
        ("a.sql", "ALTER TABLE users ADD COLUMN password2 varchar(60);\n"),
        ("a.py", 'PASSWORD_FIELD = "new_password_2"\n'),
        ("a.py", "token = self.tokens[position12]\n"),
        ("a.yaml", "password: string\n"),
        ("a.yaml", "secretName: tls-2024-wildcard\n"),
        ("a.yaml", "tokenUrl: https://a.example/oauth2/v2.0/token\n"),
        ("a.ini", "private_key_path = ~/.ssh/id_ed25519\n"),
        ("a.py", 'help="password: 12 to 64 characters")\n'),
        ("a.tf", 'resource "random_password" "db2" { length = 32 }\n'),
        ("a.js", "passwordInput1.addEventListener('keyup2', check)\n"),
        ("a.py", "max_tokens=4096, tokenizer='cl100k_base'\n"),
        ("a.yml", "key: ${{ runner.os }}-pip-${{ hashFiles('a2.txt') }}\n"),
        ("a.py", "assert token == 'Bearer2Scheme'\n"),
    ),
}
