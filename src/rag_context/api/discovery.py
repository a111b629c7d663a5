"""Where a running server is: the file that it keeps beside its index, as servers write it and clients read it."""

import json
from dataclasses import dataclass
from pathlib import Path

FILE_NAME = "server.json"
_REACHABLE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  (replaced, not bound to)


@dataclass(frozen=True, slots=True)
class Announcement:
    """A server that says it is running; only its own answer at `/live` proves it.

    Attributes:
        pid: its process.
        url: where this machine reaches it.
        instance: what it calls itself at `/live`.
        bound: the address and port it listens on, which may be all of this machine's.
    """

    pid: int
    url: str
    instance: str
    bound: str = ""


def server_url(host: str, port: int) -> str:
    """The address at which this machine reaches a server bound to `host`."""
    name = host.strip("[]")
    name = _REACHABLE.get(name, name)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def is_every_address(host: str) -> bool:
    """Whether a server bound to `host` is reached by every address of its machine."""
    return host in _REACHABLE


def read_announcement(data_dir: Path) -> Announcement | None:
    """What the file says; None where there is none that can be read."""
    try:
        fields = json.loads((data_dir / FILE_NAME).read_text(encoding="utf-8"))
        bound = str(fields.get("bound", ""))
        return Announcement(int(fields["pid"]), str(fields["url"]), str(fields["instance"]), bound)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
