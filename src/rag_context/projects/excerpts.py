"""The parts of a document that stand for it where the whole does not fit, made fit to stand below another heading.

The passages that answer the question, and their surroundings within their sections, are looked up one by one, so that
a document of any size costs the same. The headings of an excerpt are demoted and its open blocks closed, so that
nothing of it reaches beyond its place.
"""

import asyncio
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token

from rag_context.domain.search import Passage
from rag_context.errors import BackendError
from rag_context.ports.models import Tokenizer
from rag_context.ports.reading import DocumentStore
from rag_context.projects.records import Quote
from rag_context.resilience.deadline import Deadline
from rag_context.resilience.dependency import Dependency

DOCUMENT_LEVEL = 3
"""Level of the heading that each document of a context stands under."""

HEAD_TOKENS = 24
"""What the line above a part costs, about: its headings and line numbers."""

ROUNDS = 2
"""How often parts are extended on both sides, by one passage each time."""

FULL_SHARE = 0.9
LEAST_TOKENS = 16
"""Fewer tokens than this say nothing."""

CHARS_PER_TOKEN = 8
"""So many characters hold a token at least, as a rule; only of so many is the beginning of a text counted."""

DENSE_CHARS_PER_TOKEN = 3.5
"""So few characters make a token in most texts; where the best passage has fewer, all of its document is taken to have
as few. What fits by this estimate is counted exactly once, at the end: counting is most of what an excerpt costs."""

QUOTE_CHARS = 300
HEADING_CHARS = 200
GAP = "[...]"

Count = Callable[[str], int]
Render = Callable[[str], "Rendered"]
"""Makes a content ready to stand below a document's heading; the same content always gives the same."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text as it stands in a context, and its tokens. `parts` are its lines and characters, where it is not whole."""

    text: str
    tokens: int
    lines: tuple[tuple[int, int], ...] = ()
    chars: int = 0


def rendered(content: str, count: Count) -> Rendered:
    """A document's whole content, its headings below the document's own."""
    text = demoted(content, DOCUMENT_LEVEL)
    return Rendered(text, count(text))


def quote_of(passage: Passage) -> Quote:
    """A passage as a result shows it."""
    span = passage.chunk.span
    return Quote(_shortened(passage.chunk.text), span.heading, span.start_line, span.end_line)


def opening_quote(content: str, first_line: int) -> Quote:
    """The beginning of a text that nothing was found in; `first_line` is that of the text in its file."""
    shown = _shortened(content[:QUOTE_CHARS])
    return Quote(shown, "", first_line, first_line + content[: len(shown)].rstrip().count("\n"))


def opening(
    content: str, first_line: int, tokens: int, tokenizer: Tokenizer, whole: Rendered | None = None
) -> Rendered | None:
    """The beginning of a text in at most so many tokens, whole lines where there are several.

    `whole` is all of it, where that was rendered: it tells how many characters make a token of this text.
    """
    if whole is not None:
        likely = content[: int(FULL_SHARE * _density(whole) * max(tokens, 0))]
        made = _opened(likely[: likely.rfind("\n") + 1], first_line, tokens, tokenizer)
        if made is not None:
            return made
    return _opened(_cut(content[: CHARS_PER_TOKEN * max(tokens, 0)], tokens, tokenizer), first_line, tokens, tokenizer)


def _opened(text: str, first_line: int, tokens: int, tokenizer: Tokenizer) -> Rendered | None:
    made = demoted(text, DOCUMENT_LEVEL)
    if not text.strip() or (count := len(tokenizer.offsets(made))) > tokens:
        return None
    return Rendered(made, count, ((first_line, first_line + text.rstrip().count("\n")),), len(text))


