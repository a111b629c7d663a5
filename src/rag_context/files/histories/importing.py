"""Takes clients' sessions into the memory: each as documents of its messages, which grow with it.

A session is cut into documents of `DOCUMENT_CHARS` from its beginning, so that of a longer one only the last document
changes. What was acknowledged is recorded by session. A recorded document that the index does not have was deleted
there, and is not sent again. A fork copies the messages before it: the session that is read first holds them, for good,
and the other one says where they are. What was deleted with one session does not come back by another.
"""

import asyncio
import fnmatch
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from rag_context.api.index import BulkLine, BulkReceipt, HistoryReceipt
from rag_context.domain import documents
from rag_context.files import descriptors, file_jobs, file_reading, folder_sync
from rag_context.files.formats.converter import SNIFFED_BYTES, Converter, format_of
from rag_context.files.formats.exchange import ConversionError, Extracted, Format, Ways
from rag_context.files.histories.databases import Connection, opened, session_lines, sessions
from rag_context.files.histories.places import AIDER, Transcript, at, local_path
from rag_context.files.histories.transcripts import CLIENTS
from rag_context.files.sending import CONCURRENCY, Job, batched, in_thread, send
from rag_context.files.target import IndexTarget
from rag_context.ports.writing import HistoryManifest

DOCUMENT_CHARS = 40_000
"""About as much of a session is one document: what is stored again when a message follows."""

MAX_BYTES = 256 << 20
"""Largest file that is read whole; of a longer one, lines above `LONG_LINE_BYTES` are left out first."""

LONG_LINE_BYTES = 1 << 20
"""Lines of so many bytes are tool output or pictures."""

READING = "2"
"""Grows when the same session becomes other documents than before: then every session is read again once."""

PAGE = 200
"""Sessions that are read together."""

_OWN_FORMATS = frozenset(client.format for client in CLIENTS) | {Format.AIDER}
_OBSERVERS = ("*/.claude-mem", "*/.claude-mem/*")
"""Folders in which other memories have a model read sessions."""

