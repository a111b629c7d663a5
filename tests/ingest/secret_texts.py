"""Secrets that look real, and look-alikes that are none; all made on the spot, so that no scanner trips over them."""

import base64
import hashlib
import json
import string
import uuid
from collections.abc import Callable, Iterator
from random import Random

UPPER, LOWER, DIGITS = string.ascii_uppercase, string.ascii_lowercase, string.digits
LETTERS = UPPER + LOWER
MIXED = LETTERS + DIGITS
HEX = "0123456789abcdef"
URL = MIXED + "-_"
Maker = Callable[[Random], str]


def some(random: Random, alphabet: str, size: int) -> str:
    return "".join(random.choices(alphabet, k=size))


def _jwt(random: Random) -> str:
    def part(message: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(message).encode()).decode().rstrip("=")

    head, body = part({"alg": "HS256", "typ": "JWT"}), part({"sub": str(random.random()), "iat": 1})
    return f"{head}.{body}.{some(random, URL, 43)}"


def _pem(kind: str, lines: int) -> Maker:
    def made(random: Random) -> str:
        body = "\n".join(some(random, MIXED + "+/", 64) for _ in range(lines))
        return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"

    return made


def _password(random: Random) -> str:
    """As people and generators make them: letters, digits and a sign."""
    return some(random, LETTERS, 5) + some(random, DIGITS, 3) + random.choice("!$%&*#+?") + some(random, LETTERS, 4)


TOKENS: dict[str, Maker] = {
    "aws access key": lambda r: "AKIA" + some(r, UPPER + "234567", 16),
    "aws session key": lambda r: "ASIA" + some(r, UPPER + "234567", 16),
    "google api key": lambda r: "AI" + "za" + some(r, URL, 34) + "k",
    "google oauth secret": lambda r: "GOC" + "SPX-" + some(r, MIXED, 28),
    "google oauth token": lambda r: "ya29." + "a0" + some(r, URL, 120),
    "github personal": lambda r: "gh" + "p_" + some(r, MIXED, 36),
    "github server": lambda r: "gh" + "s_" + some(r, MIXED, 36),
    "github fine-grained": lambda r: "github" + "_pat_" + some(r, MIXED, 22) + "_" + some(r, MIXED, 59),
    "gitlab personal": lambda r: "gl" + "pat-" + some(r, URL, 20),
    "gitlab runner": lambda r: "gl" + "rt-" + some(r, URL, 20),
    "gitlab pipeline trigger": lambda r: "gl" + "ptt-" + some(r, HEX, 40),
    "gitlab ci job": lambda r: "gl" + "cbt-" + some(r, MIXED, 5) + "_" + some(r, URL, 20),
    "slack bot": lambda r: "xo" + "xb-" + some(r, DIGITS, 12) + "-" + some(r, DIGITS, 12) + "-" + some(r, MIXED, 24),
    "slack user": lambda r: "xo" + "xp-" + some(r, DIGITS, 12) + "-" + some(r, DIGITS, 12) + "-" + some(r, HEX, 32),
    "slack app": lambda r: (
        "xa" + "pp-1-A" + some(r, UPPER + DIGITS, 10) + "-" + some(r, DIGITS, 13) + "-" + some(r, HEX, 64)
    ),
    "stripe live": lambda r: "sk" + "_live_" + some(r, MIXED, 24),
    "stripe restricted": lambda r: "rk" + "_live_" + some(r, MIXED, 99),
    "stripe webhook": lambda r: "wh" + "sec_" + some(r, MIXED, 32),
    "openai": lambda r: "sk-" + some(r, MIXED, 20) + "T3Blb" + "kFJ" + some(r, MIXED, 20),
    "openai project": lambda r: "sk-" + "proj-" + some(r, URL, 74) + "T3Blb" + "kFJ" + some(r, URL, 73) + "A",
    "openai service": lambda r: "sk-" + "svcacct-" + some(r, URL, 74) + "T3Blb" + "kFJ" + some(r, URL, 73) + "A",
    "anthropic": lambda r: "sk-" + "ant-api03-" + some(r, URL, 93) + "AA",
    "npm": lambda r: "np" + "m_" + some(r, MIXED, 36),
    "pypi": lambda r: "pypi-" + "AgEIcHlwaS5vcmc" + some(r, URL, 120),
    "huggingface": lambda r: "h" + "f_" + some(r, LETTERS, 34),
    "sendgrid": lambda r: "S" + "G." + some(r, URL, 22) + "." + some(r, URL, 43),
    "twilio": lambda r: "S" + "K" + some(r, HEX, 32),
    "mailgun": lambda r: "key" + "-" + some(r, HEX, 32),
    "digitalocean": lambda r: "do" + "p_v1_" + some(r, HEX, 64),
    "shopify": lambda r: "shp" + "at_" + some(r, HEX, 32),
    "telegram bot": lambda r: some(r, "123456789", 10) + ":AA" + some(r, URL, 33),
    "discord bot": lambda r: "M" + some(r, MIXED, 23) + "." + "G" + some(r, MIXED, 5) + "." + some(r, URL, 38),
    "databricks": lambda r: "da" + "pi" + some(r, HEX, 32),
    "hashicorp vault": lambda r: "hv" + "s." + some(r, URL, 95),
    "terraform cloud": lambda r: some(r, MIXED, 14) + ".atlas" + "v1." + some(r, URL, 64),
    "grafana": lambda r: "gl" + "sa_" + some(r, MIXED, 32) + "_" + some(r, HEX, 8),
    "linear": lambda r: "lin" + "_api_" + some(r, MIXED, 40),
    "notion": lambda r: "nt" + "n_" + some(r, DIGITS, 11) + some(r, MIXED, 35),
    "docker hub": lambda r: "dck" + "r_pat_" + some(r, URL, 27),
    "groq": lambda r: "gs" + "k_" + some(r, MIXED, 52),
    "replicate": lambda r: "r" + "8_" + some(r, MIXED, 37),
    "xai": lambda r: "x" + "ai-" + some(r, MIXED, 80),
    "perplexity": lambda r: "pp" + "lx-" + some(r, MIXED, 48),
    "new relic": lambda r: "NR" + "AK-" + some(r, UPPER + DIGITS, 27),
    "planetscale": lambda r: "ps" + "cale_pw_" + some(r, URL, 43),
    "postman": lambda r: "PM" + "AK-" + some(r, HEX, 24) + "-" + some(r, HEX, 34),
    "sentry": lambda r: "sn" + "trys_" + some(r, MIXED, 120),
    "supabase": lambda r: "sb" + "p_" + some(r, HEX, 40),
    "age": lambda r: "AGE-" + "SECRET-KEY-1" + some(r, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58),
    "jwt": _jwt,
    "rsa key": _pem("RSA " + "PRIVATE KEY", 25),
    "ec key": _pem("EC " + "PRIVATE KEY", 3),
    "openssh key": _pem("OPENSSH " + "PRIVATE KEY", 30),
    "pkcs8 key": _pem("PRIVATE KEY", 25),
    "encrypted key": _pem("ENCRYPTED " + "PRIVATE KEY", 25),
}
"""Secrets that show by their own shape, wherever they stand."""

