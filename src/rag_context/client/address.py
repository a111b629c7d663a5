"""Where the server is, and with which key: as the caller says, else as the settings say, else where it is found.

A running server keeps a file beside its index (`server.announcement` writes it). What the file says is believed only
when the server there proves that it knows the secret of the file: something else may listen at that address by now, and
must be shown neither the key nor a question.
"""

import hmac
import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from rag_context.errors import ConfigurationError
from rag_context.settings import Settings, load_settings, mask_url

FILE_NAME = "server.json"
_REACHABLE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  (replaced, not bound to)
FIND_TIMEOUT_S = 2.0
_URL = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
_KEY = re.compile(r"[!-~]+")

CHALLENGE = "x-challenge"
"""Header of a request to `/live` with random hex digits; the announced server answers it with `proof`."""


def proof_of(secret: str, challenge: str) -> str:
    """What only a server that knows the secret answers to a challenge: HMAC-SHA-256, as hex digits."""
    return hmac.new(secret.encode(), challenge.encode(), "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class Announcement:
    """A server that says it is running; only its answer to a challenge proves it.

    Attributes:
        pid: its process.
        url: where this machine reaches it.
        instance: what it calls itself at `/live`.
        secret: proves that it wrote this; only who can read the file knows it.
        bound: the address and port it listens on, which may be all of this machine's.
    """

    pid: int
    url: str
    instance: str
    secret: str = field(repr=False)
    bound: str = ""

    def is_proven_by(self, live_body: bytes, challenge: str) -> bool:
        """Whether this answer of `/live` to a challenge is that of the announced server."""
        try:
            live = json.loads(live_body)
        except ValueError:
            return False
        proof = live.get("proof") if isinstance(live, dict) else None
        return isinstance(proof, str) and hmac.compare_digest(
            proof.encode("utf-8", "replace"), proof_of(self.secret, challenge).encode()
        )

    @property
    def is_running(self) -> bool:
        """Whether there is a process of its number, as far as the system says."""
        if os.name != "posix":  # where asking means ending it
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            return True
        return True


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
        url, instance, secret = (str(fields[name]) for name in ("url", "instance", "secret"))
        found = Announcement(int(fields["pid"]), url, instance, secret, str(fields.get("bound", "")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return found if secret else None


@dataclass(frozen=True, slots=True)
class Address:
    """What is known before the first request.

    Attributes:
        url: the address; None: the server of `data_dir`, else the one at `default_url`.
        data_dir: folder of the index of the server.
        default_url: where a server of these settings would listen; None: only one that announces itself.
        key: the API key; None where none is set.
    """

    url: str | None
    data_dir: Path | None
    default_url: str | None
    key: str | None = field(repr=False)

    @property
    def announced(self) -> Announcement | None:
        return read_announcement(self.data_dir) if self.url is None and self.data_dir is not None else None


def address_of(base_url: str | None, api_key: str | None, data_dir: Path | None) -> Address:
    """The address, from arguments and settings; an `api_key` of "" is none. With both given, no settings are read.

    Raises: ConfigurationError (the settings cannot be read, or address or key cannot be used).
    """
    if base_url is not None and not _URL.fullmatch(base_url):
        raise ConfigurationError(f"{mask_url(base_url)!r} is not an http:// or https:// address of a server.")
    if base_url is not None and api_key is not None:
        return Address(base_url.rstrip("/"), None, base_url, _checked(api_key))
    settings = load_settings(flags={"data_dir": data_dir}, cwd=Path.cwd()).settings
    url = base_url or (settings.client.url if data_dir is None else None)
    return Address(
        url=None if url is None else url.rstrip("/"),
        data_dir=settings.data_dir,
        default_url=server_url(settings.server.host, settings.server.port),
        key=_checked(api_key_of(settings) if api_key is None else api_key),
    )


def announced_address(settings: Settings) -> Address:
    """That of the server that announces itself in the data directory, and of no other."""
    return Address(None, settings.data_dir, None, api_key_of(settings))


def api_key_of(settings: Settings) -> str | None:
    key = settings.server.api_key
    return None if key is None else key.get_secret_value()


def _checked(key: str | None) -> str | None:
    if key and not _KEY.fullmatch(key):
        raise ConfigurationError("The API key must be printable ASCII without spaces.")
    return key or None