@dataclass(frozen=True, slots=True)
class Excerpts:
    """Makes excerpts.

    Args:
        documents: holds the passages.
        guard: guards it.
        render: makes a part ready; from any thread.
        tokenizer: counts tokens.
        deadline: until when more than what was found is looked for.
    """

    documents: DocumentStore
    guard: Dependency
    render: Render
    tokenizer: Tokenizer
    deadline: Deadline

    async def of(self, asked: Mapping[str, tuple[Sequence[Passage], int]]) -> dict[str, Rendered | None]:
        """What stands for documents, each in at most so many tokens; None where that says nothing.

        All of them take each step together: what a step costs is above all the way to the store and back.

        Args:
            asked: for each document its passages that answer the question, the best first, and its share of the
                context in tokens.
        """
        if not asked:
            return {}
        begun = {name: self._begun(found, tokens) for name, (found, tokens) in asked.items()}
        for turn in range(ROUNDS):
            growing = [each for each in begun.values() if each.kept and each.spent <= FULL_SHARE * each.tokens]
            near = await self._around(growing) if growing else []
            if not [each for each in growing if each.extend(near, beyond_section=turn == 0)]:
                break
        return await asyncio.to_thread(lambda: {name: self._made(each) for name, each in begun.items()})

    def _begun(self, found: Sequence[Passage], tokens: int) -> "_Growing":
        growing = _Growing(found[0], tokens, min(DENSE_CHARS_PER_TOKEN, _density(self.render(found[0].chunk.text))))
        for passage in found:
            growing.take(passage, passage.chunk.span.heading, HEAD_TOKENS)
        return growing

    def _made(self, grown: "_Growing") -> Rendered | None:
        return self._fitted(grown.kept, grown.tokens) if grown.kept else self._trimmed(grown.best, grown.tokens)

    def _fitted(self, kept: dict[int, Passage], tokens: int) -> Rendered | None:
        """The parts as they stand in a context, without the last added ones where their headings took their place."""
        while kept:
            made = self._rendered(kept)
            if made.tokens <= tokens:
                return made
            if len(kept) == 1:
                return self._trimmed(next(iter(kept.values())), tokens)
            kept.popitem()
        return None

    def _rendered(self, kept: dict[int, Passage]) -> Rendered:
        parts = [_part(run) for run in _runs([kept[position] for position in sorted(kept)])]
        made = [self.render(quote.text) for quote in parts]
        heads = [_head(quote) for quote in parts]
        text = f"\n\n{GAP}\n\n".join(f"{head}\n\n{each.text}".rstrip() for head, each in zip(heads, made, strict=True))
        around = self._count("\n".join([*heads, *[GAP] * (len(parts) - 1)]))
        lines = tuple((quote.start_line, quote.end_line) for quote in parts)
        return Rendered(text, around + sum(each.tokens for each in made), lines, sum(len(part.text) for part in parts))

    async def _around(self, growing: Sequence["_Growing"]) -> list[Passage]:
        """The passages that stand right before and after those that are kept; () where that fails."""
        ends = [end for each in growing for end in each.ends()]
        kept = {passage.chunk.id for each in growing for passage in each.kept.values()}
        store = self.documents
        try:
            near = await self.guard.call(lambda: store.neighbours(ends), self.deadline)
            refs = [ref for each in near.values() for ref in (each.before, each.after) if ref is not None]
            missing = [id_ for id_ in dict.fromkeys(ref.id for ref in refs) if id_ not in kept]
            passages = await self.guard.call(lambda: store.passages(missing), self.deadline) if missing else {}
        except BackendError:
            return []
        return [passages[id_] for id_ in missing if id_ in passages]

    def _trimmed(self, passage: Passage, tokens: int) -> Rendered | None:
        """As much of one passage as fits."""
        span = passage.chunk.span
        head = _head(quote_of(passage))
        room = tokens - self._count(head)
        if room < LEAST_TOKENS:
            return None
        text = _cut(passage.chunk.text, room, self.tokenizer)
        end_line = span.start_line + text.rstrip().count("\n")
        shown = Quote(text, span.heading, span.start_line, end_line)
        made = f"{_head(shown)}\n\n{demoted(text, DOCUMENT_LEVEL)}".rstrip()
        count = self._count(made)
        return Rendered(made, count, ((span.start_line, end_line),), len(text)) if count <= tokens else None

    def _count(self, text: str) -> int:
        return len(self.tokenizer.offsets(text))


@dataclass(slots=True)
class _Growing:
    """What is kept of a document so far, by position, each with the heading of the section that it belongs to."""

    best: Passage
    tokens: int
    density: float
    spent: int = 0
    kept: dict[int, Passage] = field(default_factory=dict)
    headings: dict[int, str] = field(default_factory=dict)

    def take(self, passage: Passage, heading: str, further_tokens: int = 0) -> bool:
        """Keep a passage where it fits; returns whether it does."""
        cost = math.ceil(len(passage.chunk.text) / self.density) + further_tokens
        if self.spent + cost > self.tokens:
            return False
        self.kept[passage.chunk.position], self.headings[passage.chunk.position] = passage, heading
        self.spent += cost
        return True

    def ends(self) -> list[str]:
        """Ids of the passages beside which one is missing."""
        return [passage.chunk.id for at, passage in self.kept.items() if {at - 1, at + 1} - self.kept.keys()]

    def extend(self, near: Sequence[Passage], *, beyond_section: bool) -> bool:
        """Keep those of the passages that belong to this document and fit; returns whether there were any."""
        grown = False
        for passage in near:
            position = passage.chunk.position
            if passage.document_id != self.best.document_id or position in self.kept:
                continue
            heading = self.headings.get(position - 1, self.headings.get(position + 1, ""))
            if beyond_section or _is_within(passage.chunk.span.heading, heading):
                grown = self.take(passage, heading) or grown
        return grown


