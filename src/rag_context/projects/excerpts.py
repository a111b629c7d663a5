"""Excerpts of documents that do not fit a context as a whole, and the demotion of headings below another one.

An excerpt has the passages that answer the question and the passages around them in their sections. They are read one
by one, so that a large document costs no more than a small one. The headings of an excerpt are demoted and its open
blocks closed, so that its Markdown does not affect what follows.
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
"""Level of each document's heading in a context."""

HEAD_TOKENS = 24
"""The approximate cost of the line above a part, with its headings and line numbers."""

ROUNDS = 2
"""How often parts are extended on both sides, by one passage each time."""

FULL_SHARE = 0.9
LEAST_TOKENS = 16
"""The smallest useful excerpt."""

CHARS_PER_TOKEN = 8
"""The most characters per token, as a rule: the beginning of a text is cut to so many before tokens are counted."""

DENSE_CHARS_PER_TOKEN = 3.5
"""The fewest characters per token in most texts; if the best passage has fewer, its density is used for the document.
Passages are selected by this estimate and counted exactly once, at the end, because counting is the main cost."""

QUOTE_CHARS = 300
HEADING_CHARS = 200
GAP = "[...]"

Count = Callable[[str], int]
Render = Callable[[str], "Rendered"]
"""Renders a content for its position below a document's heading. Deterministic."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A text for a context, and its tokens. `lines` and `chars` are set if it is an excerpt."""

    text: str
    tokens: int
    lines: tuple[tuple[int, int], ...] = ()
    chars: int = 0


def rendered(content: str, count: Count) -> Rendered:
    """Render a whole document, with its headings below the document's own."""
    text = demoted(content, DOCUMENT_LEVEL)
    return Rendered(text, count(text))


def quote_of(passage: Passage) -> Quote:
    """The quote of a passage in a result."""
    span = passage.chunk.span
    return Quote(_shortened(passage.chunk.text), span.heading, span.start_line, span.end_line)


def opening_quote(content: str, first_line: int) -> Quote:
    """The beginning of a text without passages in the results; `first_line` is that of the text in its file."""
    shown = _shortened(content[:QUOTE_CHARS])
    return Quote(shown, "", first_line, first_line + content[: len(shown)].rstrip().count("\n"))


def opening(
    content: str, first_line: int, tokens: int, tokenizer: Tokenizer, whole: Rendered | None = None
) -> Rendered | None:
    """The beginning of a text in at most so many tokens, in whole lines if possible.

    `whole` is the rendered text, if available: it gives the number of characters per token.
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
        documents: the store of the passages.
        guard: its breaker and timeouts.
        render: renders a part; thread-safe.
        tokenizer: counts tokens.
        deadline: limits the reading of surrounding passages.
    """

    documents: DocumentStore
    guard: Dependency
    render: Render
    tokenizer: Tokenizer
    deadline: Deadline

    async def of(self, shares: Mapping[str, tuple[Sequence[Passage], int]]) -> dict[str, Rendered | None]:
        """The excerpts of documents, each within its share of tokens; None if the share is too small.

        Each step is done for all documents together, because its main cost is the request to the store.

        Args:
            shares: for each document its passages that answer the question, the best first, and its share of the
                context in tokens.
        """
        if not shares:
            return {}
        begun = {name: self._begun(found, tokens) for name, (found, tokens) in shares.items()}
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
        """Render the passages, without the last added ones if the headings of the parts need their tokens."""
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
        """The passages directly before and after the selected ones; none if the store fails."""
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
    """The passages that are selected from a document, by position, each with the heading of its section."""

    best: Passage
    tokens: int
    density: float
    spent: int = 0
    kept: dict[int, Passage] = field(default_factory=dict)
    headings: dict[int, str] = field(default_factory=dict)

    def take(self, passage: Passage, heading: str, further_tokens: int = 0) -> bool:
        """Select a passage if it fits; returns whether it does."""
        cost = math.ceil(len(passage.chunk.text) / self.density) + further_tokens
        if self.spent + cost > self.tokens:
            return False
        self.kept[passage.chunk.position], self.headings[passage.chunk.position] = passage, heading
        self.spent += cost
        return True

    def ends(self) -> list[str]:
        """Ids of the passages with an unselected neighbour."""
        return [passage.chunk.id for at, passage in self.kept.items() if {at - 1, at + 1} - self.kept.keys()]

    def extend(self, near: Sequence[Passage], *, beyond_section: bool) -> bool:
        """Select those of the passages that are of this document and fit; returns whether there were any."""
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
    """Groups of consecutive passages."""
    run: list[Passage] = []
    for passage in passages:
        if run and passage.chunk.position != run[-1].chunk.position + 1:
            yield run
            run = []
        run.append(passage)
    if run:
        yield run


def _part(run: Sequence[Passage]) -> Quote:
    """Consecutive passages as one text; overlaps are included once."""
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
    """Whether a heading path is in a section, or above it."""
    return heading == section or heading.startswith(f"{section} > ") or section.startswith(f"{heading} > ")


def _cut(text: str, tokens: int, tokenizer: Tokenizer) -> str:
    """The beginning of a text of so many tokens, cut at the last line end if that leaves at least half of them."""
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
    """`text` with its headings below level `below`, for inclusion in a larger text.

    Args:
        text: Markdown without front matter.
        below: level of the heading above it; H1 becomes the next level, and none becomes deeper than H6.
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
    """The headings of a text, and the heading that follows it in a context."""
    tokens = _PARSER.parse(f"{_BEFORE}{text}{_BEHIND}")
    return [token for token in tokens if token.type == "heading_open"]


def _is_closed(text: str, headings: list[Token]) -> bool:
    """Whether the heading after a text is parsed as a heading, and not as part of an open block of the text."""
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
