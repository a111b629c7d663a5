"""Secrets are removed, text about secrets stays (X-4)."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.documents import DocumentInput, MessageTime, Metadata
from rag_context.ingest.redaction import Redacted, Redactor, redact
from tests.ingest.secret_cases import benign_cases, secret_cases
from tests.ingest.secret_cases import leaks as case_leaks
from tests.ingest.secret_shapes import SHAPES, leaks, named_secrets
from tests.ingest.secret_texts import innocents, secrets

LETTERS = "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
TOKEN = "ghp_" + LETTERS
PEM = "MIIEpAIBAAKCAQEA7bq0zZ3X1mVabcdefghijklmnopqrstuvwxyz0123456789AB"


@pytest.mark.parametrize(
    ("kind", "secret"),
    [
        ("aws-access-key", "AKIA" + "QWERTYUIOP123456"),
        ("aws-access-key", "ASIA" + "QWERTYUIOP123456"),
        ("github-token", "ghp_" + LETTERS),
        ("github-token", "github_pat_" + LETTERS),
        ("gitlab-token", "glpat-" + LETTERS[:20]),
        ("slack-token", "xoxb-" + "123456789012-AbCdEfGhIjKl"),
        ("anthropic-key", "sk-ant-" + "api03-" + LETTERS),
        ("openai-key", "sk-" + "proj-" + LETTERS),
        ("openai-key", "sk-" + "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGhIjKlMnOpQrStUv"),
        ("google-key", "AIza" + "SyA-1234567_890abcdefghijklmnopqrst"),
        ("google-key", "GOCSPX-" + LETTERS[:28]),
        ("stripe-key", "sk_" + "live_" + LETTERS),
        ("stripe-key", "rk_" + "test_" + LETTERS),
        ("npm-token", "npm_" + LETTERS),
        ("pypi-token", "pypi-" + "AgEIcHlwaS5vcmc" + LETTERS * 2),
        ("huggingface-token", "hf_" + LETTERS[:34]),
        ("jwt", "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9"),
        ("private-key", f"-----BEGIN RSA PRIVATE KEY-----\n{PEM}\n{PEM}\n-----END RSA PRIVATE KEY-----"),
        ("private-key", f"-----BEGIN PRIVATE KEY-----\\n{PEM}\\n-----END PRIVATE KEY-----"),
        ("private-key", f"-----BEGIN OPENSSH PRIVATE KEY-----\n{PEM}"),
        (
            "private-key",
            f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1 - x\n\n{PEM}\n-----END PGP PRIVATE KEY BLOCK-----",
        ),
    ],
)
def test_a_token_of_known_shape_goes_wherever_it_stands(kind: str, secret: str) -> None:
    for before, after in (("use ", " now"), ('{"a": "x\\n', '"}'), ("(", ")"), ("", "")):
        redacted = redact(before + secret + after)
        assert redacted.content == f"{before}[REDACTED:{kind}]{after}"
        assert redacted.found == {kind: 1}


@pytest.mark.parametrize(
    ("kind", "before", "secret", "after"),
    [
        ("url-password", "postgres://bob:", "hunter2", "@db.local:5432/x"),
        ("url-password", "mongodb+srv://root:", "p@ss:w0rd", "@[::1]/x?y=1"),
        ("url-password", "redis://:", "s3cr3t!", "@cache"),
        ("slack-webhook", "https://hooks.slack.com/", "services/T0AAAAAAA/B0BBBBBBB/abcdefghijKLMNOP12345678", ""),
        ("bearer-token", "Authorization: Bearer ", "abc123def456ghi789", ""),
        ("bearer-token", '"authorization": "Basic ', "dXNlcjpwYXNzd29yZA==", '"'),
        ("aws-secret-key", "aws_secret_access_key = ", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzzz", "\n"),
        ("aws-secret-key", '"SecretAccessKey": "', "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzzzzz", '"'),
        ("assigned-secret", 'password = "', "S3cr3t!pass", '"'),
        ("assigned-secret", "password: str = '", "hunter2hunter2", "'"),
        ("assigned-secret", '"apiKey": "', "9f8e7d6c5b4a39281706", '"'),
        ("assigned-secret", '\\"client_secret\\": \\"', "abcDEF123$", '\\"'),
        ("assigned-secret", 'os.environ["SECRET_KEY"] = "', "Qx!kLmn-zRt", '"'),
        ("assigned-secret", "export DB_PASSWORD=", "tr0ub4dor3", "\nexit"),
        ("assigned-secret", "X_API_KEY=", "0f1e2d3c4b5a69788796a5b4c3d2e1f0", ""),
        ("assigned-secret", "Server=x;Password=", "Abc!2345", ";Database=y"),
        ("assigned-secret", "password: ", "Tr0ub4dor&3", ""),
        ("assigned-secret", "token: ", "Ab3dEf6hIj9lMn2pQr5t", ", and so on"),
        ("assigned-secret", "jdbc:mysql://db/app?user=root&password=", "S3cr3tPass9", "&ssl=1"),
        ("assigned-secret", "https://a.example/v1?api_key=", "b7e1c9d3f5a2", '">here</a>'),
        ("assigned-secret", "Server=db;User Id=sa;Password=", "Yukon900x", ";Encrypt=true"),
        ("assigned-secret", "create secret generic db --from-literal=password=", "Gh7kLmN2x", ""),
        ("assigned-secret", 'curl -H "X-Api-Key: ', "7f3a9c1e5b2d4f6a8c0e", '" https://a.example'),
        ("assigned-secret", "<password>", "Gh7!kLmN2x", "</password>"),
        ("npm-token", "//npm.example.com/:_authToken=", "0f7b2a14-9c83-4b7e-8b1a-1f2e3d4c5b6a", "\n"),
        ("command-line-secret", "deploy --token ", "abDEF123456ghiJK", " now"),
        ("command-line-secret", "sshpass -p '", "Gh7!kLm", "' ssh root@host"),
        ("command-line-secret", "mysqldump -u root -p", "Gh7kLmN2x", " shop"),
    ],
)
def test_a_secret_is_removed_from_its_position_and_nothing_else_is(
    kind: str, before: str, secret: str, after: str
) -> None:
    redacted = redact(before + secret + after)
    assert redacted.content == f"{before}[REDACTED:{kind}]{after}"
    assert redacted.found == {kind: 1}


@pytest.mark.parametrize(
    "text",
    [
        "password:",
        "The password: must have eight characters, a digit2 and a symbol.",
        "Reset your password, rotate the token, keep the secret key safe.",
        'password = "changeme123!"',
        'password = "your-password-1"',
        'password = "MyPassword"',
        'password = "password123"',
        'password = "${DB_PASSWORD1}"',
        'password = "{{ vault.password1 }}"',
        'password = "<password-1>"',
        'password = "xxxxxxxx1"',
        'password = "********1a"',
        'password = "abc1-xxxx-def2"',
        'password = "short1"',
        'password = "aaaaaaa1"',
        'password = "kennwort"',
        'token = "access_token"',
        'api_key = "example-key-12345"',
        'password = os.environ["DB_PASSWORD2"]',
        "DB_PASSWORD=$DB_PASSWORD2",
        "DB_PASSWORD=%PASSWORD2%",
        "password: ${DB_PASSWORD2}",
        "password: kennwort2",
        "mysql -u root -p shop_2024",
        "mysql --port 3306 -pprompt",
        "sshpass -p $SSH_PASSWORD1 ssh host",
        "//npm.example.com/:_authToken=${NPM_TOKEN_2}",
        "https://a.example/login?token={token2}&password=password1",
        "a=1;token=nextToken2;b=2",
        "<password>${db.password1}</password>",
        "run --token-file token2.txt --password-stdin",
        '"The password: at least 8 characters"',
        "token: config/v2/prod+eu.yaml",
        "token: e83c5163316f89bfbde7d9ab23ca2e25604af290",
        "secret: 550e8400-e29b-41d4-a716-446655440000",
        "commit e83c5163316f89bfbde7d9ab23ca2e25604af290",
        "sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        'id = "550e8400-e29b-41d4-a716-446655440000"',
        'password_hash = "5f4dcc3b5aa765d61d8327deb882cf99"',
        'primary_key = "users_pkey_2024!"',
        'bypass = "Route66&more"',
        "max_tokens=12345678",
        "ghp_" + "x" * 36,
        "AKIA" + "X" * 16,
        "sk-fading-circle-container-element",
        "risk-free1234567890123456789",
        "https://user:password@example.com/a",
        "https://user:<password>@host/a",
        "https://user:${PASS}@host/a",
        "https://example.com:8080/@user",
        "Authorization: Bearer <token>",
        "Authorization: Bearer $ACCESS_TOKEN_2",
        "Authorization: Bearer authentication",
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
        "-----BEGIN CERTIFICATE-----\n" + PEM + "\n-----END CERTIFICATE-----",
        "",
    ],
)
def test_text_about_secrets_stays_unchanged(text: str) -> None:
    assert redact(text).content == text
    assert not redact(text).found


def test_all_secrets_are_counted_by_kind() -> None:
    text = f'ghp_{LETTERS} password = "S3cr3t!pass" gho_{LETTERS} PWD=hunter2hunter2'
    assert redact(text).found == {"github-token": 2, "assigned-secret": 2}


def test_a_secret_that_looks_like_another_assignment_is_masked_once() -> None:
    redacted = redact("DB_PASSWORD=x1KEY=Ab3dEf6h!")
    assert redacted == Redacted("DB_PASSWORD=[REDACTED:assigned-secret]", Counter({"assigned-secret": 1}))


def test_a_clean_text_stays_clean() -> None:
    once = redact(f'token = "ghp_{LETTERS}"\nDB_PASSWORD=tr0ub4dor3\nhttp://a:b3c@d\npassword: "Ab3$Ef6h"').content
    assert once.count("[REDACTED:") == 4
    assert redact(once).content == once
    assert not redact(once).found


def test_letters_that_grow_in_lower_case_do_not_shift_the_offsets() -> None:
    assert redact("İİİ ghp_" + LETTERS).content == "İİİ [REDACTED:github-token]"


@given(st.text())
def test_a_text_without_secrets_is_returned_as_it_is(text: str) -> None:
    redacted = redact(text)
    assert (redacted.content == text) == (not redacted.found)


@pytest.mark.parametrize(
    "unit",
    [
        "-----BEGIN PRIVATE KEY-----\n", f"-----BEGIN PRIVATE KEY-----\n{PEM}\n", "eyJ", "eyJabcdefghijk.", "ghp_",
        "sk-", "password", 'password="', "password = ", "token=a", "key=", "a://b:", "a.b@", "://", "github_pat_",
        "ya29.", "authorization: bearer ", "sig=", "?sig=%aa", "login a password ", "-u a:", "--password ", ".",
        "sk", '"auth": "', 'setpassword("', "client_secret=a", "SG.", "SG.aaaaaaaaaaaaaaaa.", "12345678:aa", "pat",
        "gl", "dp.",
        "secret_key=", "hooks.slack.com/services/T", "xoxb-", "'", "a", " ", "\n",
        "_key ", "token |", "| token | ", "ENV A_TOKEN ", "password\n value:", "key`", "%5F", "\u200b",
        "password: aaaa", "pass-pass-", '"token", "value": "', "$2b$12$",
        "private-lines: 1\n", "private-lines: 1\na\n", '"d": "', "client-key-data: a", "cookie: a=b; ", "cookie:",
        "login ", "login -p ", "redis-cli -", "echo a|", ":5432:a:", "identified by '",
        "getenv('password", "password || '", "pass:-",
        'password": {', "PASSWORD | a | ", "| pass |\n", "| pass |\n|--|\n", "pass |", "|-", "| a |\n", "$6$", "$y$",
        "-us", "azdo", "&signature=", "password is ", "/a", "a/", "a.b", "A1b",
        "mysql ", "mysql -", "sshpass -p ", "&password=a", "token>", "/:_auth=", "İ",
    ],
)  # fmt: skip
def test_hostile_repetition_is_survived(unit: str) -> None:
    """Every place is tried once per pattern, with bounded repeats: a quadratic one would not come to an end here."""
    text = unit * (100_000 // len(unit))
    assert redact(text).content


@pytest.mark.parametrize("seed", [20260301, 20260302])
def test_in_every_group_of_labelled_cases_nearly_all_secrets_go_and_nothing_else_does(seed: int) -> None:
    total, left = Counter[str](), Counter[str]()
    for case in secret_cases(seed):
        total[case.group] += 1
        left[case.group] += case_leaks(case)
    assert total.total() >= 1000
    assert left.total() <= 0.02 * total.total(), left
    assert all(left[group] <= 0.15 * total[group] for group in total), left
    assert [case.text for case in benign_cases(seed) if redact(case.text).found] == []


def test_every_row_of_a_column_of_passwords_is_masked() -> None:
    rows = [
        "| system | password | note |",
        "|---|:---:|---|",
        "| db | `x7Kq2mPw9Lzt` | old |",
        "| web | see wiki | - |",
    ]
    text = "\n".join([*rows, "| mail | Tr0ub4dor&31 | Tr0ub4dor&32 |", "", "x7Kq2mPw9Lzt"])
    masked = text.replace("`x7Kq2mPw9Lzt`", "`[REDACTED:assigned-secret]`").replace(
        "Tr0ub4dor&31", "[REDACTED:assigned-secret]"
    )
    assert redact(text).content == masked


def test_of_real_looking_secrets_nearly_all_go() -> None:
    found = [(kind, secret in redact(text).content) for kind, text, secret in secrets()]
    left = sorted({kind for kind, is_left in found if is_left})
    assert len(found) > 250
    assert sum(is_left for _, is_left in found) <= 0.05 * len(found), left


@pytest.mark.parametrize("text", list(innocents()))
def test_a_look_alike_stays_unchanged(text: str) -> None:
    assert redact(text).content == text


def test_look_alikes_stay_unchanged_in_one_long_text() -> None:
    text = "\n\n".join(innocents())
    assert redact(text).content == text


def test_secrets_go_from_among_look_alikes_and_nothing_else_does() -> None:
    around = list(innocents())
    hidden = [(text, secret) for _, text, secret in secrets(1)]
    pieces = [piece for pair in zip(around, (text for text, _ in hidden), strict=False) for piece in pair]
    redacted = redact("\n\n".join(pieces)).content
    assert sum(secret in redacted for _, secret in hidden[: len(around)]) <= 0.05 * len(hidden)
    assert all(text in redacted for text in around[: len(hidden)])


def test_in_every_shape_of_a_configuration_nearly_all_secrets_go() -> None:
    total = len(SHAPES) * len(list(named_secrets()))
    assert total == 13 * 45
    left = [(name, shape) for name, shape, _ in leaks()]
    assert len(left) <= 0.02 * total, left


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (f"-ghp_{LETTERS}", "-[REDACTED:github-token]"),
        (f"foo_ghp_{LETTERS}", "foo_[REDACTED:github-token]"),
        (f"ghp%5F{LETTERS}", "[REDACTED:github-token]"),
        (f"ghp_{LETTERS[:9]}\u200b{LETTERS[9:]}", "[REDACTED:github-token]"),
        ("Password=Tr0ub4dor&3;Encrypt=true", "Password=[REDACTED:assigned-secret];Encrypt=true"),
        ("A_PASSWORD=Tr0ub4dor3&&run", "A_PASSWORD=[REDACTED:assigned-secret]&&run"),
        ('password: "correct-horse-battery-staple"', 'password: "[REDACTED:assigned-secret]"'),
        ("api_key: 5939b5e0-cbf9-45d7-a6f3-e2ecd0c85f68", "api_key: [REDACTED:assigned-secret]"),
        ("$2b$12$" + "Ab1./" * 10 + "xyz", "[REDACTED:password-hash]"),
        ("requirepass x7Kq2mPw9Lzt", "requirepass [REDACTED:assigned-secret]"),
        ("Passwort: x7Kq2mPw9Lzt", "Passwort: [REDACTED:assigned-secret]"),
        ("secret: x7Kq2mPw9LztAbCd", "secret: [REDACTED:assigned-secret]"),
        ('IDENTIFIED BY "x7Kq2mPw9Lzt"', 'IDENTIFIED BY "[REDACTED:assigned-secret]"'),
        ("db:5433:*:app:x7Kq2mPw9Lzt", "db:5433:*:app:[REDACTED:assigned-secret]"),
        ("data:\n  password: VHIwdWI0ZG9yJjMhIQ==\n", "data:\n  password: [REDACTED:assigned-secret]\n"),
    ],
)
def test_a_secret_in_an_unusual_form_is_removed_completely(text: str, redacted: str) -> None:
    assert redact(text).content == redacted


@pytest.mark.parametrize(
    "text",
    [
        "token, value = get_domain(value[1:])",
        "| token | e83c5163316f89bfbde7d9ab23ca2e25604af290 |",
        "| password | at least eight characters |",
        "public_key: MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA7bq0zZ3X1mVabcdefg",
        'cache_key = "user:{id}:profile:v2"',
        "100%2D and a\u200bzero width space stay",
        "password: see-the-team-wiki-please (ask Ann)",
        "DB_PASSWORD=op://Private/db2/password",
        "POSTGRES_PASSWORD: /run/secrets/db_password2",
        '<div class="btn-password-toggle2 sk-circle12">',
        "| password | varchar(255) | hashed with bcrypt12 |",
        '"NextToken": "kIiwiZXhwaXJhdGlvbiI6eyJzZWNvbmRzIjox"',
        "npm login -p registry2",
    ],
)
def test_text_that_only_looks_like_a_secret_stays_unchanged(text: str) -> None:
    assert redact(text).content == text


def test_messages_keep_their_times_where_secrets_went_out_before_them() -> None:
    times = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    said = ["[Ana] Use AKIAQWERTYUIOP123456, please.\n", "[Ben] Done.\n", "[Ana] And ghp_" + LETTERS + " too.\n"]
    starts = [0, len(said[0]), len(said[0] + said[1])]
    draft = DocumentInput("".join(said), "chat", "s", "a", message_times=tuple(map(MessageTime, starts, times)))
    clean, found = Redactor().document(draft)
    assert sum(found.values()) == 2
    assert [each.at for each in clean.message_times] == times
    assert [clean.content[each.start :][:6] for each in clean.message_times] == ["[Ana] ", "[Ben] ", "[Ana] "]


@pytest.mark.parametrize(
    "document",
    [
        DocumentInput(f"The key is {TOKEN}.", "chat", "s", "a"),
        DocumentInput("Nothing.", "chat", TOKEN, "a"),
        DocumentInput("Nothing.", "chat", "s", f"a/{TOKEN}"),
        DocumentInput("Nothing.", "chat", "s", "a", metadata=Metadata(tags=(TOKEN,))),
        DocumentInput("Nothing.", "chat", "s", "a", metadata=Metadata(agent=TOKEN)),
        DocumentInput("Nothing.", "chat", "s", "a", metadata=Metadata(extra={"password": "hunter2xyz"})),
    ],
)
def test_one_pass_over_a_batch_finds_a_secret_in_any_field(document: DocumentInput) -> None:
    clean = DocumentInput("Nothing.", "chat", "s", "a")

    assert Redactor().document(document)[1]
    assert not Redactor().finds_none([clean, document])
    assert Redactor().finds_none([clean, clean])
