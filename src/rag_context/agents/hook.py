"""`rag-context-hook EVENT --client NAME`: what the client of an agent runs at a moment of a session.

It calls a process that has the memory open (`serve`, else any `mcp`) through a socket file beside the index, prints one
answer in the client's shape or nothing, and ends. It starts no process, waits no longer than its time budget, and fails
silently: a client shows what a hook prints to the model, and an exit code of 2 would erase the person's prompt.

Only these modules are imported, because the person waits for it with every prompt.
"""

import json
import os
import select
import socket
import sys
import time

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all else here
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

FOLDER = "hooks"
"""Folder below the data directory: sockets of those who answer, digests, and reports that no process took yet."""

SOCKET = ".sock"
DIGEST = ".digest.json"
REPORTS = "unreported.jsonl"
RAN = ".ran"
"""Ends the name of a file whose time says when a client last ran a hook in a session."""

MAX_REPORTS = 1 << 18
"""Bytes: reports beyond are dropped."""

EVENTS = ("session-start", "prompt", "action", "stop", "compact")
BOUND_MS = {"session-start": 100, "prompt": 250, "action": 250, "stop": 250, "compact": 250}
"""Time budget after the payload was read; `hooks.bound_ms` replaces it where the environment sets it."""

STDIN_S = 1.0
"""How long the payload may take: some clients keep the pipe open."""

KEPT = frozenset((
    "session_id", "sessionId", "conversation_id", "cwd", "workspace_roots", "workspaceRoots", "source", "trigger",
    "hook_event_name", "transcript_path", "transcriptPath", "agent_id", "parent_agent_id",
))  # fmt: skip
"""Fields of a payload that a report keeps: none of what was said."""

TRIAL = "rag_context_trial"
"""Stands in the payload with which `doctor` tries a hook: nothing is recorded of it."""

MAX_PAYLOAD = 1 << 20
HEARD = b"+"
"""Sent by who answers as soon as it has read the question."""

GO_ON = b"g"
"""Sent by the hook in reply: it is still there. Without it what was read counts as not received."""

PRINTED = b"k"
"""Sent by the hook once the answer is printed: what is not printed does not count as shown."""

FLAT = {"copilot": "additionalContext", "cursor": "additional_context"}
"""Clients that take the text in a field of the answer's own."""

PLAIN = frozenset({"kiro", "amazon-q"})
"""Clients that take the text as it is."""

FORGETFUL = frozenset({"copilot", "gemini"})
"""Clients that leave out what hooks said where a session goes on: that counts as a new start."""

USAGE = f"""\
Usage: rag-context-hook {{{"|".join(EVENTS)}}} --client NAME [--data-dir DIR]

Run by the client of an agent, with the event's JSON on stdin; prints what the memory has to say, or nothing.
`rag-context install CLIENT` sets it up.
"""


def main() -> None:
    """Answer one event; ends the process with status 0, whatever happens."""
    try:
        _run(sys.argv[1:])
    except (Exception, KeyboardInterrupt):  # noqa: BLE001  (a client would show the error, some of them to the model)
        pass
    # Without the interpreter's last steps, which could print.
    os._exit(0)


def _run(arguments: "Sequence[str]") -> None:
    event = arguments[0] if arguments else ""
    options = dict(zip(arguments[1::2], arguments[2::2], strict=False))
    if event not in EVENTS:
        if event in ("", "-h", "--help"):
            _write(USAGE)
        return
    client = options.get("--client", "")
    if os.environ.get("RAG_CONTEXT_HOOKS__ENABLED", "").strip().lower() in ("off", "0", "false", "no"):
        return
    payload = _payload(STDIN_S)
    if payload is None:
        return
    payload.setdefault("cwd", os.getcwd())
    folder = os.path.abspath(os.path.join(options.get("--data-dir") or data_dir(), FOLDER))
    digest = _digest(folder, client, payload) if event == "session-start" else None
    if digest is not None:
        _write(shaped(client, payload, digest["text"]))
    question = {"event": event, "client": client, "payload": payload, "printed": digest and digest["shown"]}
    bound_s = float(os.environ.get("RAG_CONTEXT_HOOKS__BOUND_MS") or BOUND_MS[event]) / 1000.0
    is_heard = _ask(folder, question, client, time.monotonic() + bound_s)
    if TRIAL in payload:
        return
    if not is_heard and event in ("session-start", "stop", "compact"):
        _leave(folder, question)
    _note_run(os.path.join(folder, os.path.basename(client) + RAN))


def data_dir() -> str:
    """The data directory of the default settings, or that of the environment."""
    if chosen := os.environ.get("RAG_CONTEXT_DATA_DIR"):
        return os.path.expanduser(chosen)
    if sys.platform == "win32":
        return os.path.join(os.environ.get("LOCALAPPDATA") or os.path.expanduser("~\\AppData\\Local"), "rag-context")
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Application Support/rag-context")
    base = os.environ.get("XDG_DATA_HOME", "").strip() or os.path.expanduser("~/.local/share")
    return os.path.join(base, "rag-context")


