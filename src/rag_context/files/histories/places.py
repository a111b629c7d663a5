"""Where each client keeps its conversations on this machine, as data; and where each of those took place.

A client's folder is never decoded to a path: `/`, `-` and `.` all become `-` there. Records say where they were
written, or a file beside them does.
"""

import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rag_context.files.formats.converter import AIDER_FILE
from rag_context.files.formats.json_stream import Fields, fields, objects, word
from rag_context.files.histories.databases import CURSOR, GOOSE, OPENCODE, WARP, Database

_MAX_BESIDE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Location:
    """Conversations of a client.

    Args:
        client: its name, which documents have as their agent.
        root: a folder; `~` is the home, `$CONFIG`, `$DATA` and `$LOCAL` are the platform's folders of programs.
        patterns: its files, relative to the root.
        variable: the environment variable that names another root.
        below: what of the root is below the folder that the variable names.
        database: how sessions are read where the file is a database.
        folder: says where the conversation in a file took place, from files beside it.
    """

    client: str
    root: str
    patterns: tuple[str, ...]
    variable: str = ""
    below: str = ""
    database: Database | None = None
    folder: Callable[[Path], str] = lambda _: ""

    def top(self, environ: Mapping[str, str]) -> Path:
        if moved := environ.get(self.variable) if self.variable else None:
            return Path(moved) / self.below
        return _expanded(self.root, environ)

    def watched(self, environ: Mapping[str, str]) -> set[Path]:
        """The folders in which its files are, as deep as all names are known."""
        tops = set()
        for pattern in self.patterns:
            steps = [*itertools.takewhile(lambda step: "*" not in step, pattern.split("/")[:-1])]
            tops.add(Path(os.path.realpath(self.top(environ).joinpath(*steps))))
        return tops


@dataclass(frozen=True, slots=True)
class Transcript:
    """A file with conversations of a client; or one session in a database, which `session` names."""

    client: str
    path: Path
    place: Location
    session: str = ""
    version: int = field(default=0, compare=False)
    """When a session in a database was changed last, in any unit."""

    @property
    def key(self) -> str:
        """Names it among all of this machine."""
        return f"{self.path.as_posix()}#{self.session}" if self.session else self.path.as_posix()


def _expanded(root: str, environ: Mapping[str, str]) -> Path:
    home = Path.home()
    roaming, local = environ.get("APPDATA") or home / "AppData/Roaming", environ.get("LOCALAPPDATA")
    folders: dict[str, str | Path] = {"~": home}
    if sys.platform == "win32":
        folders |= {"$CONFIG": roaming, "$DATA": home / ".local/share", "$LOCAL": local or home / "AppData/Local"}
    else:
        support = home / "Library/Application Support"
        data = environ.get("XDG_DATA_HOME") or home / ".local/share"
        config = environ.get("XDG_CONFIG_HOME") or home / ".config"
        is_mac = sys.platform == "darwin"
        folders |= {"$CONFIG": support if is_mac else config, "$DATA": data, "$LOCAL": support if is_mac else data}
    first, _, rest = root.partition("/")
    return Path(folders[first]) / rest


# Where a conversation took place, from files beside it


def _read(path: Path) -> Fields:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BESIDE_BYTES:
            return {}
        return fields(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}


def local_path(address: str) -> str:
    """The path in a `file:` address; other addresses (such as of another machine) are none; a path is itself."""
    if "://" not in address:
        return address
    parts = urlsplit(address)
    path = unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else ""
    return path[1:] if re.match(r"/[A-Za-z]:", path) else path


def _gemini(path: Path) -> str:
    project = path.parent.parent
    try:
        return (project / ".project_root").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        names = fields(_read(project.parent.parent / "projects.json").get("projects"))
        return next((folder for folder, name in names.items() if name == project.name), "")


def _vscode(path: Path) -> str:
    return local_path(word(_read(path.parent.parent / "workspace.json"), "folder"))


def _cline(path: Path) -> str:
    return word(_read(path.with_name(path.name.replace(".messages.json", ".json"))), "workspace_root", "cwd")


def _roo(path: Path) -> str:
    if folder := word(_read(path.with_name("history_item.json")), "workspace"):
        return folder
    state = path.parent.parent.parent / "state" / "taskHistory.json"
    try:
        tasks = objects(json.loads(state.read_bytes())) if state.is_file() else []
    except (OSError, ValueError, RecursionError):
        return ""
    return next((word(task, "cwdOnTaskInitialization") for task in tasks if task.get("id") == path.parent.name), "")


_CODES = ("Code", "Code - Insiders", "VSCodium")
_HOSTS = (*_CODES, "Cursor", "Windsurf")
_EXTENSIONS = {"cline": "saoudrizwan.claude-dev", "roo": "rooveterinaryinc.roo-cline", "kilo": "kilocode.kilo-code"}