FRAMES = (
    "{}", "Use {} for now.", '"{}"', "token is `{}`, keep it", "curl -H 'X-Key: {}' https://a.example/v1",
    "- {}\n- other",
    '{{"value": "{}"}}', "[Ann] here it is: {}\n[Bob] thanks", "export SOMETHING={}", "<code>{}</code>",
)  # fmt: skip

PLACED: dict[str, tuple[tuple[str, ...], Maker]] = {
    "aws secret": (
        ("aws_secret_access_key = {}", '"SecretAccessKey": "{}"', "AWS_SECRET_ACCESS_KEY={}", "secret_key: '{}'"),
        lambda r: some(r, MIXED + "/+", 39) + "x",
    ),
    "azure storage": (
        ("DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=a.net", 'accountKey: "{}"'),
        lambda r: base64.b64encode(r.randbytes(64)).decode(),
    ),
    "azure client secret": (
        ('client_secret = "{}"', "AZURE_CLIENT_SECRET={}", '"clientSecret": "{}"'),
        lambda r: some(r, MIXED, 3) + "8Q~" + some(r, URL + "~.", 34),
    ),
    "azure signature": (
        ("https://a.blob.core.windows.net/c?sv=2022-11-02&sr=c&sig={}&se=2030-01-01", "SharedAccessKey={}"),
        lambda r: some(r, MIXED, 43) + "%3D",
    ),
    "password in a url": (
        ("postgres://bob:{}@db.local:5432/x", "mongodb+srv://root:{}@cluster0.mongodb.net/", "redis://:{}@cache:6379/0",
         "amqp://guest:{}@mq/", "https://ann:{}@git.example.net/r.git", "DATABASE_URL=mysql://app:{}@10.0.0.3/app"),
        lambda r: some(r, MIXED, 14),
    ),
    "password in a connection string": (
        ("Server=db;User Id=sa;Password={};Encrypt=true", "host=db user=app password={} dbname=x", "Uid=a;Pwd={};",
         "<password>{}</password>", "jdbc:mysql://db/app?user=root&password={}&ssl=1"),
        _password,
    ),
    "password in a configuration": (
        ('password = "{}"', "password: '{}'", "DB_PASSWORD={}", '"password": "{}"', "spring.datasource.password={}",
         "  password: {}", 'PASSWORD="{}"', '<add key="Password" value="{}"/>', "mysql_password => '{}'",
         'db.setPassword("{}")', "smtp_pass: \"{}\"", '--password "{}"', "[Ann] the password is: {}", "Password: {}"),
        _password,
    ),
    "generated password": (
        ('"dbPassword": "{}"', "POSTGRES_PASSWORD={}", "REDIS_PASSWORD: {}", 'passphrase = "{}"',
         "root_password = '{}'"),
        lambda r: some(r, MIXED, 24),
    ),
    "hexadecimal key": (
        ('api_key = "{}"', "API_KEY={}", '"apiKey": "{}"', 'SECRET_KEY = "{}"', "auth_token: '{}'", "X-Api-Key: {}",
         'const accessToken = "{}";', "client_secret={}", "ENCRYPTION_KEY={}", 'apikey: "{}"'),
        lambda r: some(r, HEX, 32),
    ),
    "random key": (
        ('api_key = "{}"', "MY_SERVICE_API_KEY={}", '"api-key": "{}"', 'SECRET = "{}"', "token: '{}'", "access_key={}",
         'String apiToken = "{}";', 'let secret: &str = "{}";', 'var privateKey = @"{}";', "signing_secret: {}",
         "api_key: {}", "https://a.example/v1?api_key={}", "deploy --token {} now", 'curl -H "X-Api-Key: {}" https://a.example',
         "//npm.example.com/:_authToken={}"),
        lambda r: some(r, MIXED, 40),
    ),
    "header": (
        ("Authorization: Bearer {}", '"Authorization": "Bearer {}"', "curl -H 'Authorization: token {}' https://a",
         "headers={{'Authorization': 'Bearer {}'}}", "Authorization: Basic {}"),
        lambda r: some(r, MIXED, 40),
    ),
    "slack webhook": (
        ("https://hooks.slack.com/services/{}",),
        lambda r: f"T{some(r, UPPER + DIGITS, 8)}/B{some(r, UPPER + DIGITS, 8)}/{some(r, MIXED, 24)}",
    ),
    "discord webhook": (
        ("https://discord.com/api/webhooks/{}",),
        lambda r: f"{some(r, '123456789', 18)}/{some(r, URL, 68)}",
    ),
    "basic in curl": (("curl -u admin:{} https://a.example/", 'curl --user "ann:{}" https://b.example'), _password),
    "docker auth": (
        ('{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{}"}}}}}}',),
        lambda r: base64.b64encode(b"ann:" + r.randbytes(12)).decode(),
    ),
    "netrc": (("machine api.example.net login ann password {}",), _password),
}  # fmt: skip
"""Secrets that show by their place: the frames around one, and how it is made."""


