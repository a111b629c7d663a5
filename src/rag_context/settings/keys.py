"""Every setting by its dotted key: its environment variables, its valid values, and how it and the index are shown."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from rag_context.settings.config_file import PREFIX
from rag_context.settings.sections import ConnectionSettings, Settings
from rag_context.settings.values import Expected

MASK = "********"

ALIASES: Mapping[str, str] = {
    "DATABASE_URL": "stores.postgres_url",
    "POSTGRES_URL": "stores.postgres_url",
    "MONGODB_URI": "stores.mongodb_uri",
    "QDRANT_URL": "stores.qdrant_url",
    "CHROMA_URL": "stores.chroma_url",
    "REDIS_URL": "stores.redis_url",
    "LM_STUDIO_URL": "embedder.url",
    "MCP_SERVER_PORT": "server.port",
    "RAG_WORKERS": "server.workers",
    "LOG_LEVEL": "log.level",
    "RAG_CACHE_SIZE": "search.cache_size",
    "RAG_CACHE_TTL": "search.cache_ttl_s",
    "CIRCUIT_BREAKER_THRESHOLD": "breaker.threshold",
    "CIRCUIT_BREAKER_TIMEOUT": "breaker.timeout_ms",
    "RAG_CONTEXT_API_KEY": "server.api_key",
    "RAG_CONTEXT_URL": "client.url",
}
"""Short names of environment variables; each setting also has its long one."""

SELECTS: Sequence[tuple[str, str, str]] = (
    ("stores.postgres_url", "stores.vectors", "postgres"),
    ("stores.postgres_url", "stores.documents", "postgres"),
    ("stores.qdrant_url", "stores.vectors", "qdrant"),
    ("stores.chroma_url", "stores.vectors", "chroma"),
    ("stores.mongodb_uri", "stores.documents", "mongodb"),
    ("stores.redis_url", "stores.cache", "redis"),
    ("embedder.url", "embedder.kind", "openai_compatible"),
)
"""Settings of addresses that select a backend if they are set in the environment: address, what it selects, which."""

_SECRET = re.compile(r"(?i)key|token|secret|password|passwd|pwd|credential")
"""In a key of `connections.<id>`: its value must not be shown."""

_PASSWORD = re.compile(r"(?<=://)([^/?#\s:]*):[^/?#\s]*@")
_TOKEN = re.compile(r"(?<=://)[^/?#\s:@]+@")
_PARAMETER = re.compile(r"(?P<sign>[?&;])(?P<name>[^=&;#]*)(?P<equals>=?)(?P<value>[^&;#]*)")
_FRAGMENT = re.compile(r"#.+")
_HARMLESS = frozenset(
    """api-version appname authmechanism authsource compressors connect connecttimeoutms db directconnection
    health_check_interval heartbeatfrequencyms journal loadbalanced localthresholdms maxidletimems maxpoolsize
    maxstalenessseconds max_connections minpoolsize protocol readconcernlevel readpreference replicaset retryreads
    retrywrites serverselectiontimeoutms socket_connect_timeout socket_timeout sockettimeoutms ssl sslmode
    ssl_cert_reqs timeout timeoutms tls version w waitqueuetimeoutms wtimeoutms zlibcompressionlevel""".split()  # noqa: SIM905
)
"""URL parameters that are shown. Others may be credentials, such as `access`, `sig`, `authMechanismProperties`."""


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    field: FieldInfo

    @property
    def description(self) -> str:
        return self.field.description or ""

    @property
    def expected(self) -> str:
        return expected_of(self.field)

    @property
    def secret(self) -> bool:
        return not self.field.repr or SecretStr in _leaves(self.field.annotation)

    @property
    def is_path(self) -> bool:
        """Whether it names a file or folder; a relative one is relative to the file that states it."""
        return Path in _leaves(self.field.annotation)

    @property
    def default(self) -> object:
        return self.field.default if self.field.default_factory is None else None


def variable(key: str) -> str:
    """The long name of the environment variable of a dotted key."""
    return PREFIX + key.upper().replace(".", "__")


def _walk() -> Iterator[Key]:
    for name, field in Settings.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            for inner, inner_field in section.model_fields.items():
                yield Key(f"{name}.{inner}", inner_field)
        else:
            yield Key(name, field)


KEYS: Mapping[str, Key] = {key.name: key for key in _walk()}
"""All settings, in the order of the documentation."""

SECTIONS = tuple(dict.fromkeys(name.partition(".")[0] for name in KEYS if "." in name))


def expected_of(field: FieldInfo) -> str:
    return _expected(field.annotation, field.metadata)


def _leaves(annotation: Any) -> Iterator[Any]:
    arguments = get_args(annotation)
    if not arguments or get_origin(annotation) is Literal:
        yield annotation
    for argument in arguments:
        yield from _leaves(argument)


def _expected(annotation: Any, metadata: Any = ()) -> str:
    for item in metadata:
        if isinstance(item, Expected):
            return item.text
    if get_origin(annotation) is Annotated:
        return _expected(annotation.__origin__, annotation.__metadata__)
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(get_args(annotation))
    if get_origin(annotation) is tuple:
        return "a list of tables with " + ", ".join(get_args(annotation)[0].model_fields)
    if NoneType in get_args(annotation):
        return _expected(get_args(annotation)[0], metadata)
    return {int: "a whole number", float: "a number"}[annotation] + _range(metadata)


def _range(metadata: Any) -> str:
    low = next((item.ge for item in metadata if isinstance(item, Ge)), None)
    high = next((item.le for item in metadata if isinstance(item, Le)), None)
    above = next((item.gt for item in metadata if isinstance(item, Gt)), None)
    if high is not None:
        return f" from {low} to {high}"
    return f" above {above}" if low is None else f" of at least {low}"


def mask_url(url: str) -> str:
    """A URL with passwords, tokens and keys masked; only known harmless parameters are shown."""
    url = _TOKEN.sub(f"{MASK}@", _PASSWORD.sub(rf"\1:{MASK}@", url))
    base, question_mark, parameters = _FRAGMENT.sub(f"#{MASK}", url).partition("?")
    return base + _PARAMETER.sub(_masked_parameter, question_mark + parameters)


def _masked_parameter(match: re.Match[str]) -> str:
    if not match["value"] and match["equals"]:
        return match[0]
    if not match["equals"]:
        return match["sign"] + (MASK if match["name"] else "")
    return match[0] if match["name"].lower() in _HARMLESS else f"{match['sign']}{match['name']}={MASK}"


def shown(settings: Settings) -> dict[str, object]:
    """Every setting as a JSON value, with secrets masked."""
    values: dict[str, object] = {}
    for name in KEYS:
        value: object = settings
        for part in name.split("."):
            value = getattr(value, part)
        values[name] = _shown(value)
    return values


def _shown(value: object) -> object:
    match value:
        case SecretStr():
            return MASK
        case ConnectionSettings():
            given = {} if value.embedder is None else value.embedder.model_dump(include=value.embedder.model_fields_set)
            embedder = {"embedder": {name: _shown(each) for name, each in given.items()}} if given else {}
            return {"provider": value.provider, **_shown_tables(value.configuration), **embedder}
        case dict():
            return _shown_tables(value)
        case BaseModel():
            return {field: MASK if field == "hash" else getattr(value, field) for field in type(value).model_fields}
        case tuple():
            return [_shown(item) for item in value]
        case str():
            return mask_url(value) if "://" in value else value
        case bool() | float() | None:
            return value
        case int():
            return int(value)
        case _:
            return str(value)


def _shown_tables(tables: Mapping[str, object]) -> dict[str, object]:
    return {key: MASK if _SECRET.search(key) else _shown(value) for key, value in tables.items()}


TITLES = {
    "embedded": "embedded",
    "postgres": "PostgreSQL",
    "qdrant": "Qdrant",
    "chroma": "Chroma",
    "mongodb": "MongoDB",
    "redis": "Redis",
}


def location_of(settings: Settings) -> str:
    """Where the index of these settings is, as people read it: without a password."""
    stores = settings.stores
    parts = urlsplit(stores.postgres_url or "")
    locations = {
        "embedded": str(settings.data_dir),
        "postgres": f"PostgreSQL at {parts.netloc.rpartition('@')[2]}{parts.path}",
    }
    return " and ".join(dict.fromkeys(locations.get(kind, TITLES[kind]) for kind in (stores.documents, stores.vectors)))
