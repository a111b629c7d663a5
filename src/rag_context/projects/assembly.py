"""Assembles documents into one text for a model: three sections, each document under a heading with its path.

The text of a document is always below its heading, so that the source of every sentence is clear. It is rendered once
per version: its headings are demoted, its open blocks closed, so that its Markdown does not affect what follows, and
its tokens counted. The token budget is divided among the documents: one that needs less than its share is included as
a whole, and the rest of its share goes to the others; one that needs more is represented by its best parts.
"""

import hashlib
import math
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

from cachetools import LRUCache
from markdown_it import MarkdownIt
from markdown_it.token import Token

from rag_context.ports.models import Tokenizer
from rag_context.projects.records import LinkedDocument, RagContext, RetrievedDocument

DOCUMENT_LEVEL = 3
"""Level of each document's heading in a context."""

LEAST_TOKENS = 16
"""The smallest useful excerpt."""

TITLE_CHARS = 300

UNBOUNDED_EXCERPT_TOKENS = 2_000
"""The size of an excerpt of a document that cannot be included as a whole, if there is no budget."""

EXCERPT_LINE_TOKENS = 96
"""The approximate cost of the line above an excerpt, with its line numbers and what is left out."""

LEAST_SHARE = 240
"""A document whose share would be smaller is left out, in favour of those before it."""

MAX_RANGES = 6
"""The most ranges of lines in the line above an excerpt."""

MAX_CHARS_PER_TOKEN = 5
"""A document with more characters per token of the budget than this cannot fit it, whatever its text."""

RULE = "---"
"""Separates the documents of a context."""

Count = Callable[[Sequence[str]], Sequence[int]]
"""Counts the tokens of each of some texts."""

REMEMBERED_CHARS = 8_000_000
COUNTED = 4096
"""The number of short texts, such as headings of documents, whose token counts are cached."""

DEEPEST = 6
# A context has a list above each text, and a rule and a heading below. Texts are parsed between such lines, because a
# list before a text, and a block that it leaves open, change what lines mean.
_BEFORE = "- x\n\n"
_BEFORE_LINES = 2
_AFTER = "\n\n---\n\n### x\n"
_AFTER_LINES = 4
_HTML_ENDS = ("-->", "?>", "]]>", ">", "</pre>", "</script>", "</style>", "</textarea>")

