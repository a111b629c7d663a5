"""Files of other formats: which ones are converted, and by worker processes that are started for the first one.

A format is recognised by the file's suffix, conversations in JSON by their first bytes.
"""

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path, PurePath
from threading import BoundedSemaphore, Lock, Timer

from rag_context.files.formats.conversation import message_of, messages_of
from rag_context.files.formats.exchange import (
    ConversionError,
    CutOffError,
    Extracted,
    Format,
    Limits,
    decoded,
    receive,
    send,
)
from rag_context.files.formats.json_stream import Fields, beginning, elements, fields, lines
from rag_context.files.formats.transcripts import CLIENTS

SNIFFED_BYTES = 1 << 16
"""How much of a file's beginning is read to recognise it."""

SNIFFED_ITEMS = 20


_BY_SUFFIX = {
    ".pdf": Format.PDF,
    ".docx": Format.WORD,
    ".docm": Format.WORD,
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".xhtml": Format.HTML,
    ".ipynb": Format.NOTEBOOK,
}
_OF_OBJECTS = (".json",)
_OF_LINES = (".jsonl", ".ndjson")

_LIBRARIES = {
    Format.PDF: ("pypdfium2",),
    Format.WORD: ("mammoth", "markdownify"),
    Format.HTML: ("markdownify",),
}
_MAX_USERS_BYTES = 16 << 20
_END_S = 5.0

_BOOT = (
    "import json, sys; args = json.loads(sys.argv[1]); sys.path[:] = args['path']; "
    "from rag_context.files.formats.worker import Limits, run; run(Limits(**args['limits']))"
)
"""Isolated (-I), so that no module of the folder that is read can take a library's place."""


def format_of(name: str, head: bytes) -> Format | None:
    """The format a file must be converted from; None for plain text and unknown formats.

    Args:
        name: the file's name or path.
        head: its first `SNIFFED_BYTES`, or fewer; used for JSON files only.
    """
    path = PurePath(name)
    if (own := next((client.format for client in CLIENTS if path.name in client.files), None)) is not None:
        return own
    suffix = path.suffix.lower()
    if suffix in _OF_OBJECTS:
        return _of_object(head)
    if suffix in _OF_LINES:
        return _of_lines(head)
    return _BY_SUFFIX.get(suffix)


