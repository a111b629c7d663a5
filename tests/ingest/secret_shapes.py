"""Forty-five named secrets in the thirteen shapes in which configurations and notes write them."""

import base64
import uuid
from collections.abc import Iterator, Mapping
from random import Random

from rag_context.ingest.redaction import redact
from tests.ingest.secret_texts import DIGITS, HEX, LETTERS, MIXED, TOKENS, UPPER, some


def named_secrets() -> Iterator[tuple[str, str]]:
    """Names of variables and their values; the same in every run."""
    random = Random(20260103)

    def strong() -> str:
        return some(random, LETTERS, 5) + some(random, DIGITS, 3) + random.choice("!$%&*#+?") + some(random, LETTERS, 4)

    passwords = (
        "DB_PASSWORD POSTGRES_PASSWORD MYSQL_ROOT_PASSWORD SMTP_PASS REDIS_PASSWORD ADMIN_PASSWORD LDAP_BIND_PASSWORD"
    )
    for name in passwords.split():
        yield name, strong()
    for name in ["BACKUP_PASSPHRASE", "KEYSTORE_PASSWORD", "WIFI_PASSWORD"]:
        yield (
            name,
            "-".join(
                random.sample(["correct", "horse", "battery", "staple", "orange", "window", "candle", "river"], 4)
            ),
        )
    for name in [
        "APP_SECRET",
        "JWT_SECRET",
        "SESSION_SECRET",
        "COOKIE_SECRET",
        "WEBHOOK_SECRET",
        "CLIENT_SECRET",
        "OAUTH_CLIENT_SECRET",
    ]:
        yield name, some(random, MIXED, 40)
    for name in [
        "API_KEY",
        "SERVICE_API_KEY",
        "MAPS_API_KEY",
        "WEATHER_API_KEY",
        "ENCRYPTION_KEY",
        "SIGNING_KEY",
        "SECRET_KEY",
    ]:
        yield name, some(random, HEX, 32)
    for name in ["PARTNER_API_KEY", "TENANT_ACCESS_KEY", "BILLING_API_KEY"]:
        yield name, str(uuid.UUID(bytes=random.randbytes(16), version=4))
    for name in ["AZURE_STORAGE_KEY", "COSMOS_DB_KEY", "SERVICE_BUS_KEY"]:
        yield name, base64.b64encode(random.randbytes(64)).decode()
    for name in ["ACCESS_TOKEN", "REFRESH_TOKEN", "DEPLOY_TOKEN", "BOT_TOKEN"]:
        yield name, some(random, MIXED, 32)
    for name in ["ADMIN_PASSWORD_HASH", "ROOT_PASSWORD_HASH"]:
        yield name, f"$2b$12${some(random, MIXED, 53)}"
    yield "AWS_SECRET_ACCESS_KEY", some(random, MIXED + "/", 40)
    yield "AWS_ACCESS_KEY_ID", "AKIA" + some(random, UPPER, 16)
    for kind in (
        "github personal",
        "gitlab personal",
        "slack bot",
        "stripe live",
        "npm",
        "anthropic",
        "google api key",
    ):
        yield f"{kind.split()[0].upper()}_TOKEN", TOKENS[kind](random)


def _camel(name: str) -> str:
    first, *others = name.lower().split("_")
    return first + "".join(map(str.capitalize, others))


SHAPES: Mapping[str, str] = {
    "environment file": "{name}={value}\nPORT=3000\n",
    "shell export": 'export {name}="{value}"\nexec server\n',
    "program": '{name} = "{value}"\n',
    "YAML": "app:\n  {lower}: {value}\n  port: 3000\n",
    "quoted YAML": 'app:\n  {lower}: "{value}"\n',
    "JSON": '{{"{camel}": "{value}", "port": 3000}}',
    "TOML": "[app]\n{lower} = '{value}'\n",
    "Compose list": "environment:\n  - {name}={value}\n  - PORT=3000\n",
    "Kubernetes pair": 'env:\n  - name: {name}\n    value: "{value}"\n  - name: PORT\n    value: "3000"\n',
    "Kubernetes secret": "kind: Secret\ndata:\n  {name}: {encoded}\n",
    "Dockerfile": "FROM alpine\nENV {name} {value}\nRUN true\n",
    "Markdown table": "| variable | value |\n|---|---|\n| {name} | {value} |\n| `PORT` | 3000 |\n",
    "Markdown note": "Set `{name}` to the value below.\n\n`{name}: {value}`\n",
}


def written(shape: str, name: str, value: str) -> str:
    """A secret in one of the shapes."""
    encoded = base64.b64encode(value.encode()).decode()
    return SHAPES[shape].format(name=name, lower=name.lower(), camel=_camel(name), value=value, encoded=encoded)


def leaks() -> Iterator[tuple[str, str, str]]:
    """Name, shape and masked text of every secret of which more than a few characters are left."""
    for name, value in named_secrets():
        encoded = base64.b64encode(value.encode()).decode()
        for shape in SHAPES:
            text = redact(written(shape, name, value)).content
            if any(part in text for secret in (value, encoded) for part in _parts(secret)):
                yield name, shape, text


def _parts(secret: str) -> Iterator[str]:
    """Any five characters of it in a row."""
    return (secret[start : start + 5] for start in range(len(secret) - 4))
