"""How a command line finds the server of a data directory: a small file beside the index, written while it runs."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

FILE_NAME = "server.json"
_REACHABLE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  (replaced, not bound to)


@dataclass(frozen=True, slots=True)
class Announcement:
    """A server that says it is running; only its own answer at `/live` proves it."""

    pid: int
    url: str
    instance: str


def server_url(host: str, port: int) -> str:
    """The address at which this machine reaches a server bound to `host`."""
    name = host.strip("[]")
    name = _REACHABLE.get(name, name)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def announce(data_dir: Path, announcement: Announcement) -> None:
    """Write the file, whole or not at all, readable by this user only."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=data_dir, prefix=f".{FILE_NAME}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(announcement), file)
        Path(name).replace(data_dir / FILE_NAME)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_announcement(data_dir: Path) -> Announcement | None:
    """What the file says; None where there is none that can be read."""
    try:
        fields = json.loads((data_dir / FILE_NAME).read_text(encoding="utf-8"))
        return Announcement(int(fields["pid"]), str(fields["url"]), str(fields["instance"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def withdraw(data_dir: Path, instance: str) -> None:
    """Remove the file, unless another server has replaced it."""
    announcement = read_announcement(data_dir)
    if announcement is not None and announcement.instance == instance:
        with suppress(OSError):
            (data_dir / FILE_NAME).unlink()


@contextmanager
def announced(data_dir: Path, announcement: Announcement) -> Iterator[None]:
    """Have the file there for the time of the block."""
    announce(data_dir, announcement)
    try:
        yield
    finally:
        withdraw(data_dir, announcement.instance)
