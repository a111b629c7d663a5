"""The stdio pipe, and the requests that open a conversation, answered without the protocol's library.

A client that starts a process waits a second or so for the list of tools, and shows its model none if that comes later.
Loading the library and the index takes longer on a busy machine. So `initialize` and the lists are answered here, from
data that stands beside this module; tests compare each answer with the library's own.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Mapping, Sequence

from rag_context._version import __version__
from rag_context.api.toolsets import Toolset, Toolsets

TYPE_CHECKING = False  # as in `typing`, which takes longer to load than it may
if TYPE_CHECKING:
    from typing import Any

NAME = "rag-context"
TITLE = "rag-context"
DESCRIPTION = "The memory that AI agents share"
LISTS = os.path.join(os.path.dirname(__file__), "lists.json")
"""What is listed: tools by name, each with its set, prompts and resource templates. Generated from the declarations."""

_BESIDE: Mapping[Toolset, str] = {
    Toolset.PROJECTS: "Tools without the prefix rag_context_ work on other documents. ",
    Toolset.COLLECTIONS: "rag_context_converse searches collections, which are separate. ",
}
"""What leads over to a set that is offered beside others."""


def instructions(toolsets: Toolsets) -> str:
    """What a model reads about the tools that are offered. Some clients show the first 512 characters only."""
    # What the last two say is said of the memory already.
    order = (Toolset.MEMORY, Toolset.PROJECTS, Toolset.COLLECTIONS, Toolset.OPERATIONS, Toolset.SEARCH_FETCH)
    first, *others = (each for each in order[: 3 if Toolset.MEMORY in toolsets else None] if each in toolsets)
    return "\n\n".join([_text(first), *(_BESIDE.get(toolset, "") + _text(toolset) for toolset in others)])


def _text(toolset: Toolset) -> str:
    paragraphs = _read(os.path.join(os.path.dirname(__file__), "instructions", f"{toolset}.txt")).split("\n\n")
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


VERSIONS = ("2024-11-05", "2025-06-18", "2025-11-25")
"""Revisions that begin with `initialize`; later ones have no such request."""

BATCHING = "2025-03-26"
"""The one revision whose servers must take batches, which this one does not."""

UNINTRODUCED = "2026-07-28"
"""The revision without `initialize`: each request says by itself what its client understands."""

_MODERN = "io.modelcontextprotocol/"
"""What begins the names of what requests and answers of that revision say of their sender."""

UNBATCHED = "2024-11-05"
"""The revision before it, in which its clients are answered."""

CAPABILITIES = {
    "prompts": {"listChanged": False},
    "resources": {"subscribe": False, "listChanged": True},
    "tools": {"listChanged": False},
}
SERVER_INFO = {"name": NAME, "title": TITLE, "version": __version__, "description": DESCRIPTION}
LISTS_TTL_MS = 60_000
"""How long a client may keep a list that changes with the configuration only."""

_UNCHANGING = ("tools/list", "prompts/list", "resources/templates/list")
CATEGORY = "category"
PROMPTED_BY = Toolset.MEMORY
"""The set whose tools the prompts use."""


class Opening:
    """Answers the requests with which a client opens a conversation.

    `words` are the values that the configuration allows a listed field to have; `structured` answers are for programs,
    which get their schemas too.
    """

    def __init__(
        self, toolsets: Toolsets, words: Mapping[str, Sequence[str]] | None = None, *, structured: bool = False
    ) -> None:
        self._toolsets = toolsets
        self._words = words or {}
        self._structured = structured
        self._is_first = True
        self.request_id: str | int | None = None
        """The id of the `initialize` that was answered, which the library will answer too."""
        self.is_done = False
        """Whether the index is open, or a request waits for it: then what it holds is no longer answered here."""
        self.listed_no_resources = False
        """Whether the client may have got an empty list of resources: it is notified once the index is open."""

    def answer(self, line: bytes) -> bytes | None:
        """The answer to one of these requests; None: the line is for the library.

        A client that neither opens nor says its revision in each request is the library's alone.
        """
        is_first, self._is_first = self._is_first, False
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return None
        match message:
            case {"jsonrpc": "2.0", "id": str() | int() as id_, "method": str() as method, **rest} if not (
                isinstance(id_, bool) or rest.keys() - {"params"}
            ):
                params = rest.get("params", {})
                is_introduced = self.request_id is None and _is_introduced(params)
                result = self._by_itself(method) if is_introduced else self._result(method, params, is_first=is_first)
            case _:
                return None
        if result is None:
            return None
        if is_first and not is_introduced:
            self.request_id = id_
        answer = {"jsonrpc": "2.0", "id": id_, "result": result}
        return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()

    def _result(self, method: str, params: object, *, is_first: bool) -> dict[str, object] | None:
        match method, params:
            case "initialize", {
                "protocolVersion": str() as version,
                "capabilities": dict(),
                "clientInfo": {"name": str(), "version": str()},
            } if is_first:
                return self._opened(version)
            # Some clients put a token for progress beside every request; a list has no progress to report.
            case _, dict() if self.request_id is not None and not params.keys() - {"_meta"}:
                return self._listed(method)
        return None

    def _by_itself(self, method: str) -> dict[str, object] | None:
        """The answer to a request that introduces its client itself."""
        if method == "server/discover":
            resources = {**CAPABILITIES["resources"], "listChanged": False}
            listed: dict[str, object] | None = {
                "supportedVersions": [UNINTRODUCED],
                "capabilities": {**CAPABILITIES, "resources": resources},
                "instructions": instructions(self._toolsets),
            }
        else:
            listed = self._listed(method) if method in _UNCHANGING else None
        if listed is None:
            return None
        kept = {"cacheScope": "private", "ttlMs": LISTS_TTL_MS, "resultType": "complete"}
        return {**kept, **listed, "_meta": {f"{_MODERN}serverInfo": SERVER_INFO}}

    def _opened(self, requested: str) -> dict[str, object]:
        if requested == BATCHING:
            requested = UNBATCHED
        version = requested if requested in VERSIONS else VERSIONS[-1]
        return {
            "protocolVersion": version,
            "capabilities": CAPABILITIES,
            "serverInfo": SERVER_INFO,
            "instructions": instructions(self._toolsets),
        }

    def _listed(self, method: str) -> dict[str, object] | None:
        lists = json.loads(_read(LISTS)) if method in _UNCHANGING else {}
        match method:
            case "ping":
                return {}
            case "tools/list":
                return {"tools": [self._tool(**each) for each in lists["tools"] if each["toolset"] in self._toolsets]}
            case "prompts/list":
                return {"prompts": lists["prompts"] if PROMPTED_BY in self._toolsets else []}
            case "resources/templates/list":
                return {"resourceTemplates": lists["resourceTemplates"]}
            case "resources/list" if not self.listed_no_resources:
                # Claude Code shows no tool before it has this list too. The next request for it is the library's.
                self.listed_no_resources = True  # before looking, for the index is opened by another thread
                return None if self.is_done else {"resources": []}
        return None

    def _tool(self, toolset: str, tool: "dict[str, Any]", output: dict[str, object]) -> dict[str, object]:
        """A tool with the values that the configuration allows; categories are listed only if it has some."""
        properties = tool["inputSchema"]["properties"]
        if CATEGORY not in self._words:
            properties.pop(CATEGORY, None)
        for name in self._words.keys() & properties.keys():
            properties[name]["enum"] = list(self._words[name])
        return {**tool, "outputSchema": output} if self._structured else tool


def _is_introduced(params: "Any") -> bool:
    """Whether a request without further parameters is one of the revision that has no opening."""
    match params:
        case {"_meta": {**meta}} if params.keys() == {"_meta"}:
            pass
        case _:
            return False
    match [meta.get(f"{_MODERN}{name}") for name in ("protocolVersion", "clientInfo", "clientCapabilities")]:
        case [version, {"name": str(), "version": str()}, dict()]:
            return version == UNINTRODUCED
    return False


LINE_BYTES = 4 * 1024 * 1024
"""Longest message that is read."""


class OversizedLineError(Exception):
    """A message is longer than `LINE_BYTES`; it was read to its end."""


class Wire:
    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._in = os.fdopen(read_fd, "rb", closefd=False)
        self._write_fd = write_fd
        self._writing = threading.Lock()

    def read_line(self) -> bytes | None:
        """The next line that is not blank; None at the end. Raises: OversizedLineError."""
        while line := self._in.readline(LINE_BYTES):
            if len(line) == LINE_BYTES and not line.endswith(b"\n"):
                while (rest := self._in.readline(LINE_BYTES)) and not rest.endswith(b"\n"):
                    pass
                raise OversizedLineError
            if line.strip():
                return line
        return None

    def write_line(self, line: bytes) -> None:
        """Write a line, all of it. Raises: OSError (the client has stopped reading)."""
        left = memoryview(line + b"\n")
        with self._writing:  # two threads answer: the one that reads, and the library's
            while left:
                # A nearly full pipe takes a part only.
                left = left[os.write(self._write_fd, left) :]


_WAITING_LINES = 16


LOAD_AFTER_S = 3.0
"""When the rest is loaded, if the client has requested nothing that needs it by then."""


class OpeningReader:
    """A client's lines, read in a thread of its own, which answers what `opening` can answer.

    The process does not wait for that thread at its end.
    """

    def __init__(self, wire: Wire, opening: Opening) -> None:
        self.wire = wire
        self.opening = opening
        self.is_over = False
        """Whether the client closed its end before it requested anything that is for the library."""

        # Bounded: while the library is busy the pipe fills, and the client waits.
        self._lines: queue.Queue[bytes | OversizedLineError | None] = queue.Queue(_WAITING_LINES)
        self._has_begun, self._is_needed = threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="mcp stdin", daemon=True).start()

    def wait_until_needed(self, pause_s: float = LOAD_AFTER_S) -> None:
        """Return once a request is for the library, the client has closed its end, or `pause_s` after the opening.

        Loading the library while the lists are still being requested would only delay them. A client that is slower
        than that is still answered at once, beside the loading.
        """
        self._has_begun.wait()
        self._is_needed.wait(pause_s)

    def read_line(self) -> bytes | None:
        """The next line for the library; None at the end. Raises: OversizedLineError."""
        line = self._lines.get()
        if isinstance(line, OversizedLineError):
            raise line
        return line

    def _run(self) -> None:
        line: bytes | OversizedLineError | None = b""
        while line is not None:
            try:
                line = self.wire.read_line()
            except OversizedLineError as error:
                line = error
            except (OSError, ValueError):
                line = None
            self._take(line)

    def _take(self, line: bytes | OversizedLineError | None) -> None:
        opened = self.opening.request_id
        answer = self.opening.answer(line) if isinstance(line, bytes) else None
        if answer is not None:
            try:
                self.wire.write_line(answer)
            except OSError:
                pass  # the client has stopped reading, and closes its other end too
        if answer is None or self.opening.request_id != opened:  # the library gets the opening too
            self._lines.put(line)
        is_notification = isinstance(line, bytes) and b'"id"' not in line
        if answer is None and not is_notification:
            self.is_over = line is None and not self._is_needed.is_set()
            self.opening.is_done = True
            self._is_needed.set()
        self._has_begun.set()


def claim_wire() -> Wire:
    """Take stdin and stdout for the wire, for as long as this process lives: a thread may print to the very end.

    Descriptor 1 is stderr then, and descriptor 0 is empty, so that a stray print, of a C library too, cannot break the
    protocol.
    """
    sys.stdout.flush()
    # Copies, which only `Wire` knows: the numbers 0 and 1 are known to all code, and get other files below.
    kept_in, kept_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return Wire(kept_in, kept_out)