def _density(made: Rendered) -> float:
    """Characters per token of a text."""
    return max(1, len(made.text)) / max(1, made.tokens)


def _runs(passages: Sequence[Passage]) -> Iterator[list[Passage]]:
    """Passages by position, those that follow each other together."""
    run: list[Passage] = []
    for passage in passages:
        if run and passage.chunk.position != run[-1].chunk.position + 1:
            yield run
            run = []
        run.append(passage)
    if run:
        yield run


def _part(run: Sequence[Passage]) -> Quote:
    """Passages in a row as one text; what two of them share stands there once."""
    text, end = "", run[0].chunk.span.start
    for passage in run:
        chunk = passage.chunk
        text += chunk.text[max(0, end - chunk.span.start) :]
        end = max(end, chunk.span.end)
    return Quote(text, run[0].chunk.span.heading, run[0].chunk.span.start_line, run[-1].chunk.span.end_line)


def _head(quote: Quote) -> str:
    heading = " ".join(quote.heading.split())[:HEADING_CHARS]
    lines = f"lines {quote.start_line}-{quote.end_line}"
    return f"**{heading}** ({lines})" if heading else f"({lines})"


def _is_within(heading: str, section: str) -> bool:
    """Whether a heading path lies in a section, or right above it."""
    return heading == section or heading.startswith(f"{section} > ") or section.startswith(f"{heading} > ")


def _cut(text: str, tokens: int, tokenizer: Tokenizer) -> str:
    """The beginning of a text: so many tokens, back to the last whole line where that leaves half of them."""
    offsets = tokenizer.offsets(text)
    if len(offsets) <= tokens:
        return text
    cut = text[: offsets[tokens - 1][1]] if tokens > 0 else ""
    line = cut.rfind("\n")
    return cut[: line + 1] if line > len(cut) // 2 else cut


def _shortened(text: str) -> str:
    text = text.strip()
    return text if len(text) <= QUOTE_CHARS else f"{text[: QUOTE_CHARS - 1].rstrip()}\u2026"


DEEPEST = 6
_BEFORE = "- x\n\n"
_BEFORE_LINES = 2
_BEHIND = "\n\n---\n\n### x\n"
_BEHIND_LINES = 4
_HTML_ENDS = ("-->", "?>", "]]>", ">", "</pre>", "</script>", "</style>", "</textarea>")

_LINE_END = re.compile(r"\r\n?")
_CONTAINERS = re.compile(r"(?:\s|>|(?:[-*+]|\d{1,9}[.)])(?=\s))*+")
_MARKS = re.compile(r"#{1,6}+")
_PARSER = MarkdownIt("commonmark").disable("inline")


def demoted(text: str, below: int) -> str:
    """`text` with its headings below level `below`, ready to stand in a larger text.

    Args:
        text: Markdown without front matter.
        below: level of the heading it is put under; H1 becomes the next one, none becomes deeper than H6.
    """
    text = _LINE_END.sub("\n", text).strip("\n").rstrip()
    if not text:
        return ""
    headings = _headings(text)
    if not _is_closed(text, headings):
        text = _closed(text)
        headings = _headings(text)
    lines = text.split("\n")
    for heading in reversed(headings):
        _sink(heading, lines, below)
    return "\n".join(lines)


def _headings(text: str) -> list[Token]:
    """The headings of a text in its place, the one behind it included."""
    tokens = _PARSER.parse(f"{_BEFORE}{text}{_BEHIND}")
    return [token for token in tokens if token.type == "heading_open"]


def _is_closed(text: str, headings: list[Token]) -> bool:
    """Whether the heading behind a text is one, and no part of what the text left open."""
    behind = _BEFORE_LINES + text.count("\n") + _BEHIND_LINES
    return bool(headings) and headings[-1].level == 0 and headings[-1].map == [behind, behind + 1]


def _closed(text: str) -> str:
    fences = [token.markup for token in _PARSER.parse(_BEFORE + text) if token.type == "fence"]
    for end in (*fences[-1:], *_HTML_ENDS):
        closed = f"{text}\n{end}"
        if _is_closed(closed, _headings(closed)):
            return closed
    return text


def _sink(heading: Token, lines: list[str], below: int) -> None:
    """Write a heading of `lines` below another level, on one line."""
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
