"""From documents to one text for a model: three sections, every document under its own heading, with its path. Pure.

Whatever stands in a document stands below that document's heading, so a reader can tell of every sentence where it
came from. A budget is shared out: a document that needs less than its share stands whole, and what it leaves goes to
the others; one that needs more stands there by its best parts.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rag_context.projects.excerpts import LEAST_TOKENS, Rendered
from rag_context.projects.records import LinkedDocument, RetrievedDocument

TITLE_CHARS = 300

UNBOUNDED_EXCERPT_TOKENS = 2_000
"""What stands for a document that cannot stand whole, where no budget says how much."""

EXCERPT_LINE_TOKENS = 96
"""What it costs to say, above an excerpt, which lines it is and how much is left out, about."""

LEAST_SHARE = 240
"""A document that would get fewer tokens makes room for those before it."""

MAX_RANGES = 6
"""Ranges of lines that are named above an excerpt."""

Count = Callable[[str], int]
"""How many tokens a text has."""


class Section(StrEnum):
    """The parts of a context, in their order."""

    CRITICAL = "## Critical Context (Always Relevant)"
    RELEVANT = "## Retrieved Context (By Relevance)"
    LINKED = "## Related Context (Linked Documents)"


WEIGHTS = {Section.CRITICAL: 3.0, Section.RELEVANT: 5.0, Section.LINKED: 2.0}
"""How a budget is shared out among the sections, as far as they need it. Within a section the nth document weighs
1/sqrt(n): the first ones are worth more, and the later ones are not starved."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A document on its way into a context. `whole` None: it is too large, or was not ready in time."""

    section: Section
    document: RetrievedDocument
    whole: Rendered | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a context; `tokens` for the text of a document that stands there in parts, None for a whole one."""

    entry: Entry
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Assembled:
    """A context. `omitted` are the paths of the documents that the budget left out, in the order of their place."""

    text: str
    tokens: int
    critical: tuple[RetrievedDocument, ...]
    relevant: tuple[RetrievedDocument, ...]
    linked: tuple[LinkedDocument, ...]
    omitted: tuple[str, ...]


def distinct(entries: Sequence[Entry]) -> list[Entry]:
    """Every document once, where it is met first."""
    return list({entry.document.path: entry for entry in reversed(entries)}.values())[::-1]


def shared_out(entries: Sequence[Entry], count: Count, max_tokens: int | None) -> list[Place]:
    """Who stands in a context, whole or with how many tokens; whoever is missing did not fit.

    The most relevant document always has a place.

    Args:
        entries: by section, in the order of their rank.
        count: counts tokens.
        max_tokens: most tokens of the whole context; None: no bound.
    """
    if max_tokens is None:
        return [Place(entry, None if entry.whole is not None else UNBOUNDED_EXCERPT_TOKENS) for entry in entries]
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
                Place(entry, None if share >= need else int(share) - heads[id(entry)] - EXCERPT_LINE_TOKENS)
                for entry, share, need in zip(left, shares, needs, strict=True)
            ]
        left.remove(_least(left))
    return []


def assemble(shown: Sequence[Entry], everybody: Sequence[Entry], count: Count, max_tokens: int | None) -> Assembled:
    """Put a context together.

    Args:
        shown: who stands in it, each with its text as `whole`.
        everybody: who should.
        count: counts tokens, of headings.
        max_tokens: most tokens; what does not fit is left out.
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
    there = {document.path for documents in kept.values() for document in documents}
    return Assembled(
        text="".join(parts).rstrip("\n") + "\n" if parts else "",
        tokens=spent,
        critical=tuple(kept[Section.CRITICAL]),
        relevant=tuple(kept[Section.RELEVANT]),
        linked=tuple(document for document in kept[Section.LINKED] if isinstance(document, LinkedDocument)),
        omitted=tuple(entry.document.path for entry in everybody if entry.document.path not in there),
    )


def _fits_alone(entry: Entry, head: int, budget: int) -> bool:
    """Whether a document could stand in a context by itself, if only in parts."""
    whole = entry.whole.tokens if entry.whole is not None else math.inf
    return head + min(whole, EXCERPT_LINE_TOKENS + LEAST_TOKENS) <= budget


def _cost(entry: Entry, count: Count) -> int:
    """Tokens of all that stands around a document's text."""
    return count(_head(entry.document, None)) + count("---")


def _filled(needs: Sequence[float], weights: Sequence[float], budget: float) -> list[float]:
    """Shares of a budget: nobody gets more than it needs, and what it leaves goes to the others by their weights."""
    shares = [0.0] * len(needs)
    waiting = set(range(len(needs)))
    while waiting:
        total = sum(weights[i] for i in waiting)
        content = {i for i in waiting if needs[i] <= budget * weights[i] / total}
        if not content:
            for i in waiting:
                shares[i] = budget * weights[i] / total
            break
        for i in content:
            shares[i] = needs[i]
        budget -= sum(needs[i] for i in content)
        waiting -= content
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
    """Who goes first: the last linked one, then the last found one but the first, then the last critical one."""
    for section, spared in ((Section.LINKED, 0), (Section.RELEVANT, 1), (Section.CRITICAL, 0)):
        there = [entry for entry in entries if entry.section is section]
        if len(there) > spared:
            return there[-1]
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
    """Which lines of a document are shown, and how much of it is not."""
    ranges = ", ".join(_ranges(shown.lines[:MAX_RANGES])) + (", ..." if len(shown.lines) > MAX_RANGES else "")
    of = f" of {document.line_count}" if document.line_count else ""
    left = max(0, document.char_count - shown.chars)
    return f"lines {ranges}{of}; {left} of {document.char_count} characters left out, read_document has them"


def _ranges(lines: Sequence[tuple[int, int]]) -> Iterator[str]:
    return (f"{start}-{end}" if end > start else f"{start}" for start, end in lines)


def _one_line(text: str) -> str:
    """Names come from files: one with a line break in it must not begin a heading of its own."""
    return " ".join(text.split())
