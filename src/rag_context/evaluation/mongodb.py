"""Checks whether a MongoDB server answers, without a driver: one `hello` in its wire protocol.

Sources: https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/ and https://bsonspec.org.
"""

import asyncio
import ssl
import struct
from urllib.parse import parse_qs, urlsplit

from rag_context.errors import BackendDataError, BackendUnavailableError, InvalidInputError

DEFAULT_PORT = 27017
_COMPONENT = "mongodb"
_OP_MSG = 2013
_MOST_BYTES = 1 << 20
_HELLO = b"\x10hello\0" + struct.pack("<i", 1) + b"\x02$db\0" + struct.pack("<i", 6) + b"admin\0"
_OK = b"\x01ok\0" + struct.pack("<d", 1.0)


async def say_hello(uri: str) -> str:
    """Connect to the first host of a `mongodb://` address and exchange a `hello`; returns one line for people.

    No password is sent: a server answers `hello` without authentication.

    Raises:
        InvalidInputError: the address cannot be used.
        BackendError: no MongoDB server answers at this address.
    """
    host, port, tls = _address(uri)
    context = ssl.create_default_context() if tls else None
    try:
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
    except OSError as error:
        raise BackendUnavailableError(_COMPONENT, f"{host}:{port} cannot be reached") from error
    try:
        writer.write(_message())
        head = struct.unpack("<iiii", await reader.readexactly(16))
        if head[3] != _OP_MSG or not 16 < head[0] <= _MOST_BYTES:
            raise BackendDataError(_COMPONENT, f"{host}:{port} does not speak MongoDB's protocol")
        body = await reader.readexactly(head[0] - 16)
    except (OSError, asyncio.IncompleteReadError) as error:
        raise BackendDataError(_COMPONENT, f"{host}:{port} did not answer a hello") from error
    finally:
        writer.close()
    if _OK not in body:
        raise BackendDataError(_COMPONENT, f"{host}:{port} did not answer a hello with ok")
    return f"{host}:{port} answered hello"


def _message() -> bytes:
    document = struct.pack("<i", len(_HELLO) + 5) + _HELLO + b"\0"
    body = struct.pack("<i", 0) + b"\0" + document
    return struct.pack("<iiii", len(body) + 16, 1, 0, _OP_MSG) + body


def _address(uri: str) -> tuple[str, int, bool]:
    """Host, port and whether to use TLS. The address itself is never shown: it may hold a password."""
    scheme, _, rest = uri.partition("://")
    if scheme == "mongodb+srv":
        raise InvalidInputError("A mongodb+srv:// address needs DNS records to be read; name a host as mongodb://HOST")
    hosts = rest.partition("/")[0].rpartition("@")[2]
    try:
        first = urlsplit(f"//{hosts.split(',')[0]}")
        host, port = first.hostname, first.port or DEFAULT_PORT
    except ValueError:
        host, port = None, DEFAULT_PORT
    if scheme != "mongodb" or not host:
        raise InvalidInputError("The MongoDB address must have the form mongodb://HOST[:PORT]/DATABASE")
    options = parse_qs(urlsplit(f"//{rest}").query)
    return host, port, any(options.get(name, [""])[-1] == "true" for name in ("tls", "ssl"))