def _of_object(head: bytes) -> Format | None:
    """Exports are one array of conversations or messages, or an object around one."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"["):
        if b'"mapping"' in head and b'"create_time"' in head:
            return Format.CHATGPT
        if b'"chat_messages"' in head:
            return Format.CLAUDE
    elif not start.startswith(b"{"):
        return None
    begun = beginning(start.decode("utf-8", "replace"))
    found = [item for item, _ in zip(elements(head), range(SNIFFED_ITEMS), strict=False)]
    if not found and isinstance(begun, list):  # the first message is longer than what is read
        found = [item for item in begun if isinstance(item, dict)]
    if (client := _client([fields(begun), *found])) is not None:
        return client
    if found and all(map(_is_slack, found)):
        return Format.SLACK
    return _transcript(found)


def _of_lines(head: bytes) -> Format | None:
    found = [item for item, _ in zip(lines(head), range(SNIFFED_ITEMS), strict=False)]
    last = fields(beginning(head[head.rfind(b"\n") + 1 :].decode("utf-8", "replace")))
    if (client := _client([*found, last])) is not None:
        return client
    return _transcript(found or ([last] if last else []))


def _client(found: Sequence[Fields]) -> Format | None:
    return next((client.format for client in CLIENTS if any(map(client.is_own, found))), None)


def _transcript(found: list[Fields]) -> Format | None:
    """Every item is a message, or every item a conversation."""
    if not found:
        return None
    if all(message_of(item) is not None for item in found) or all(messages_of(item) is not None for item in found):
        return Format.TRANSCRIPT
    return None


def _is_slack(item: Fields) -> bool:
    return item.get("type") == "message" and "ts" in item and ("user" in item or "bot_id" in item or "text" in item)


class ConverterClosedError(Exception):
    """The converter was closed before a file was read to its end; nothing is known of the file."""


class Converter:
    """Converts files in at most `workers` processes, each of which serves many files. Use as a context manager.

    Args:
        limits: bounds of one conversion.
        workers: most processes at a time.
    """

    def __init__(self, limits: Limits | None = None, *, workers: int = 2) -> None:
        self._limits = limits or Limits()
        self._places = BoundedSemaphore(workers)
        self._lock = Lock()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._is_closed = False

    def __enter__(self) -> "Converter":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, also those at work: a command that is ended does not wait for the file that it reads."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            for worker in self._busy:
                worker.kill()
        for worker in idle:
            worker.end()

    def documents(self, format_: Format, path: Path, data: bytes) -> Generator[Extracted, None, None]:
        """The documents in a file, in order; to be called from any thread.

        Args:
            format_: its format, from `format_of`.
            path: its path; next to a Slack export, the list of users is read.
            data: its bytes.

        Raises:
            ConversionError: it cannot be read, or not to its end; earlier documents are valid.
            ConverterClosedError: the converter was closed meanwhile, or before.
        """
        if missing := [name for name in _LIBRARIES.get(format_, ()) if importlib.util.find_spec(name) is None]:
            needed = " and ".join(missing)
            raise ConversionError(f"{format_} files need {needed}: run `pip install 'rag-context[formats]'`")
        beside = _users(path) if format_ is Format.SLACK else b""
        with self._places:
            worker = self._worker()
            try:
                yield from worker.convert(format_, path, data, beside)
            except ConversionError:
                if self._is_closed:  # what its end says of the file is not true
                    raise ConverterClosedError from None
                raise
            finally:
                # A caller that stops in the middle leaves the rest of the answer in the pipe: `is_ready` is false
                # then, and the process is ended instead of reused.
                self._put_back(worker)

    def _worker(self) -> "_Worker":
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        worker = worker or _Worker(self._limits)
        with self._lock:
            if not self._is_closed:
                self._busy.add(worker)
                return worker
        worker.end()
        raise ConverterClosedError

    def _put_back(self, worker: "_Worker") -> None:
        with self._lock:
            self._busy.discard(worker)
            if worker.is_ready and not self._is_closed:
                self._idle.append(worker)
                return
        worker.end()


class _Worker:
    """One process; `is_ready` for the next file."""

    def __init__(self, limits: Limits) -> None:
        self.is_ready = True
        self._limits = limits
        arguments = json.dumps({"path": [place for place in sys.path if place], "limits": asdict(limits)})
        is_windows = sys.platform == "win32"
        self._process = subprocess.Popen(  # noqa: S603  # this interpreter, our own module
            [sys.executable, "-I", "-c", _BOOT, arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # No environment: a converter that a file takes over finds no keys in it. A process group of its own: Ctrl-C
            # reaches the command only, which ends its converters.
            env=None if is_windows else {},
            process_group=None if is_windows else 0,
        )

    def convert(self, format_: Format, path: Path, data: bytes, beside: bytes) -> Iterator[Extracted]:
        """Raises: ConversionError."""
        self.is_ready = False
        request = json.dumps({"format": format_.value, "name": str(path)}).encode()
        outcome = self._request(request, data, beside)
        while "content" in outcome:
            yield decoded(outcome)
            outcome = self._next()
        self.is_ready = "ended" in outcome or "expected" in outcome
        if "reason" in outcome:
            raise ConversionError(str(outcome["reason"]), expected=bool(outcome.get("expected")))

    def kill(self) -> None:
        """End the process at once; to be called from any thread. The thread that waits for it cleans up."""
        self._process.kill()

    def end(self) -> None:
        """End the process, and wait until it has."""
        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # unwritten data
                    continue
        # One that is ready ends by itself at the end of its input; one at work may hang.
        if not self.is_ready:
            process.kill()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _request(self, *frames: bytes) -> dict[str, object]:
        try:
            # Sending too: a process that does not read blocks this thread once the pipe is full.
            with _Timeout(self._process, self._limits.wall_s):
                send(self._process.stdin, *frames)  # type: ignore[arg-type]  # a pipe (see Popen)
        except OSError:
            raise ConversionError(self._fate()) from None
        return self._next()

    def _next(self) -> dict[str, object]:
        try:
            with _Timeout(self._process, self._limits.wall_s):
                frame = receive(self._process.stdout)  # type: ignore[arg-type]  # a pipe (see Popen)
        except CutOffError:
            raise ConversionError(self._fate()) from None
        outcome: dict[str, object] = json.loads(frame)
        return outcome

    def _fate(self) -> str:
        """Why a process did not answer."""
        try:
            status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if status == -_signal("SIGPROF"):
            return f"takes more than {self._limits.cpu_s} s of computing"
        # By the timer here, or by the system when memory ran out: the status does not tell which.
        if status == -_signal("SIGKILL"):
            return f"takes more than {self._limits.wall_s:g} s, or more memory than there is"
        return "the converter of such files crashes on it"


class _Timeout:
    """Ends a process that has not answered in time."""

    def __init__(self, process: "subprocess.Popen[bytes]", seconds: float) -> None:
        self._timer = Timer(seconds, process.kill)
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_exc: object) -> None:
        self._timer.cancel()


def _signal(name: str) -> int:
    return int(getattr(signal, name, 0))


def _users(path: Path) -> bytes:
    """The list of users of the Slack export that a channel's day belongs to; empty without one."""
    try:
        with (path.parent.parent / "users.json").open("rb") as file:
            return file.read(_MAX_USERS_BYTES)
    except OSError:
        return b""
