"""What the value of a setting may be: its types, how an error names them, and the rules of every section."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import pydantic
from pydantic_core import PydanticCustomError


@dataclass(frozen=True, slots=True)
class Expected:
    text: str


Name = Annotated[
    str,
    pydantic.StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
    Expected("a text of 1 to 200 characters"),
]
KeyHash = Annotated[
    str, pydantic.StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$"), Expected('"sha256:" and 64 hexadecimal digits')
]
HttpUrl = Annotated[
    str,
    pydantic.StringConstraints(strip_whitespace=True, pattern=r"^https?://[^\s/?#]\S*$"),
    Expected("an http:// or https:// address"),
]
MongoUri = Annotated[
    str,
    pydantic.StringConstraints(strip_whitespace=True, pattern=r"^mongodb(\+srv)?://\S+$"),
    Expected("a mongodb:// or mongodb+srv:// address"),
]


def hosts_of(address: str) -> list[str]:
    """An address that may name several hosts, with commas between them, as an address for each."""
    parts = urlsplit(address)
    login, at, hosts = parts.netloc.rpartition("@")
    return [parts._replace(netloc=f"{login}{at}{host}").geturl() for host in hosts.split(",")]


def _has_hosts(address: str) -> str:
    for each in hosts_of(address):
        _ = urlsplit(each).port  # raises ValueError
    return address


PostgresUrl = Annotated[
    str,
    pydantic.StringConstraints(strip_whitespace=True, pattern=r"^postgres(ql)?://\S+$"),
    pydantic.AfterValidator(_has_hosts),
    Expected("an address like postgresql://USER:PASSWORD@HOST:PORT/DATABASE, user and password percent-encoded"),
]
RedisUrl = Annotated[
    str,
    pydantic.StringConstraints(strip_whitespace=True, pattern=r"^(rediss?|unix)://\S+$"),
    Expected("a redis://, rediss:// or unix:// address"),
]
Secret = Annotated[pydantic.SecretStr, pydantic.Field(min_length=1), Expected("a text that is not empty")]
UserPath = Annotated[Path, pydantic.AfterValidator(Path.expanduser), Expected("a path")]
Names = Annotated[tuple[Name, ...], Expected("a list of texts")]
Origin = Annotated[
    str, pydantic.StringConstraints(strip_whitespace=True, to_lower=True, pattern=r"^https?://[^\s/?#@*]+$")
]
Origins = Annotated[tuple[Origin, ...], Expected("a list of origins such as https://app.example.com, without paths")]
Consistency = Literal["one", "majority", "quorum", "all"]
"""How many replicas of a shard a read compares, and which one counts where they differ."""
Switch = Annotated[bool, Expected("true or false")]
Bytes = Annotated[pydantic.ByteSize, Expected("a size in bytes above 0, or one like 2MiB")]


def once(selector: str, choice: str, value: str) -> Callable[[dict[str, Any]], str | None]:
    """The default of a field: a value once another field of its section has chosen what it is for."""
    return lambda known: value if known.get(selector) == choice else None


def setting(default: Any, description: str, **rules: Any) -> Any:
    """A field of a section, with the line that the documentation prints; a function makes the default."""
    kind = "default_factory" if callable(default) else "default"
    return pydantic.Field(description=description, **{kind: default}, **rules)


class Section(pydantic.BaseModel):
    """Common rules: frozen, no unknown keys, and `true` is not the number 1."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=False, defer_build=True
    )

    @pydantic.field_validator("*", mode="before")
    @classmethod
    def _no_booleans(cls, value: object, info: pydantic.ValidationInfo) -> object:
        field = cls.model_fields.get(info.field_name or "")
        if isinstance(value, bool) and (field is None or field.annotation is not bool):
            raise PydanticCustomError("boolean", "is a boolean")
        return value