def _payload(timeout_s: float) -> "dict[str, Any] | None":
    """The first JSON object on stdin; None if there is none in time, or none of a usable size."""
    read, end = b"", time.monotonic() + timeout_s
    while len(read) <= MAX_PAYLOAD:
        if os.name == "posix" and not select.select([0], [], [], max(end - time.monotonic(), 0.0))[0]:
            return None
        part = os.read(0, 1 << 16)
        read += part
        if not part or read.rstrip().endswith(b"}"):
            try:
                value = json.loads(read)
            except ValueError:
                if not part:
                    return None
                continue
            return value if isinstance(value, dict) else None
    return None


def shaped(client: str, payload: "dict[str, Any]", text: str) -> str:
    """The text in the shape in which this client takes it at this event."""
    if client in PLAIN:
        return text
    if client in FLAT and "hookEventName" not in payload:  # VS Code, which reads the same file as Copilot, nests it
        return json.dumps({FLAT[client]: text})
    name = payload.get("hook_event_name") or payload.get("hookEventName")
    return json.dumps({"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}})


def cwd_of(payload: "dict[str, Any]") -> str:
    roots = payload.get("workspace_roots") or payload.get("workspaceRoots") or [payload["cwd"]]
    return str(roots[0])


def file_name(tag: str) -> str:
    """The name of the digest of a project, by its tag."""
    return "".join(c if c.isalnum() or c in "-._" else "_" for c in tag) + DIGEST


def is_subagent(payload: "dict[str, Any]") -> bool:
    """Whether the event is one of an agent that another one started. One client names the main agent too."""
    parent = payload.get("parent_agent_id", payload.get("agent_id"))
    return parent is not None


def _digest(folder: str, client: str, payload: "dict[str, Any]") -> "dict[str, Any] | None":
    """What is said at this start of a session: nothing where it goes on, or in a sub-agent."""
    goes_on = payload.get("source") in ("resume", "fork") and client not in FORGETFUL
    if goes_on or is_subagent(payload):
        return None
    from pathlib import Path  # noqa: PLC0415  (only the start of a session needs to know its project)

    from rag_context.agents.workspace import workspace  # noqa: PLC0415

    found = workspace(Path(cwd_of(payload)))
    if found is None:
        return None
    try:
        with open(os.path.join(folder, file_name(found.tag)), encoding="utf-8") as file:
            digest = json.load(file)
    except OSError:
        return None
    return digest if isinstance(digest, dict) and digest.get("text") and "shown" in digest else None


def _ask(folder: str, question: "dict[str, Any]", client: str, end: float) -> bool:
    """Print the answer of a process that serves, if it comes in time; whether one read the question."""
    if not hasattr(socket, "AF_UNIX"):
        return False
    body = json.dumps({**question, "bound_s": max(end - time.monotonic(), 0.0)}).encode() + b"\n"
    for connection in _connections(folder, end):
        with connection:
            # One that is stopped would take all of the time: another may answer in what is left.
            connection.settimeout(max((end - time.monotonic()) / 2, 0.001))
            try:
                connection.sendall(body)
                if connection.recv(1) != HEARD:
                    continue
                connection.sendall(GO_ON)
            except OSError:
                continue
            text = _text(connection, end)
            if text:
                _write(shaped(client, question["payload"], text))
                connection.sendall(PRINTED)
            return True
    return False


def _connections(folder: str, end: float) -> "Iterator[socket.socket]":
    """Connections to all who answer, servers first."""
    try:
        os.chdir(folder)  # the path of a socket may have some 100 characters only
        names = sorted((name for name in os.listdir(".") if name.endswith(SOCKET)), reverse=True)
    except OSError:
        return
    for name in names:
        left = end - time.monotonic()
        if left <= 0:
            return
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(left / 2)
        try:
            connection.connect(name)
        except OSError:  # it ended without removing its file
            connection.close()
            continue
        yield connection


def _text(connection: socket.socket, end: float) -> str:
    """The answer; "" where it does not come in time."""
    read = b""
    while not read.endswith(b"\n"):
        connection.settimeout(max(end - time.monotonic(), 0.001))
        try:
            part = connection.recv(1 << 16)
        except OSError:
            return ""
        if not part:
            return ""
        read += part
    answer = json.loads(read)
    return str(answer["text"])


def _leave(folder: str, question: "dict[str, Any]") -> None:
    """Note the event for the next process that has the memory open."""
    payload = {name: value for name, value in question["payload"].items() if name in KEPT}
    line = json.dumps({**question, "payload": payload, "at": time.time()}).encode() + b"\n"
    path = os.path.join(folder, REPORTS)
    if not os.path.isdir(folder) or (os.path.exists(path) and os.path.getsize(path) > MAX_REPORTS):
        return
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line)


def _note_run(path: str) -> None:
    try:
        os.utime(path)
    except FileNotFoundError:
        folder = os.path.dirname(path)
        for each in (os.path.dirname(folder), folder):  # a first session may come before any process with the index
            if not os.path.isdir(each):
                os.makedirs(each, 0o700)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def _write(text: str) -> None:
    """Print all of it: clients show half an answer as it is."""
    left = text.encode("utf-8", "replace")
    while left:
        left = left[os.write(1, left) :]


if __name__ == "__main__":
    main()
