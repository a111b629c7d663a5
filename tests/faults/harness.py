"""A memory over servers of its own, with documents in it."""

import gc
import itertools
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.end_to_end.process import Served, served, wait_until
from tests.faults.backends import Backends, Role, backends
from tests.torture.acknowledged import ExpectedSource, Version, compose
from tests.torture.verify import find_losses

RELAXED_DEADLINE = {"RAG_CONTEXT_SEARCH__DEADLINE_MS": "1500"}
"""Tests look at what is answered and how it is labelled; how fast that is on a machine of its own is measured."""

DOCUMENTS = 12
ALL = 20
"""Limit of a search, so that every document is a result."""


@dataclass
class MemoryHarness:
    """The memory, the settings that it has its servers by, and what was promised of its documents."""

    memory: Served
    settings: Mapping[str, str]
    data_dir: Path
    expected_sources: dict[str, ExpectedSource] = field(default_factory=dict, kw_only=True)
    _numbers: Iterator[int] = field(default_factory=itertools.count, kw_only=True)

    def fill(self) -> None:
        """Index the first documents, and wait until everything works."""
        self.wait_healthy()
        for number in range(DOCUMENTS):
            self.write(f"entry{number}q")
        self.wait_healthy()

    def wait_healthy(self) -> None:
        """Wait until everything works and nothing is pending; it gets there by itself or not at all."""
        wait_until(self._is_healthy)

    def question(self, about: Version) -> str:
        """A new question, so that no cache has the answer."""
        return f"What does the entry {about.marker} say? Question number {next(self._numbers)}."

    def rare_question(self, about: Version) -> str:
        """As `question`, in terms that no other document contains: the stub for MongoDB is slow with common ones."""
        return f"{about.marker} number{next(self._numbers)}"

    def search(self, about: Version, **fields: Any) -> dict[str, Any]:
        """Ask for all there is, that document among it."""
        return self.memory.search(self.question(about), minScore=0, limit=ALL, **fields)

    def write(self, source: str, padding: str = "") -> tuple[Version, Any]:
        """Index a new document that ends with `padding`, promised once acknowledged; returns it and the reply."""
        expected_source = self.expected_sources.get(source) or ExpectedSource(source)
        version = compose(source, next(self._numbers), random.Random(source))
        version = replace(version, content=version.content + padding)
        self.expected_sources[source] = expected_source
        expected_source.sent.append(version)
        reply = self.memory.tool(
            "index", {"content": version.content, "contentType": "documentation", "sessionId": "s", "source": source}
        )
        if reply.status_code == 200:
            expected_source.acknowledge(version, reply.json()["documentId"])
        return version, reply

    def losses(self) -> list[str]:
        """What is not as it was promised: found by text and by vector, once, in its last version."""
        return find_losses(self.memory, self.expected_sources.values())

    def known(self) -> Version:
        """A document that is there for certain."""
        return next(
            expected_source.stored
            for expected_source in self.expected_sources.values()
            if expected_source.stored and not expected_source.sent
        )

    def _is_healthy(self) -> bool:
        report = self.memory.health()
        fine = all(component["status"] == "healthy" for component in report["components"])
        return fine and report["pendingDocuments"] == 0


@dataclass
class FaultHarness(MemoryHarness):
    """A memory over four servers."""

    backends: Backends


@contextmanager
def harness(folder: Path, **settings: str) -> Iterator[FaultHarness]:
    """A healthy memory over servers of its own, all stopped with the block."""
    data_dir = folder / "data"
    data_dir.mkdir()
    gc.freeze()  # the proxies run in this process, and its pauses would count as theirs
    with backends(folder) as behind, served(data_dir, **behind.settings, **settings) as memory:
        made = FaultHarness(memory, behind.settings, data_dir, behind)
        made.fill()
        yield made


@contextmanager
def beside(made: FaultHarness, folder: Path, **settings: str) -> Iterator[FaultHarness]:
    """Another memory over the same servers, with the same documents; not waited for."""
    with served(folder, **made.settings, **settings) as memory:
        yield FaultHarness(memory, made.settings, folder, made.backends, expected_sources=made.expected_sources)


def component(report: dict[str, Any], role: Role) -> dict[str, Any]:
    """What a health report says of one server."""
    (found,) = [each for each in report["components"] if each["name"] == role]
    return dict(found)
