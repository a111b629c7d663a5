"""The result of checking an index, and the kinds of issues."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from rag_context.domain.documents import Counts

EXAMPLES = 5
"""Examples that are listed for each kind of issue."""

COMPARED = 20_000
"""Chunks of a larger index whose terms are compared in a quick examination, evenly spread."""


class Thoroughness(StrEnum):
    """How closely an index is examined."""

    QUICK = "quick"
    """While the index is in use; writers do not wait."""

    FULL = "full"
    """Every page, every term; writers wait while the text index is compared."""


class IssueKind(StrEnum):
    """The kinds of damage and inconsistency of an index."""

    DAMAGED_FILE = "damaged-file"
    WRONG_COUNTERS = "wrong-counters"
    ORPHANS = "orphans"
    LOST_CONTENT = "lost-content"
    CHANGED_CONTENT = "changed-content"
    WRONG_ID = "wrong-id"
    WRONG_TAGS = "wrong-tags"
    BROKEN_CHUNKS = "broken-chunks"
    MISSING_VECTORS = "missing-vectors"
    BAD_VECTORS = "bad-vectors"
    STALE_VECTORS = "stale-vectors"
    NO_MODEL = "no-model"
    STALE_TERMS = "stale-terms"
    TEXT_INDEX = "text-index"
    STATISTICS = "statistics"


DAMAGED = frozenset({IssueKind.LOST_CONTENT, IssueKind.CHANGED_CONTENT})
"""Issues that only indexing the source of a document again repairs."""


@dataclass(frozen=True, slots=True)
class Issue:
    """A kind of issue, how often it occurs, and a few examples (ids where there are some)."""

    kind: IssueKind
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class IntegrityReport:
    """What an examination of an index found."""

    counts: Counts
    compared_terms: int
    """Of how many chunks the stored terms were compared with the analyser's; a sample of a large index."""
    issues: tuple[Issue, ...]
    broken: tuple[str, ...] = ()
    """Ids of all documents whose chunks are broken."""
    damaged: tuple[str, ...] = ()
    """Ids of all documents whose content is lost, damaged or changed."""


class Findings:
    """Counts issues and keeps a few examples of each kind."""

    def __init__(self) -> None:
        self._counts: Counter[IssueKind] = Counter()
        self._examples: dict[IssueKind, list[str]] = {}

    def add(self, kind: IssueKind, example: str) -> None:
        """Count an issue."""
        self._counts[kind] += 1
        examples = self._examples.setdefault(kind, [])
        if len(examples) < EXAMPLES:
            examples.append(example)

    def issues(self) -> tuple[Issue, ...]:
        """What was found, in the order of the kinds."""
        return tuple(
            Issue(kind, self._counts[kind], tuple(self._examples[kind])) for kind in IssueKind if kind in self._counts
        )