_LINE_END = re.compile(r"\r\n?")
_CONTAINERS = re.compile(r"(?:\s|>|(?:[-*+]|\d{1,9}[.)])(?=\s))*+")
_MARKS = re.compile(r"#{1,6}+")
_PARSER = MarkdownIt("commonmark").disable("inline")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text for a context, and its tokens. `lines` and `chars` are set if it is an excerpt."""

    text: str
    tokens: int
    lines: tuple[tuple[int, int], ...] = ()
    chars: int = 0


class ContextSection(StrEnum):
    CRITICAL = "## Critical Context (Always Relevant)"
    RELEVANT = "## Retrieved Context (By Relevance)"
    LINKED = "## Related Context (Linked Documents)"


WEIGHTS = {ContextSection.CRITICAL: 3.0, ContextSection.RELEVANT: 5.0, ContextSection.LINKED: 2.0}
"""Weights of the sections when a budget is divided. Within a section the nth document weighs 1/sqrt(n): the first
ones get more, and the later ones still get something."""


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """A document for a context. `whole` None: it is too large, or was not rendered in time."""

    section: ContextSection
    document: RetrievedDocument
    whole: Rendered | None = None


@dataclass(frozen=True, slots=True)
class Slot:
    """An entry with its share of the budget: `tokens` for an excerpt, None for the whole document."""

    entry: ContextEntry
    tokens: int | None = None


def may_fit(chars: int, max_tokens: int | None) -> bool:
    """Whether a document of so many characters may fit a context as a whole."""
    return max_tokens is None or chars <= MAX_CHARS_PER_TOKEN * max_tokens


def distinct(entries: Sequence[ContextEntry]) -> list[ContextEntry]:
    """The entries without repeated documents; the first entry of each is kept."""
    return list({entry.document.path: entry for entry in reversed(entries)}.values())[::-1]


def allocate(entries: Sequence[ContextEntry], count: Count, max_tokens: int | None) -> list[Slot]:
    """Divide the budget: which documents are included, the most relevant always, whole or with how many tokens."""
    if max_tokens is None:
        return [Slot(entry, None if entry.whole is not None else UNBOUNDED_EXCERPT_TOKENS) for entry in entries]
    rule, *alone = count([RULE, *ContextSection])
    headings = dict(zip(ContextSection, alone, strict=True))
    costs = count([_head(entry.document, None) for entry in entries])
    heads = {id(entry): cost + rule for entry, cost in zip(entries, costs, strict=True)}
    left = [each for each in entries if _fits_alone(each, heads[id(each)], max_tokens - headings[each.section])]
    while left:
        of_sections = sum(headings[section] for section in {entry.section for entry in left})
        needs = [heads[id(e)] + e.whole.tokens if e.whole is not None else math.inf for e in left]
        shares = _shares(needs, _weights(left), max_tokens - of_sections)
        # One is dropped at a time, since its share may be enough for the others.
        too_small = [i for i, need in enumerate(needs) if shares[i] < min(need, LEAST_SHARE)]
        if not too_small or len(left) == 1:
            return [
                Slot(entry, None if share >= need else int(share) - heads[id(entry)] - EXCERPT_LINE_TOKENS)
                for entry, share, need in zip(left, shares, needs, strict=True)
            ]
        left.remove(_first_to_drop(left))
    return []


def assemble(
    shown: Sequence[ContextEntry], candidates: Sequence[ContextEntry], count: Count, max_tokens: int | None
) -> RagContext:
    """Assemble the context. `shown` have their text or excerpt as `whole`; other `candidates` are listed as omitted."""
    order = list(ContextSection)
    entries = [each for each in sorted(shown, key=lambda each: order.index(each.section)) if each.whole is not None]
    first = {entry.section: position for position, entry in reversed(list(enumerate(entries)))}
    heads = [_head(entry.document, entry.whole) for entry in entries]
    for section, position in first.items():
        heads[position] = f"{section}\n\n{heads[position]}"
    rule, *costs = count([RULE, *heads])
    spent = 0
    parts: list[str] = []
    kept: dict[ContextSection, list[RetrievedDocument]] = {section: [] for section in ContextSection}
    for position, (entry, head, cost) in enumerate(zip(entries, heads, costs, strict=True)):
        if entry.whole is None:
            continue
        if not kept[entry.section] and position != first[entry.section]:  # none before it did fit
            head = f"{entry.section}\n\n{head}"
            (cost,) = count([head])
        tokens = cost + entry.whole.tokens + rule
        if max_tokens is None or spent + tokens <= max_tokens:
            spent += tokens
            kept[entry.section].append(replace(entry.document, is_excerpt=bool(entry.whole.lines)))
            parts.append(f"{head}\n{entry.whole.text}\n\n{RULE}\n\n")
    included = {document.path for documents in kept.values() for document in documents}
    linked = kept[ContextSection.LINKED]
    return RagContext(
        critical_documents=tuple(kept[ContextSection.CRITICAL]),
        relevant_documents=tuple(kept[ContextSection.RELEVANT]),
        linked_documents=tuple(document for document in linked if isinstance(document, LinkedDocument)),
        formatted_context="".join(parts).rstrip("\n") + "\n" if parts else "",
        tokens=spent,
        omitted=tuple(entry.document.path for entry in candidates if entry.document.path not in included),
    )


def _fits_alone(entry: ContextEntry, head: int, budget: int) -> bool:
    """Whether a document would fit a context of its own, at least as an excerpt."""
    whole = entry.whole.tokens if entry.whole is not None else math.inf
    return head + min(whole, EXCERPT_LINE_TOKENS + LEAST_TOKENS) <= budget


def _shares(needs: Sequence[float], weights: Sequence[float], budget: float) -> list[float]:
    """Shares of a budget: none is larger than its need, and the rest goes to the others by weight."""
    shares = [0.0] * len(needs)
    waiting = set(range(len(needs)))
    while waiting:
        total = sum(weights[i] for i in waiting)
        # Those that need less than their share leave the rest to the others, whose shares grow; until none does.
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


def _weights(entries: Sequence[ContextEntry]) -> list[float]:
    raw: list[float] = []
    seen: dict[ContextSection, int] = dict.fromkeys(ContextSection, 0)
    for entry in entries:
        seen[entry.section] += 1
        raw.append(1.0 / math.sqrt(seen[entry.section]))
    totals = {
        section: sum(weight for entry, weight in zip(entries, raw, strict=True) if entry.section is section)
        for section in ContextSection
    }
    return [WEIGHTS[entry.section] * weight / totals[entry.section] for entry, weight in zip(entries, raw, strict=True)]


def _first_to_drop(entries: Sequence[ContextEntry]) -> ContextEntry:
    """The entry to drop first: the last linked one, then the last found one except the first, then a critical one."""
    for section, protected in ((ContextSection.LINKED, 0), (ContextSection.RELEVANT, 1), (ContextSection.CRITICAL, 0)):
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
        parts = (f"{start}-{end}" if end > start else f"{start}" for start, end in shown.lines[:MAX_RANGES])
        ranges = ", ".join(parts) + (", ..." if len(shown.lines) > MAX_RANGES else "")
        of = f" of {document.line_count}" if document.line_count else ""
        left = f"{max(0, document.char_count - shown.chars)} of {document.char_count} characters left out"
        lines.append(f"- **Excerpt**: lines {ranges}{of}; {left}, read_document has them")
    return "\n".join(lines) + "\n"


def _one_line(text: str) -> str:
    """A name in one line: names come from files, and a line break in one could begin a heading."""
    return " ".join(text.split())


class Renderer:
    """Renders documents and counts tokens, with caches; thread-safe."""

    def __init__(self, tokenizer: Tokenizer, remembered_chars: int = REMEMBERED_CHARS) -> None:
        self.tokenizer = tokenizer
        self._lock = threading.Lock()
        self._counts: LRUCache[str, int] = LRUCache(COUNTED)
        self._rendered: LRUCache[bytes, Rendered] = LRUCache(
            remembered_chars, getsizeof=lambda rendered: len(rendered.text) + 1
        )

    def render(self, contents: Sequence[str]) -> list[Rendered]:
        """Render texts for their position below a document's heading, headings demoted."""
        made: dict[str, Rendered] = {}
        missing: dict[str, str] = {}
        for content in dict.fromkeys(contents):
            ready = self.ready(content)
            if ready is None:
                missing[content] = demoted(content, DOCUMENT_LEVEL)
            else:
                made[content] = ready
        counts = self.tokenizer.count(list(missing.values())) if missing else ()
        for (content, text), tokens in zip(missing.items(), counts, strict=True):
            made[content] = Rendered(text, tokens)
            with self._lock, suppress(ValueError):  # it is larger than the cache
                self._rendered[_key(content)] = made[content]
        return [made[content] for content in contents]

    def ready(self, content: str) -> Rendered | None:
        with self._lock:
            return self._rendered.get(_key(content))

    def count(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each of some short texts."""
        # Not held while texts are counted, which takes long: two threads may count one text twice.
        with self._lock:
            counts = {text: self._counts[text] for text in texts if text in self._counts}
        if missing := [text for text in dict.fromkeys(texts) if text not in counts]:
            counts.update(zip(missing, self.tokenizer.count(missing), strict=True))
            with self._lock:
                self._counts.update(counts)
        return [counts[text] for text in texts]


def _key(content: str) -> bytes:
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()


def demoted(text: str, below: int) -> str:
    """`text` with its headings below level `below`, for inclusion in a larger text; none becomes deeper than H6."""
    text = _LINE_END.sub("\n", text).strip("\n").rstrip()
    if not text:
        return ""
    headings = _headings(text)
    if not _is_closed(text, headings):
        text = _closed(text)
        headings = _headings(text)
    lines = text.split("\n")
    for heading in reversed(headings):
        _demote(heading, lines, below)
    return "\n".join(lines)


def _headings(text: str) -> list[Token]:
    """The headings of a text, and the heading that follows it in a context."""
    tokens = _PARSER.parse(f"{_BEFORE}{text}{_AFTER}")
    return [token for token in tokens if token.type == "heading_open"]


def _is_closed(text: str, headings: list[Token]) -> bool:
    """Whether the heading after a text is parsed as a heading, and not as part of an open block of the text."""
    following = _BEFORE_LINES + text.count("\n") + _AFTER_LINES
    return bool(headings) and headings[-1].level == 0 and headings[-1].map == [following, following + 1]


def _closed(text: str) -> str:
    fences = [token.markup for token in _PARSER.parse(_BEFORE + text) if token.type == "fence"]
    for end in (*fences[-1:], *_HTML_ENDS):
        closed = f"{text}\n{end}"
        if _is_closed(closed, _headings(closed)):
            return closed
    return text


def _demote(heading: Token, lines: list[str], below: int) -> None:
    """Demote a heading of `lines`, and write it on one line."""
    assert heading.map is not None  # noqa: S101  (blocks have one)
    start, end = (line - _BEFORE_LINES for line in heading.map)
    if start >= len(lines):
        return
    marks = "#" * min(int(heading.tag[1]) + below, DEEPEST)
    first = _CONTAINERS.match(lines[start])
    lead = first[0] if first is not None else ""
    rest = lines[start][len(lead) :]
    if heading.markup.startswith("#"):
        lines[start] = f"{lead}{_MARKS.sub(marks, rest, count=1)}"
        return
    further = [_CONTAINERS.sub("", line, count=1) for line in lines[start + 1 : end - 1]]
    lines[start:end] = [f"{lead}{marks} {' '.join([rest.rstrip(), *further]).rstrip()}"]