def secrets(each: int = 4) -> Iterator[tuple[str, str, str]]:
    """Kind, text and the secret in it."""
    random = Random(20260101)  # the same texts in every run
    for kind, maker in TOKENS.items():
        for number in range(each):
            secret = maker(random)
            yield kind, FRAMES[(number * 3 + len(kind)) % len(FRAMES)].format(secret), secret
    for kind, (frames, maker) in PLACED.items():
        for frame in frames:
            secret = maker(random)
            yield kind, frame.format(secret), secret


def innocents() -> Iterator[str]:
    """Texts without a secret."""
    random = Random(20260102)
    for algorithm in ("md5", "sha1", "sha256", "sha512"):
        digest = hashlib.new(algorithm, random.randbytes(8)).hexdigest()
        yield f"{digest}  dist/package-1.0.tar.gz"
        yield f"commit {digest}\nAuthor: Ann <ann@example.net>"
        yield f'"integrity": "{algorithm}-{base64.b64encode(bytes.fromhex(digest)).decode()}"'
        yield f"--hash={algorithm}:{digest} \\"
        yield f'password_hash = "{digest}"'
        yield f"etag: {digest}"
        yield f"cache_key: {digest}"
        yield f"| token | {digest} |"
    for _ in range(10):
        id_ = uuid.UUID(bytes=random.randbytes(16), version=4)
        yield f"id: {id_}"
        yield f"secret: {id_}" if random.random() < 0.5 else f'"sessionId": "{id_}"'
        yield f"https://a.example/items/{id_}?token_type=session"
        yield f"![chart](data:image/png;base64,{base64.b64encode(random.randbytes(600)).decode()})"
        yield f'src="data:font/woff2;base64,{base64.b64encode(random.randbytes(300)).decode()}"'
    yield from _PROSE.split("\n\n")
    yield from _CODE.split("\n\n")


