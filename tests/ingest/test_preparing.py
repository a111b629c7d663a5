"""Documents that other processes prepared are those that this one would have prepared."""

import asyncio
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rag_context.domain.documents import CHAT, CODE, DOCUMENTATION, Channel, DocumentInput, Metadata, Tenant
from rag_context.domain.text import packed_terms, terms
from rag_context.embedders.model_tokenizer import ModelTokenizer
from rag_context.embedders.onnx_model import BUNDLED
from rag_context.ingest.chunking.syntax import marks
from rag_context.ingest.preparing import PreparingProcesses
from rag_context.ingest.redaction import Redactor
from rag_context.ingest.submissions import Identified, Preparation, Prepared, Submission, Task, identified, prepared
from rag_context.resilience.confinement import ProcessLimits
from rag_context.testing.fakes import FakeEmbedder, WordTokenizer

NOW = datetime(2026, 3, 4, tzinfo=UTC)
TOKENIZER = BUNDLED / "tokenizer.json"
MODULE = "rag_context.wiring.preparing"
SOURCE = "".join(f"class Größe{n}:\n    def f{n}(self):\n        return 'é🙂'\n\n" for n in range(200))

DOCUMENTS = [
    DocumentInput(SOURCE, CODE, "files", "/a/größe.py", channel=Channel.FILE),
    DocumentInput("# Pump\n\nIt runs.\n\n## When\n\nOn Monday.\n" * 30, DOCUMENTATION, "files", "/a/pump.md"),
    DocumentInput("User: hello\n\nAssistant: Good day.\n" * 40, CHAT, "talk", "chat", Metadata(tags=("x",))),
    DocumentInput(
        "---\nsummary: About pumps\n---\n# Pump\n\nIt runs.\n",
        DOCUMENTATION,
        "files",
        "pump.md",
        Metadata(extra={"summary": "About pumps"}),
        Tenant("p", "main", "0" * 16),
    ),
    DocumentInput("", DOCUMENTATION, "files", "empty.md"),
]
SECRET = DocumentInput("password = 'hunter2xyzQ'", DOCUMENTATION, "files", "secret.md")


def task(documents: Sequence[DocumentInput] = DOCUMENTS) -> Task:
    return Task(TOKENIZER, 254, Redactor(), NOW, documents)


def here(document: DocumentInput) -> Identified:
    known = identified(document, Redactor())
    made = prepared(known, ModelTokenizer(TOKENIZER), 254, NOW)
    return replace(known, prepared=replace(made, terms=[packed_terms(terms(each.searchable)) for each in made.chunks]))


async def test_a_process_prepares_as_this_one() -> None:
    with PreparingProcesses(MODULE, workers=1) as processes:
        assert await processes.prepared(task()) == [here(document) for document in DOCUMENTS]


async def test_a_document_with_secrets_is_left_to_this_process() -> None:
    with PreparingProcesses(MODULE, workers=1) as processes:
        first, secret, last = await processes.prepared(task([DOCUMENTS[1], SECRET, DOCUMENTS[0]]))
    assert secret is None
    assert [first, last] == [here(DOCUMENTS[1]), here(DOCUMENTS[0])]


async def test_what_a_process_cannot_do_is_left_to_this_one(caplog: pytest.LogCaptureFixture) -> None:
    little = ProcessLimits(cpu_s=10, wall_s=60.0, memory_bytes=16 << 20)
    with PreparingProcesses(MODULE, workers=1, limits=little) as processes, caplog.at_level(logging.WARNING):
        assert await processes.prepared(task()) == [None] * len(DOCUMENTS)
        assert "prepared in this process" in caplog.text


async def test_processes_without_a_task_end_and_start_again() -> None:
    with PreparingProcesses(MODULE, workers=1, kept_idle_s=0.0) as processes:
        once = await processes.prepared(task())
        (worker,) = processes._processes._idle
        await asyncio.to_thread(worker._process.wait, 30)
        assert await processes.prepared(task()) == once


