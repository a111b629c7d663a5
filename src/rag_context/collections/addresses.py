"""The addresses at which callers may test a provider: those in the server's configuration.

With any address, a caller could scan the network of the server and read what its hosts answer.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr

_NAMED = re.compile(
    r"(?i)(^|_)(addr|address|addresses|dsn|endpoint|host|hosts|location|node|nodes|server|uri|url)($|_)"
)
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d{1,5}")
_UNSAFE = re.compile(r"[\\\s\x00-\x1f\x7f]")
"""Characters that address parsers interpret differently."""

ANY = "*"


@dataclass(frozen=True, slots=True)
class AllowedAddresses:
    """Addresses at which callers may test a provider.

    Args:
        listed: `host`, `host:port`, or `*` for any, from the settings.
        configured: the addresses of configured connections, which need not be listed.
    """

    listed: tuple[str, ...] = ()
    configured: tuple[str, ...] = ()

    def forbidden(self, addresses: Iterable[str]) -> list[str]:
        """The addresses that are not allowed."""
        if ANY in self.listed:
            return []
        allowed = {_parts(each) for each in (*self.listed, *self.configured)}
        return [each for each in addresses if not self._is_allowed(each, allowed)]

    def _is_allowed(self, address: str, allowed: set[tuple[str, int | None] | None]) -> bool:
        parts = _parts(address)
        if parts is None:
            return False
        host, port = parts
        listed = {_parts(each) for each in self.listed}
        return (host, port) in allowed or (host, None) in listed


def guessed_addresses(configuration: BaseModel) -> list[str]:
    """The values that look like addresses, for a provider kind that does not declare its addresses."""
    return list(_guessed(None, configuration))


def _guessed(name: str | None, value: object) -> Iterator[str]:
    match value:
        case BaseModel():
            for field in type(value).model_fields:
                yield from _guessed(field, getattr(value, field))
        case SecretStr():
            secret = value.get_secret_value()
            if "://" in secret:
                yield secret
        case str():
            if "://" in value or _HOST_AND_PORT.fullmatch(value) or (name is not None and _NAMED.search(name)):
                yield value
        case Mapping():
            for key, each in value.items():
                yield from _guessed(str(key), each)
        case list() | tuple() | set() | frozenset():
            for each in value:
                yield from _guessed(name, each)
        case _ if name is not None and _NAMED.search(name) and value is not None and not isinstance(value, int | float):
            yield str(value)


def _parts(address: str) -> tuple[str, int | None] | None:
    """Host and port; None if it is not an address."""
    if _UNSAFE.search(address):
        return None
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return None if not host else (host.rstrip("."), port)