_PROSE = """\
password: must have at least eight characters, one digit and one of !$%.

Enter your password: it is never stored in plain text.

The token expires after 3600 seconds; the refresh token after 30 days.

Secrets are read from the environment (see `API_KEY` and `DB_PASSWORD` in config.md).

[Ann] I forgot my password, can you reset it?
[Bob] Sure: use "forgot password" on the login page.

Your API key: see https://dashboard.example.com/keys/manage?tab=api2

The secret of good bread: time, water, 72%hydration and patience.

Set `password: <your-password>` and `api_key: YOUR_API_KEY_HERE` first.

Example: `AWS_SECRET_ACCESS_KEY=your-secret-access-key-goes-here1`.

Use `Authorization: Bearer <access_token>` in every request.

Authorization: Bearer YOUR_ACCESS_TOKEN

postgres://user:password@localhost:5432/db is the form of the address.

mongodb://<user>:<pass>@host1:27017,host2:27017/?replicaSet=rs0

redis://:${REDIS_PASSWORD}@cache:6379

sk-learn and sk-image are packages; sk-fading-circle is a spinner.

tokens: 128, max_tokens: 4096, tokenizer: bert-base-uncased-v2

key: value pairs, primary key: user_id_2, foreign key: orders.user_id2

The password field (type="password1") has autocomplete="new-password".

Pass: 12 of 14 tests. Fail: 2. Passed: test_parse_v2+edge

AKIAIOSFODNN7EXAMPLE is the access key of Amazon's own documentation.

wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY belongs to it.

Look at https://git.example.com/a/b/-/blob/main/src/secret_store/key2.rs#L10-L20

ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7vbqajDhA1s2J0kQmZyVwzBf0Qv1 ann@host

ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl ann@host

token=foo; password=bar; secret=baz are the classic dummies.

Passwords like hunter2 or correcthorsebatterystaple are known to all."""

_CODE = """\
password = getpass.getpass("Password for user1: ")

password = os.environ["DB_PASSWORD"]; token = request.headers["X-Auth-Token-2"]

const apiKey = process.env.API_KEY2 ?? config.get("apiKey");

secret: { type: String, required: true, minlength: 12 },

if (password !== confirmPassword1) throw new Error("password2_mismatch");

token = tokenizer.next_token(position=12, limit=MAX_TOKENS_2)

self.token: Token2 = Token2(kind=TokenKind.IDENT, value=text[1:9])

key = f"user:{user_id}:session:{session_id2}"

API_KEY=${API_KEY:?set the key first}

api_key: ${{ secrets.OPENAI_API_KEY }}

password: {{ vault_db_password_2 }}

  secretKeyRef:
    name: db-credentials-v2
    key: password-1

secretName: tls-cert-2024-wildcard

tokenUrl: https://auth.example.com/oauth2/v2.0/token

private_key_path: ~/.ssh/id_ed25519

private_key = load_pem_private_key(data, password=None)

"password": {"type": "string", "minLength": 8, "format": "password"},

passwordResetToken: uuidv4(), tokenVersion: user.tokenVersion + 1,

assert hash_password("abc") == "$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b7dWRWJTmaaJObG"

public static final String PASSWORD_KEY = "password_key_name";

<input type="password" name="password1" placeholder="Password123">

x.password_field = "new_password_2"; x.tokenKind = 'OpenBrace2';

secret_key_base: <%= ENV["SECRET_KEY_BASE"] %>

password_validators = ["MinimumLength8Validator", "NumericPassword2Validator"]

token_endpoint = "https://a.example.net/token2"; scope = "openid profile2"

aws_secret_access_key = var.aws_secret_access_key_v2

"resolved": "https://registry.npmjs.org/tokenize/-/tokenize-1.2.3.tgz",

name = "token-store"
version = "2.0.1"
checksum = "8c1a6a1e0c0f3d1b7e6c9a5b4d3e2f10a9b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4"

monkey = "capuchin-42-brown!"; turkey = "Ankara#1453x"; keyboard = "QWERTY-105x!"

Password = SecretStr | None; TOKEN_RE2 = re.compile(r"[A-Za-z0-9_]{8,}")"""
