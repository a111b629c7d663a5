"""Documents are prepared by bounded processes: one interpreter would bind a folder of thousands of files to one core.

A request is one frame, a pickled `Task`; the answer is two, rows as JSON and the packed terms of all chunks. Nothing
that comes back is trusted as code, and ids of documents are computed here. What a process cannot do, or must not decide
(a text with secrets, an error), it leaves to its parent, which prepares that document itself.
"""

import asyncio
import json
import logging
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from rag_context.domain.documents import Chunk, DocumentInput, Origin, Span, microseconds, moment
from rag_context.domain.text import packed_terms, terms
from rag_context.ingest.chunking.code import REUSED_CHARS
from rag_context.ingest.submissions import Identified, Prepared, Task, identified, prepared, stored_document
from rag_context.ports.models import Tokenizer
from rag_context.resilience.confinement import CutOffError, ProcessLimits, confine, receive, renew, send
from rag_context.resilience.worker_processes import WorkerFailedError, WorkerProcesses

logger = logging.getLogger(__name__)

LIMITS = ProcessLimits(cpu_s=30, wall_s=180.0, memory_bytes=640 << 20, niceness=4)
"""Of one request. Memory is address space, much of which libraries map and never use. Less niceness than others have:
beside the programs of a busy machine a folder would hardly get on."""

KEPT_IDLE_S = 10.0
"""After so long without a task the processes end, and give back their memory."""

ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
"""The environment of a process: it is one of as many as there are cores, and threads of its own map much memory."""


class PreparingProcesses(AbstractContextManager["PreparingProcesses"]):
    """At most `workers` processes, which run `module`, start with the first task and end once none comes."""

    def __init__(
        self, module: str, *, workers: int, limits: ProcessLimits = LIMITS, kept_idle_s: float = KEPT_IDLE_S
    ) -> None:
        self._kept_idle_s = kept_idle_s
        self._resting: asyncio.TimerHandle | None = None
        self._processes = WorkerProcesses(module, limits, workers=workers, environment=ENVIRONMENT)
        # Threads wait for a process that answers, and never for one that is free: others need them too.
        self._turns = asyncio.Semaphore(workers)

    def __exit__(self, *_exc: object) -> None:
        if self._resting is not None:
            self._resting.cancel()
        self._processes.close()

    async def prepared(self, task: Task) -> list[Identified | None]:
        if sum(len(each.content) for each in task.documents) > REUSED_CHARS:
            return [None] * len(task.documents)
        async with self._turns:
            try:
                return await asyncio.to_thread(self._answer, task)
            finally:
                if self._resting is not None:  # of an earlier task: the processes would end while others follow
                    self._resting.cancel()
                loop = asyncio.get_running_loop()
                ended = partial(loop.run_in_executor, None, self._processes.end_idle)
                self._resting = loop.call_later(self._kept_idle_s, ended)

    def _answer(self, task: Task) -> list[Identified | None]:
        try:
            with self._processes.worker() as worker:
                rows, packed = worker.request(pickle.dumps(task)), worker.next_frame()
                worker.is_ready = True
        except WorkerFailedError as error:
            logger.warning("%d documents are prepared in this process: %s", len(task.documents), error)
            return [None] * len(task.documents)
        found: list[Any] = json.loads(rows)
        sizes = [size for row in found if row is not None for *_, size in row[-1]]
        blobs = iter([packed[start:end] for start, end in pairwise(accumulate(sizes, initial=0))])
        return [
            None if row is None else _received(document, row, [next(blobs) for _ in row[-1]], task)
            for document, row in zip(task.documents, found, strict=True)
        ]


def serve(limits: ProcessLimits, load: Callable[[Path], Tokenizer]) -> None:
    """Answer tasks on standard input until it ends: the process."""
    confine(limits)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    tokenizers: dict[Path, Tokenizer] = {}
    while True:
        try:
            task: Task = pickle.loads(receive(requests))  # noqa: S301  # from the parent, which starts this process
        except CutOffError:
            return
        renew(limits)
        tokenizer = tokenizers.setdefault(task.tokenizer, tokenizers.get(task.tokenizer) or load(task.tokenizer))
        packed: list[bytes] = []
        rows = [_row(document, task, tokenizer, packed) for document in task.documents]
        send(answers, json.dumps(rows).encode(), b"".join(packed))


def _row(document: DocumentInput, task: Task, tokenizer: Tokenizer, packed: list[bytes]) -> list[object] | None:
    # Whatever fails fails in the parent too, with the error that the caller gets.
    with suppress(Exception):
        known = identified(document, task.redactor)
        if known.redactions:
            return None
        done = prepared(known, tokenizer, task.window, task.now)
        counted = done.terms or [packed_terms(terms(chunk.searchable)) for chunk in done.chunks]
        chunks = [_chunk_row(chunk, *each) for chunk, each in zip(done.chunks, counted, strict=True)]
        packed += [words for _, words in counted]
        made = done.document
        return [known.document.origin, made.title, microseconds(made.occurred_at), made.similarity_hash, chunks]
    return None


def _chunk_row(chunk: Chunk, length: int, words: bytes) -> list[object]:
    span = chunk.span
    return [
        *(chunk.id, span.start, span.end, span.start_line, span.end_line, span.heading, chunk.context),
        *(microseconds(chunk.occurred_at), chunk.speaker, chunk.origin, chunk.is_standing, length, len(words)),
    ]


def _received(document: DocumentInput, row: list[Any], packed: Sequence[bytes], task: Task) -> Identified:
    origin, title, occurred, similarity, rows = row
    known = identified(replace(document, origin=Origin(origin)), None)
    made = stored_document(known, task.now, title, moment(occurred), similarity)
    chunks = []
    for position, (id_, start, end, first_line, last_line, heading, context, at, *said) in enumerate(rows):
        speaker, whose, is_standing, _length, _size = said
        span = Span(start, end, first_line, last_line, heading)
        chunk = Chunk(
            *(id_, known.id, position, document.content[start:end], span, context),
            occurred_at=moment(at),
            speaker=speaker,
            origin=Origin(whose),
            is_standing=is_standing,
        )
        chunks.append(chunk)
    lengths = [length for *_, length, _size in rows]
    return replace(known, prepared=Prepared(made, chunks, task.window, list(zip(lengths, packed, strict=True))))
