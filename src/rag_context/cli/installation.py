"""What `doctor` finds out about this machine: files, rights, room, port and clients. Nothing is changed."""

import json
import os
import platform
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import httpx2

from rag_context._version import __version__
from rag_context.api.discovery import read_announcement, server_url
from rag_context.cli.configure import is_open_to_others
from rag_context.cli.mcp_clients import CLIENTS, NAME, Client
from rag_context.cli.serve import server_options
from rag_context.errors import ConfigurationError, RagContextError
from rag_context.server.running import bind
from rag_context.settings import Loaded, Settings, shown
from rag_context.stores.sqlite import FILE_NAME
from rag_context.stores.sqlite.mark import IndexMark
from rag_context.stores.sqlite.migration import file_problem, sqlite_version

LEAST_FREE_BYTES = 100 << 20
"""Less room than this is wrong: an index that is written needs room for its write-ahead log."""
LITTLE_FREE_BYTES = 1 << 30
ASK_S = 2.0
GIB = 1 << 30

Status = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about this installation.

    Attributes:
        area: what it is about.
        status: `wrong` is what keeps something from working.
        says: the fact, in a sentence.
        next_step: what to do about it; None where there is nothing to do.
    """

    area: str
    status: Status
    says: str
    next_step: str | None = None


def problem(area: str, error: RagContextError, otherwise: str, status: Status = "wrong") -> Iterator[Finding]:
    """An error as findings, a line each. Our errors say what to do behind a colon; `otherwise` is for those without."""
    for line in str(error).splitlines():
        says, colon, step = line.rstrip(".").rpartition(": ")
        yield Finding(area, status, says if colon else line.rstrip("."), step if colon else otherwise)


def versions() -> Iterator[Finding]:
    """What runs."""
    packages = ", ".join(f"{name} {metadata.version(name)}" for name in ("onnxruntime", "numpy", "mcp"))
    python = f"Python {platform.python_version()} in {sys.prefix}"
    system = f"{platform.system()} {platform.machine()}"
    says = f"rag-context {__version__}, {python}, SQLite {sqlite_version()}, {packages}, {system}"
    yield Finding("versions", "ok", says)


def configuration(loaded: Loaded) -> Iterator[Finding]:
    """Every setting that is not the default, with its source."""
    values = shown(loaded.settings)
    odd = {key: source for key, source in loaded.sources.items() if source != "default"}
    for key, source in odd.items():
        yield Finding("settings", "ok", f"{key} = {json.dumps(values[key])} ({source})")
    if not odd:
        yield Finding("settings", "ok", "Every setting has its default; no configuration file was found")


def data_directory(settings: Settings) -> Iterator[Finding]:
    """Whether this user can work in the directory, and what is in it."""
    folder = settings.data_dir
    area = "data directory"
    if not folder.exists():
        parent = next(each for each in folder.parents if each.exists())
        if os.access(parent, os.W_OK | os.X_OK) and parent.is_dir():
            yield Finding(area, "ok", f"{folder} does not exist yet; the first start creates it")
        else:
            step = f"let this user write to {parent}, or choose another folder with --data-dir"
            yield Finding(area, "wrong", f"{folder} does not exist, and cannot be created in {parent}", step)
        return
    if not folder.is_dir():
        yield Finding(area, "wrong", f"{folder} is a file", "choose a folder with --data-dir")
        return
    owner = folder.stat().st_uid
    step = f"`chown -R` it to this user, `chmod u+rwx {folder}`, or choose another folder with --data-dir"
    if not os.access(folder, os.R_OK | os.X_OK):
        yield Finding(area, "wrong", f"{folder} (owner: user {owner}) cannot be read by this user", step)
        return
    blocked = [name.name for name in (folder, folder / FILE_NAME) if name.exists() and not os.access(name, os.W_OK)]
    if blocked:
        says = f"{folder} (owner: user {owner}) cannot be written by this user: searches work, but nothing is stored"
        yield Finding(area, "wrong", f"{says} ({', '.join(blocked)})", step)
    else:
        yield Finding(area, "ok", f"{folder} can be read and written")
    if is_open_to_others(folder):
        yield Finding(area, "warning", f"Other users of this machine may open {folder}", f"`chmod 700 {folder}`")


def index_file(settings: Settings) -> Iterator[Finding]:
    """What the head of the embedded index says, without opening it."""
    if settings.stores.documents != "embedded" or not settings.data_dir.is_dir():
        return
    path = settings.data_dir / FILE_NAME
    try:
        says = file_problem(path)
        size = path.stat().st_size if path.exists() else None
    except OSError as error:
        step = "let this user read it, or restore it from a backup"
        yield Finding("index", "wrong", f"{path} cannot be read: {error.strerror}", step)
        return
    if says is not None:
        yield Finding("index", "wrong", f"{path} {says}", "see `rag-context check`, or restore a backup")
    elif not size and (lost := IndexMark(path.with_name(f"{path.name}.json")).known()):
        step = "restore a backup, or begin again with `rag-context check --start-empty`"
        yield Finding("index", "wrong", f"{path} is {'gone' if size is None else 'empty'}; it had {lost}", step)
    elif not size:
        yield Finding("index", "ok", "There is no index yet; `rag-context index PATH...` fills one")
    else:
        yield Finding("index", "ok", f"{path} has {size / (1 << 20):.1f} MiB; `rag-context check` looks into it")


def room(settings: Settings) -> Iterator[Finding]:
    """How much space is left where the data is."""
    folder = next(each for each in (settings.data_dir, *settings.data_dir.parents) if each.is_dir())
    free = shutil.disk_usage(folder).free
    says = f"{free / GIB:.1f} GiB are free where {settings.data_dir} is"
    step = "free some space, or move the data directory (--data-dir)"
    if free < LEAST_FREE_BYTES:
        yield Finding("disk", "wrong", f"{free / (1 << 20):.0f} MiB are free where {settings.data_dir} is", step)
    elif free < LITTLE_FREE_BYTES:
        yield Finding("disk", "warning", says, step)
    else:
        yield Finding("disk", "ok", says)


def port(settings: Settings) -> Iterator[Finding]:
    """Whether a server could listen, where none of this directory runs."""
    host, number = settings.server.host, settings.server.port
    if read_announcement(settings.data_dir) is not None:
        says = "server.json names a server that does not answer: it hangs, or was killed"
        yield Finding("server", "warning", says, "look into its log; the next start replaces the file")
    try:
        with closing(bind(server_options(settings))):
            yield Finding("port", "ok", f"Port {number} on {host} is free; no server of this data directory runs")
    except ConfigurationError as error:
        other = _answering(server_url(host, number))
        if other is None:
            yield from problem("port", error, "choose another port (--port)")
        else:
            says = f"Port {number} on {host} is in use by a rag-context {other} with another data directory"
            yield Finding("port", "wrong", says, "stop it, use its --data-dir, or choose another port (--port)")


def _answering(url: str) -> str | None:
    """The version of the rag-context that answers there; None where none does."""
    try:
        told = httpx2.get(url + "/live", timeout=ASK_S, trust_env=False).json()
        return str(told["version"]) if "instance" in told else None
    except (httpx2.HTTPError, ValueError, TypeError, KeyError):
        return None


def clients() -> Iterator[Finding]:
    """The entries for this server in the files of MCP clients of this user and this folder."""
    found = False
    files = [(known, known.path()) for known in CLIENTS.values()]
    files.append((CLIENTS["claude-code"], Path.home() / ".claude.json"))
    for known, path in files:
        if not path.is_file():
            continue
        try:
            entry = _entry(known, path)
        except (OSError, ValueError) as error:
            found = True
            step = "correct the file; until then the client starts no server"
            yield Finding("clients", "warning", f"{known.title}'s {path} cannot be read: {error}", step)
            continue
        if entry is not None:
            found = True
            yield _wire(known, path, entry)
    if not found:
        yield Finding("clients", "ok", "No MCP client is set up; `rag-context mcp install CLIENT` does it")


def _entry(known: Client, path: Path) -> Mapping[str, Any] | None:
    """What a client runs for this server. Raises: OSError, ValueError."""
    text = path.read_text(encoding="utf-8")
    held: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text or "{}")
    servers = held.get(known.section, {}) if isinstance(held, dict) else None
    if not isinstance(servers, dict):
        raise ValueError(f"{known.section} is not a table of servers")  # noqa: TRY004  (as a parser's error)
    entry = servers.get(NAME)
    return entry if isinstance(entry, dict) else None


def _wire(known: Client, path: Path, entry: Mapping[str, Any]) -> Finding:
    step = f"`rag-context mcp install {known.name}` writes the entry again"
    url = next((entry[key] for key in ("url", "httpUrl", "serverUrl") if isinstance(entry.get(key), str)), None)
    if url is not None:
        version = _answering(url.rstrip("/").removesuffix("/mcp"))
        if version is None:
            says = f"{known.title} ({path}) calls {url}, where no rag-context answers"
            return Finding("clients", "wrong", says, f"start the server (`rag-context serve`), or {step}")
        return Finding("clients", "ok", f"{known.title} ({path}) calls rag-context {version} at {url}")
    program = str(entry.get("command", ""))
    if shutil.which(program) is None:
        return Finding("clients", "wrong", f"{known.title} ({path}) runs {program!r}, which is not there", step)
    return Finding("clients", "ok", f"{known.title} ({path}) runs {program}")
