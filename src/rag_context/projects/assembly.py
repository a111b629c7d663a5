"""Assembles documents into one text for a model: three sections, each document under a heading with its path. Pure.

The text of a document is always below its heading, so that the source of every sentence is clear. The token budget
is divided among the documents: one that needs less than its share is included as a whole, and the rest of its share
goes to the others; one that needs more is represented by its best parts.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rag_context.projects.excerpts import LEAST_TOKENS, Rendered
from rag_context.projects.records import LinkedDocument, RetrievedDocument

TITLE_CHARS = 300

UNBOUNDED_EXCERPT_TOKENS = 2_000
"""The size of an excerpt of a document that cannot be included as a whole, if there is no budget."""

EXCERPT_LINE_TOKENS = 96
"""The approximate cost of the line above an excerpt, with its line numbers and what is left out."""

LEAST_SHARE = 240
"""A document whose share would be smaller is left out, in favour of those before it."""

MAX_RANGES = 6
"""The most ranges of lines in the line above an excerpt."""

Count = Callable[[str], int]
"""Counts the tokens of a text."""


class Section(StrEnum):
    """The parts of a context, in their order."""

    CRITICAL = "## Critical Context (Always Relevant)"
    RELEVANT = "## Retrieved Context (By Relevance)"
    LINKED = "## Related Context (Linked Documents)"


WEIGHTS = {Section.CRITICAL: 3.0, Section.RELEVANT: 5.0, Section.LINKED: 2.0}
"""Weights of the sections when a budget is divided. Within a section the nth document weighs 1/sqrt(n): the first
ones get more, and the later ones still get something."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A document for a context. `whole` None: it is too large, or was not rendered in time."""

    section: Section
    document: RetrievedDocument
    whole: Rendered | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """An entry with its share of the budget: `tokens` for an excerpt, None for the whole document."""

    entry: Entry
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Assembled:
    """A context. `omitted` are the paths of the documents that did not fit the budget, in their order."""

    text: str
    tokens: int
    critical: tuple[RetrievedDocument, ...]
    relevant: tuple[RetrievedDocument, ...]
    linked: tuple[LinkedDocument, ...]
    omitted: tuple[str, ...]


def distinct(entries: Sequence[Entry]) -> list[Entry]:
    """The entries without repeated documents; the first entry of each is kept."""
    return list({entry.document.path: entry for entry in reversed(entries)}.values())[::-1]


def allocate(entries: Sequence[Entry], count: Count, max_tokens: int | None) -> list[Slot]:
    """Divide the budget: which documents are included, whole or with how many tokens. The others do not fit.

    The most relevant document is always included.

    Args:
        entries: by section, in the order of their rank.
        count: counts tokens.
        max_tokens: most tokens of the whole context; None: no bound.
    """
    if max_tokens is None:
        return [Slot(entry, None if entry.whole is not None else UNBOUNDED_EXCERPT_TOKENS) for entry in entries]
    heads = {id(entry): _cost(entry, count) for entry in entries}
    alone = {section: max_tokens - count(section) for section in Section}
    left = [entry for entry in entries if _fits_alone(entry, heads[id(entry)], alone[entry.section])]
    while left:
        headings = sum(count(section) for section in {entry.section for entry in left})
        needs = [heads[id(e)] + e.whole.tokens if e.whole is not None else math.inf for e in left]
        shares = _filled(needs, _weights(left), max_tokens - headings)
        starving = [i for i, need in enumerate(needs) if shares[i] < min(need, LEAST_SHARE)]
        if not starving or len(left) == 1:
            return [
                Slot(entry, None if share >= need else int(share) - heads[id(entry)] - EXCERPT_LINE_TOKENS)
                for entry, share, need in zip(left, shares, needs, strict=True)
            ]
        left.remove(_least(left))
    return []