async def test_processes_that_have_tasks_go_on() -> None:
    with PreparingProcesses(MODULE, workers=2, kept_idle_s=1.0) as processes:
        seen: set[int] = set()

        async def ask() -> None:
            end = time.monotonic() + 3.0
            while time.monotonic() < end:
                await processes.prepared(task(DOCUMENTS[1:2]))
                seen.update(worker._process.pid for worker in processes._processes._idle)
                await asyncio.sleep(0.02)  # the other's task ends meanwhile

        await asyncio.gather(ask(), ask())
    assert len(seen) in (1, 2)


_KILLED = """
import asyncio, os, signal
from tests.ingest.test_preparing import MODULE, PreparingProcesses, task

async def main():
    with PreparingProcesses(MODULE, workers=1) as processes:
        await processes.prepared(task())
        print(processes._processes._idle[0]._process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a process that is not its child")
def test_no_process_outlives_one_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", _KILLED], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        watched = os.pidfd_open(int(parent.stdout.readline()))  # while its parent lives, or as a zombie
        try:
            assert select.select([watched], [], [], 30.0)[0]
        finally:
            os.close(watched)
    assert parent.returncode == -signal.SIGKILL


class Ahead:
    """Notes its tasks, and leaves the first document of each task to its caller."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    async def __call__(self, task: Task) -> list[Identified | None]:
        self.tasks.append(task)
        return [None, *(replace(here(each), redactions={"ahead": 1}) for each in task.documents[1:])]


class OnFile(WordTokenizer):
    path = TOKENIZER


def preparation(ahead: Ahead, tokenizer: WordTokenizer) -> Preparation:
    embedder = FakeEmbedder()
    embedder.tokenizer = tokenizer
    return Preparation(embedder, 254, Redactor(), lambda: NOW, marks, ahead)


async def test_only_documents_whose_vectors_are_deferred_are_prepared_ahead() -> None:
    ahead = Ahead()
    preparing = preparation(ahead, OnFile())
    known = await preparing.identified([Submission(each, defer_vectors=True) for each in DOCUMENTS[:3]])
    assert [isinstance(each, Identified) and bool(each.redactions) for each in known] == [False, True, True]
    made = await preparing.prepared([each for each in known if isinstance(each, Identified)])
    assert [isinstance(each, Prepared) and each.document.source for each in made] == [
        "/a/größe.py",
        "/a/pump.md",
        "chat",
    ]
    assert [isinstance(each, Prepared) and each.terms is not None for each in made] == [False, True, True]
    await preparing.identified([Submission(DOCUMENTS[0], defer_vectors=True), Submission(DOCUMENTS[1])])
    await preparing.identified([Submission(DOCUMENTS[0], ("another",), defer_vectors=True)])
    await preparation(ahead, WordTokenizer()).identified([Submission(DOCUMENTS[0], defer_vectors=True)])
    assert len(ahead.tasks) == 1


async def test_one_secret_in_a_batch_is_masked_and_the_others_are_as_alone() -> None:
    batch = [Submission(each) for each in (*DOCUMENTS[:3], SECRET, DocumentInput("`ok`", DOCUMENTATION, "s", "ok.md"))]
    known = await preparation(Ahead(), WordTokenizer()).identified(batch)
    assert known == [identified(each.document, Redactor()) for each in batch]
    masked = known[3]
    assert isinstance(masked, Identified)
    assert masked.redactions
    assert "hunter2xyzQ" not in masked.document.content


async def test_terms_of_a_document_that_is_one_chunk_are_those_of_the_chunk() -> None:
    whole = DocumentInput("The pump runs on Mondays.", CHAT, "s", "talk")
    for document in (whole, *DOCUMENTS[:3]):
        made = prepared(identified(document, None), ModelTokenizer(TOKENIZER), 254, NOW)
        counted = [packed_terms(terms(each.searchable)) for each in made.chunks]
        assert made.terms == (counted if document is whole else None)