PLACES = (
    Location("claude-code", "~/.claude", ("projects/*/*.jsonl", "projects/*/*/subagents/*.jsonl"), "CLAUDE_CONFIG_DIR"),
    Location("codex", "~/.codex", ("sessions/**/*.jsonl", "archived_sessions/**/*.jsonl"), "CODEX_HOME"),
    Location(
        "gemini", "~/.gemini", ("tmp/*/chats/**/*.jsonl", "tmp/*/chats/*.json"), "GEMINI_CLI_HOME", ".gemini",
        folder=_gemini,
    ),
    Location("opencode", "$DATA/opencode", ("opencode.db",), database=OPENCODE),
    Location("copilot", "~/.copilot", ("session-state/*/events.jsonl",), "COPILOT_HOME"),
    *(
        Location(
            "vscode", f"{base}/User",
            ("workspaceStorage/*/chatSessions/*.json*", "globalStorage/emptyWindowChatSessions/*.json*"),
            folder=_vscode,
        )
        for base in (*(f"$CONFIG/{name}" for name in _CODES), "~/.vscode-server/data")
    ),
    Location("cursor", "$CONFIG/Cursor/User", ("globalStorage/state.vscdb",), database=CURSOR),
    Location("cursor", "~/.cursor", ("projects/*/agent-transcripts/**/*.jsonl",)),
    Location("cline", "~/.cline/data", ("sessions/*/*.messages.json",), "CLINE_DATA_DIR", folder=_cline),
    *(
        Location(
            client, f"{base}/User/globalStorage/{extension}", ("tasks/*/api_conversation_history.json",), folder=_roo
        )
        for base in (*(f"$CONFIG/{name}" for name in _HOSTS), "~/.vscode-server/data")
        for client, extension in _EXTENSIONS.items()
    ),
    Location("qwen", "~/.qwen", ("projects/*/chats/*.jsonl",)),
    Location("goose", "$DATA/goose/sessions", ("sessions.db",), database=GOOSE),
    Location("goose", "$DATA/goose/sessions", ("*.jsonl",)),
    Location("continue", "~/.continue", ("sessions/*.json",), "CONTINUE_GLOBAL_DIR"),
    Location("amp", "$DATA/amp", ("threads/T-*.json",)),
    Location("droid", "~/.factory", ("sessions/**/*.jsonl",)),
    *(
        Location("warp", root, ("warp.sqlite",), database=WARP)
        for root in (
            "~/.local/state/warp-terminal", "$LOCAL/warp/Warp/data",
            "~/Library/Group Containers/2BBY89MBSN.dev.warp/Library/Application Support/dev.warp.Warp-Stable",
        )
    ),
)  # fmt: skip

AIDER = Location("aider", "~", (AIDER_FILE,), folder=lambda path: path.parent.as_posix())
"""Aider writes into the project itself: the folders of the projects that are known are looked through."""

UNREADABLE = (
    ("windsurf", "~/.codeium/windsurf", "cascade/*.pb", "Windsurf encrypts its conversations"),
    ("zed", "$LOCAL/zed", "threads/threads.db", "Zed compresses its threads in a way that is not read yet"),
    ("codex", "~/.codex", "sessions/**/*.jsonl.zst", "Codex has compressed these sessions; they are not read"),
)
"""Conversations that are there and cannot be read, and why."""

CLIENTS = tuple(dict.fromkeys([*(place.client for place in PLACES), AIDER.client]))


def transcripts(place: Location) -> Iterator[Transcript]:
    """The files at a place, a fork after what it goes on with; links that lead out of it are not followed."""
    top = place.top(os.environ)
    real = os.path.realpath(top)
    for pattern in place.patterns:
        for path in sorted(_files(top, pattern), key=lambda path: (_changed_ns(path), path)):
            if os.path.realpath(path).startswith(real + os.sep) and not path.is_symlink():
                yield Transcript(place.client, path, place)


def at(path: Path, environ: Mapping[str, str] = os.environ) -> Transcript | None:
    """The transcript that a path leads to, by its place; None elsewhere."""
    path = Path(os.path.realpath(path))
    for place in PLACES:
        top = Path(os.path.realpath(place.top(environ)))
        if path.is_relative_to(top) and any(_matches(path.relative_to(top), pattern) for pattern in place.patterns):
            return Transcript(place.client, path, place)
    return Transcript("aider", path, AIDER) if path.name == AIDER_FILE else None


def watched() -> list[Path]:
    """The folders in which clients keep sessions, there or not, none below another."""
    tops = sorted(set().union(*(place.watched(os.environ) for place in PLACES)))
    return [top for top in tops if not any(top != other and top.is_relative_to(other) for other in tops)]


def unreadable(environ: Mapping[str, str] = os.environ) -> Iterator[tuple[str, str]]:
    """Clients whose conversations are there and cannot be read, and why."""
    for client, root, pattern, reason in UNREADABLE:
        if next(iter(_files(_expanded(root, environ), pattern)), None) is not None:
            yield client, reason


def _files(top: Path, pattern: str) -> Iterator[Path]:
    try:
        yield from (path for path in top.glob(pattern) if path.name != "sessions.json")
    except OSError:
        return


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _matches(path: Path, pattern: str) -> bool:
    """As `Path.glob`, of which `**` is any number of folders."""
    parts = [".*" if part == "**" else re.escape(part).replace(r"\*", "[^/]*") for part in pattern.split("/")]
    return re.fullmatch("/".join(parts).replace(".*/", "(?:.*/)?"), path.as_posix()) is not None