def assemble(shown: Sequence[Entry], candidates: Sequence[Entry], count: Count, max_tokens: int | None) -> Assembled:
    """Assemble the text of a context.

    Args:
        shown: the documents to include, each with its text or excerpt as `whole`.
        candidates: all documents, to list those that are omitted.
        count: counts the tokens of headings.
        max_tokens: most tokens; what does not fit is omitted.
    """
    rule = count("---")
    spent = 0
    parts: list[str] = []
    kept: dict[Section, list[RetrievedDocument]] = {section: [] for section in Section}
    for entry in sorted(shown, key=lambda each: list(Section).index(each.section)):
        if entry.whole is None:
            continue
        opening = "" if kept[entry.section] else f"{entry.section}\n\n"
        document = replace(entry.document, is_excerpt=bool(entry.whole.lines))
        head = f"{opening}{_head(document, entry.whole)}"
        tokens = count(head) + entry.whole.tokens + rule
        if max_tokens is None or spent + tokens <= max_tokens:
            spent += tokens
            kept[entry.section].append(document)
            parts.append(f"{head}\n{entry.whole.text}\n\n---\n\n")
    included = {document.path for documents in kept.values() for document in documents}
    return Assembled(
        text="".join(parts).rstrip("\n") + "\n" if parts else "",
        tokens=spent,
        critical=tuple(kept[Section.CRITICAL]),
        relevant=tuple(kept[Section.RELEVANT]),
        linked=tuple(document for document in kept[Section.LINKED] if isinstance(document, LinkedDocument)),
        omitted=tuple(entry.document.path for entry in candidates if entry.document.path not in included),
    )


def _fits_alone(entry: Entry, head: int, budget: int) -> bool:
    """Whether a document would fit a context of its own, at least as an excerpt."""
    whole = entry.whole.tokens if entry.whole is not None else math.inf
    return head + min(whole, EXCERPT_LINE_TOKENS + LEAST_TOKENS) <= budget


def _cost(entry: Entry, count: Count) -> int:
    """The tokens of a document's heading and separator."""
    return count(_head(entry.document, None)) + count("---")


def _filled(needs: Sequence[float], weights: Sequence[float], budget: float) -> list[float]:
    """Shares of a budget: none is larger than its need, and the rest goes to the others by weight."""
    shares = [0.0] * len(needs)
    waiting = set(range(len(needs)))
    while waiting:
        total = sum(weights[i] for i in waiting)
        satisfied = {i for i in waiting if needs[i] <= budget * weights[i] / total}
        if not satisfied:
            for i in waiting:
                shares[i] = budget * weights[i] / total
            break
        for i in satisfied:
            shares[i] = needs[i]
        budget -= sum(needs[i] for i in satisfied)
        waiting -= satisfied
    return shares


def _weights(entries: Sequence[Entry]) -> list[float]:
    raw: list[float] = []
    seen: dict[Section, int] = dict.fromkeys(Section, 0)
    for entry in entries:
        seen[entry.section] += 1
        raw.append(1.0 / math.sqrt(seen[entry.section]))
    totals = {
        section: sum(weight for entry, weight in zip(entries, raw, strict=True) if entry.section is section)
        for section in Section
    }
    return [WEIGHTS[entry.section] * weight / totals[entry.section] for entry, weight in zip(entries, raw, strict=True)]


def _least(entries: Sequence[Entry]) -> Entry:
    """The entry to drop first: the last linked one, then the last found one except the first, then a critical one."""
    for section, protected in ((Section.LINKED, 0), (Section.RELEVANT, 1), (Section.CRITICAL, 0)):
        of_section = [entry for entry in entries if entry.section is section]
        if len(of_section) > protected:
            return of_section[-1]
    return entries[-1]


def _head(document: RetrievedDocument, shown: Rendered | None) -> str:
    lines = [
        f"### {_one_line(document.title)[:TITLE_CHARS] or 'Untitled'}",
        f"- **Path**: {_one_line(document.path)}",
        f"- **Type**: {_one_line(document.doc_type)}",
    ]
    if document.boosted_relevance_score > 0:
        lines.append(f"- **Relevance**: {document.boosted_relevance_score:.2f}")
    if isinstance(document, LinkedDocument):
        lines.append(f"- **Linked from**: {_one_line(document.linked_from)}")
    if document.superseded_by:
        lines.append(f"- **Superseded by**: {', '.join(map(_one_line, document.superseded_by))}")
    if shown is not None and shown.lines:
        lines.append(f"- **Excerpt**: {_excerpt(document, shown)}")
    return "\n".join(lines) + "\n"


def _excerpt(document: RetrievedDocument, shown: Rendered) -> str:
    """The lines of a document that are shown, and how much of it is left out."""
    ranges = ", ".join(_ranges(shown.lines[:MAX_RANGES])) + (", ..." if len(shown.lines) > MAX_RANGES else "")
    of = f" of {document.line_count}" if document.line_count else ""
    left = max(0, document.char_count - shown.chars)
    return f"lines {ranges}{of}; {left} of {document.char_count} characters left out, read_document has them"


def _ranges(lines: Sequence[tuple[int, int]]) -> Iterator[str]:
    return (f"{start}-{end}" if end > start else f"{start}" for start, end in lines)


def _one_line(text: str) -> str:
    """A name in one line: names come from files, and a line break in one could begin a heading."""
    return " ".join(text.split())