Listener = Callable[[HistoryReceipt], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which sessions are taken: `since` a time, of one `project`, by these `drivers`, but for folders to `exclude`.

    With `force` also those that were deleted here since they were imported.
    """

    since: datetime | None = None
    project: str | None = None
    drivers: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    force: bool = False


ALL = Choice()


@dataclass(slots=True)
class _Session:
    transcript: Transcript
    entry: documents.FileEntry | None
    stamp: documents.FileStamp
    read_ns: int
    deleted: frozenset[str] = frozenset()
    """Ids of documents that were deleted since they were imported."""
    digest: bytes = b""
    sent: int = 0
    kept: list[documents.FileDocument] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    redactions: Counter[str] = field(default_factory=Counter)
    shared: Mapping[str, documents.Json] = field(default_factory=dict)
    """Where its first messages are, if another session holds some: its id, and how many these are."""
    is_repeated: bool = False
    """Whether another session holds all of it."""
    failure: str | None = None
    is_read: bool = False
    receipt: HistoryReceipt = field(init=False)

    def __post_init__(self) -> None:
        transcript = self.transcript
        self.receipt = HistoryReceipt(
            status="new" if self.entry is None or not self.entry.documents else "grown",
            client=transcript.client,
            session_id=transcript.session or None,
            path=transcript.path.as_posix(),
            size=self.stamp.size,
        )

    @property
    def is_done(self) -> bool:
        return self.is_read and self.statuses.total() == self.sent

    def note(self, **changes: object) -> None:
        self.receipt = self.receipt.model_copy(update=changes)


@dataclass(frozen=True, slots=True)
class HistoryImport:
    """Brings the memory up to the sessions on this machine; a file changed within `racy_ns` is read again."""

    target: IndexTarget
    manifest: HistoryManifest
    converter: Converter
    choice: Choice
    tag: Callable[[str, str], str]
    on_receipt: Listener
    racy_ns: int = folder_sync.RACY_NS

    async def run(self, found: Iterable[Transcript]) -> None:
        """Take in what is new in some transcripts. Raises: BackendError (the next run goes on there)."""
        with ExitStack() as stack:
            one = _Pass(self, stack)
            try:
                async with aclosing(one.batches(iter(found))) as batches:
                    await send(batches, self.target, CONCURRENCY)
            finally:
                await one.save()

    async def survey(self, found: Iterable[Transcript]) -> None:
        """Report what `run` would take in, and change nothing."""
        with ExitStack() as stack:
            one = _Pass(self, stack, is_survey=True)
            async with aclosing(one.batches(iter(found))) as batches:
                async for _ in batches:
                    pass

    async def take_in(self, path: Path, cwd: str = "") -> HistoryReceipt:
        """Take in what is new in one transcript, which a hook names: only where a client keeps its sessions.

        `cwd` counts where a transcript does not say where it was written. Raises: BackendError (the next call goes on).
        """
        known = await asyncio.to_thread(at, path)
        if known is None or known.place is AIDER:
            reason = "no client keeps its sessions there"
            return HistoryReceipt(status="skipped", client="", path=str(path), reason=reason)
        received: list[HistoryReceipt] = []
        place = known.place
        if cwd:
            place = replace(place, folder=lambda file: known.place.folder(file) or cwd)
        await replace(self, on_receipt=received.append).run([replace(known, place=place)])
        default = HistoryReceipt(status="skipped", client=known.client, path=str(path), reason="no such session")
        return received[-1] if received else default


class _Pass:
    def __init__(self, histories: HistoryImport, stack: ExitStack, *, is_survey: bool = False) -> None:
        self._histories = histories
        self._stack = stack
        self._is_survey = is_survey
        self._soon = asyncio.get_running_loop().call_soon_threadsafe
        self._databases: dict[Path, Connection] = {}
        self._finished: list[documents.FileEntry] = []
        self._stale: list[str] = []
        self._surveyed: dict[str, tuple[str, str]] = {}
        choice = histories.choice
        recipe = repr((READING, DOCUMENT_CHARS, sorted(choice.drivers), choice.exclude))
        self._key = blake2b(recipe.encode(), digest_size=16).digest()

    async def batches(self, found: Iterator[Transcript]) -> AsyncGenerator[list[Job], None]:
        each = self._each(found)
        while page := await asyncio.to_thread(lambda: list(islice(each, PAGE))):
            todo = [session for session in await asyncio.to_thread(self._changed, page) if session is not None]
            for session in todo:
                if session.entry is not None and not self._histories.choice.force:
                    session.deleted = await self._deleted(session)
            async for batch in in_thread(batched(self._jobs(todo))):
                yield batch
            await self.save()

    async def save(self) -> None:
        """Record what was acknowledged, and remove what a session no longer holds."""
        finished, self._finished = self._finished, []
        stale, self._stale = self._stale, []
        if self._is_survey:
            return
        for id_ in stale:
            await self._histories.target.remove(id_)
        if finished:
            await asyncio.to_thread(self._histories.manifest.put, finished)

    def _each(self, found: Iterator[Transcript]) -> Iterator[Transcript]:
        """Transcripts, with each session of a database by itself."""
        for transcript in found:
            database = transcript.place.database
            if database is None:
                yield transcript
                continue
            try:
                listed = sessions(self._database(transcript.path), database)
            except ConversionError as error:
                self._report(transcript, "rejected", f"{error}")
                continue
            for id_, version in listed:
                if transcript.session in ("", id_):
                    yield replace(transcript, session=id_, version=version)

    def _database(self, path: Path) -> Connection:
        # One copy serves a whole run: a client may write to a large one all the time.
        if path not in self._databases:
            self._databases[path] = self._stack.enter_context(opened(path))
        return self._databases[path]

    def _changed(self, page: Sequence[Transcript]) -> list[_Session | None]:
        entries = self._histories.manifest.entries([each.key for each in page])
        return [self._session(each, entries.get(each.key)) for each in page]

    def _session(self, transcript: Transcript, entry: documents.FileEntry | None) -> _Session | None:
        choice, stamp = self._histories.choice, documents.FileStamp(0, transcript.version, 0, 0)
        if not transcript.session:
            try:
                stamp = file_reading.stamp_of(transcript.path.stat())
            except OSError as error:
                self._report(transcript, "rejected", f"cannot be read: {error.strerror}")
                return None
            if choice.since is not None and stamp.modified_ns < choice.since.timestamp() * 1e9:
                self._report(transcript, "skipped", "older")
                return None
        if entry is not None and entry.digest and entry.settings_hash == self._key and not choice.force:
            newest = max(stamp.modified_ns, stamp.changed_ns)
            is_racy = not transcript.session and newest + self._histories.racy_ns >= entry.read_ns
            if stamp == entry.stamp and not is_racy:
                self._report(transcript, "unchanged" if entry.documents else "skipped")
                return None
        return _Session(transcript, entry, stamp, time.time_ns())

    async def _deleted(self, session: _Session) -> frozenset[str]:
        """Documents that were deleted since; none if the index is empty, which is then another one."""
        known = {each.id: each.source for each in session.entry.documents} if session.entry is not None else {}
        if not known:
            return frozenset()
        first = min(known.values(), key=len)
        prefix = first if all(source.startswith(first) for source in known.values()) else first.partition(":")[0]
        there = {id_ async for _, id_ in self._histories.target.sources(prefix)}
        deleted = known.keys() - there
        if deleted:
            async for _ in self._histories.target.sources(""):
                return frozenset(deleted)
        return frozenset()

    # In a thread

    def _jobs(self, todo: Sequence[_Session]) -> Iterator[Job]:
        for session in todo:
            try:
                yield from self._documents(session)
            except ConversionError as error:
                reason = "all its messages are in another session" if session.is_repeated else str(error)
                session.note(status="skipped" if error.expected else "rejected", reason=reason)
                if not error.expected:
                    session.digest = b""
            self._soon(partial(self._read, session))

    def _documents(self, session: _Session) -> Iterator[Job]:
        histories, transcript = self._histories, session.transcript
        format_, data = self._loaded(session)
        session.digest = blake2b(data, digest_size=16).digest()
        entry, choice = session.entry, histories.choice
        old = entry.documents if entry is not None else ()
        if (
            entry is not None
            and (entry.digest, entry.settings_hash) == (session.digest, self._key)
            and not choice.force
        ):
            session.kept = [each for each in old if each.id not in session.deleted]
            session.note(status="unchanged")
            return
        # All of it was deleted: what is said in it from now on stays out, too.
        is_deleted = bool(old) and len(session.deleted) == len(old)
        ways = Ways(DOCUMENT_CHARS, choice.drivers)
        extracted = list(histories.converter.documents(format_, transcript.path, data, ways))
        folder = local_path(extracted[0].folder) or local_path(transcript.place.folder(transcript.path))
        tag = histories.tag(folder, extracted[0].remote)
        ended = max((at_ for each in extracted for _, at_ in each.message_times), default=None)
        reason = self._left_out(tag, folder, _written(session) if ended is None else documents.moment(ended))
        if not reason and (repeated := self._held_elsewhere(session, extracted[0], tag)):
            ways = replace(ways, repeated=repeated)
            extracted = list(histories.converter.documents(format_, transcript.path, data, ways))
        for each in extracted:
            self._count(session, each, tag, folder)
        if reason or is_deleted:
            session.note(status="skipped" if reason else "deleted", reason=reason or None)
        elif not self._is_survey:
            for each in extracted:
                document = _document(each, session, tag)
                if documents.document_id(document) in session.deleted:
                    continue
                line = file_jobs.bulk_line(document, defer=True)
                if isinstance(line, file_reading.Rejected):
                    session.note(status="rejected", reason=line.reason)
                    continue
                session.sent += 1
                yield Job(line, partial(self._done, session, line))

    def _held_elsewhere(self, session: _Session, extracted: Extracted, tag: str) -> list[int]:
        """Which of a session's messages another one holds; from now on it holds the others itself."""
        own, client = f"{session.transcript.client}:{extracted.session_id}", session.transcript.client
        keys = [key and blake2b(f"{client} {tag} {key}".encode(), digest_size=16).hexdigest() for key in extracted.keys]
        holders = self._holders(own, session.transcript.key, set(filter(None, keys)))
        others = [number for number, key in enumerate(keys) if holders.get(key, (own, ""))[0] != own]
        if others:
            last = holders[keys[others[-1]]][0].partition(":")[2]
            session.shared = {"continues": last, "repeated": len(others)}
            session.is_repeated = len(others) == len(keys)
            session.note(session_id=extracted.session_id)
        return others

    def _holders(self, own: str, path: str, keys: set[str]) -> dict[str, tuple[str, str]]:
        manifest = self._histories.manifest
        if self._is_survey:
            return {key: self._surveyed.setdefault(key, (own, path)) for key in keys} | manifest.holders(keys)
        manifest.claim(own, path, keys)
        holders = manifest.holders(keys)
        others = {holder for _, holder in holders.values() if holder != path}
        # One that was never taken in to its end, and is gone: its messages would be nowhere.
        unknown = others - manifest.entries(others).keys()
        if lost := [each for each in unknown if not Path(each.partition("#")[0]).exists()]:
            manifest.release(lost)
            return self._holders(own, path, keys)
        return holders

    def _loaded(self, session: _Session) -> tuple[Format, bytes]:
        transcript = session.transcript
        if (database := transcript.place.database) is not None:
            data = session_lines(self._database(transcript.path), database, transcript.session)
            session.note(size=len(data))
            return Format.ROWS, data
        data = _file(transcript.path)
        format_ = format_of(transcript.path.name, data[:SNIFFED_BYTES])
        if format_ not in _OWN_FORMATS:
            raise ConversionError("not a conversation of this client", expected=True)
        return format_, data

    def _left_out(self, tag: str, folder: str, ended: datetime | None) -> str:
        choice = self._histories.choice
        if any(fnmatch.fnmatch(folder.replace("\\", "/"), pattern) for pattern in (*choice.exclude, *_OBSERVERS)):
            return "its folder is excluded"
        if choice.project is not None and tag != choice.project:
            return "of another project"
        if choice.since is not None and ended is not None and ended < choice.since:
            return "older"
        return ""

    def _count(self, session: _Session, extracted: Extracted, tag: str, folder: str) -> None:
        receipt = session.receipt
        times = [documents.moment(at_) for _, at_ in extracted.message_times]
        turns = extracted.extra.get("turns", 0)
        starts = [each for each in (receipt.started_at, *times) if each is not None]
        ends = [each for each in (receipt.ended_at, *times) if each is not None]
        session.note(
            session_id=extracted.session_id or receipt.session_id,
            project=tag,
            folder=folder or None,
            messages=receipt.messages + (turns if isinstance(turns, int) else 0),
            documents=receipt.documents + 1,
            started_at=min(starts, default=None),
            ended_at=max(ends, default=None),
            left_out=dict(Counter(receipt.left_out or {}) + Counter(extracted.left_out)) or None,
        )

    # On the event loop

    def _report(self, transcript: Transcript, status: str, reason: str | None = None) -> None:
        receipt = HistoryReceipt.model_validate(
            {"status": status, "client": transcript.client, "path": transcript.path.as_posix(), "reason": reason}
        ).model_copy(update={"session_id": transcript.session or None})
        self._soon(self._histories.on_receipt, receipt)

    def _done(self, session: _Session, line: BulkLine, receipt: BulkReceipt) -> None:
        session.statuses[receipt.status] += 1
        session.redactions.update(receipt.redactions or {})
        if receipt.status == "rejected":
            session.failure = receipt.reason
        else:
            session.kept.append(
                documents.FileDocument(line.source, receipt.document_id or "", receipt.content_hash or "")
            )
        if session.is_done:
            self._finish(session)

    def _read(self, session: _Session) -> None:
        session.is_read = True
        if session.is_done:
            self._finish(session)

    def _finish(self, session: _Session) -> None:
        entry = session.entry
        old = entry.documents if entry is not None else ()
        kept = {each.id for each in session.kept}
        gone = [each for each in old if each.id in session.deleted]
        rest = [each for each in old if each.id not in kept and each.id not in session.deleted]
        is_whole = not session.statuses["rejected"] and bool(session.digest)
        if session.statuses["rejected"]:
            session.note(status="rejected", reason=session.failure)
        elif entry is not None and session.statuses.keys() <= {"unchanged"} and session.receipt.status == "grown":
            session.note(status="unchanged")
        session.note(redactions=dict(session.redactions) or None)
        self._histories.on_receipt(session.receipt)
        is_filtered = session.receipt.reason in ("older", "of another project")
        if is_filtered:
            return  # another run may want it
        if is_whole and (session.is_repeated or session.receipt.status != "skipped"):
            self._stale += [each.id for each in rest]
            rest = []
        self._finished.append(
            documents.FileEntry(
                path=session.transcript.key,
                stamp=session.stamp,
                read_ns=session.read_ns,
                digest=session.digest if is_whole else b"",
                settings_hash=self._key,
                is_named=False,
                documents=(*session.kept, *gone, *rest),
            )
        )


def _written(session: _Session) -> datetime | None:
    """When a file was changed last: the time of messages that have none."""
    return None if session.transcript.session else documents.moment(session.stamp.modified_ns // 1000)


def _document(extracted: Extracted, session: _Session, tag: str) -> documents.DocumentInput:
    client, id_ = session.transcript.client, extracted.session_id or ""
    number = extracted.part.removeprefix(id_).lstrip("-")
    source = f"{client}:{id_}" + (f"#{number}" if number else "")
    metadata = documents.Metadata(agent=client, tags=(tag,), extra={} if number else session.shared)
    document = file_reading.converted_input(extracted, extracted.content_type, id_, source, metadata)
    return replace(document, occurred_at=document.occurred_at or _written(session))


def _file(path: Path) -> bytes:
    """The bytes of a file; of a very long one without its longest lines. Raises: ConversionError."""
    try:
        with os.fdopen(descriptors.open_file(path), "rb") as file:
            data = file.read(MAX_BYTES + 1)
            if len(data) <= MAX_BYTES:
                return data
            file.seek(0)
            kept, size = [], 0
            while line := file.readline(LONG_LINE_BYTES):
                is_long = not line.endswith(b"\n")
                while is_long and line and not line.endswith(b"\n"):
                    line = file.readline(LONG_LINE_BYTES)
                if not is_long:
                    kept.append(line)
                    size += len(line)
                    if size > MAX_BYTES:
                        raise ConversionError(f"holds more than {MAX_BYTES} bytes")
            return b"".join(kept)
    except descriptors.NotRegularError as error:
        raise ConversionError("not a regular file", expected=True) from error
    except OSError as error:
        raise ConversionError(f"cannot be read: {error.strerror}") from error
