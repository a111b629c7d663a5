"""Cuts a text into the chunks that are embedded and returned.

The chunks, overlap removed, give back the text exactly; each fits the embedder's window by the embedder's own count;
sizes and overlap of each kind of content are upper bounds. Where the window is smaller than 512
tokens, prose and conversations are packed to 128 instead, whole sentences or turns and no overlap: measured best on the
answer spans of five long texts, where ranking smooths over neighbouring chunks.

Headings bound chunks before sizes do. An H1 always begins a chunk; in documents of more than 500 lines so do H2 and
H3. Elsewhere a heading begins a chunk unless what runs before it is too small to stand alone (`grouped`).
A heading never parts from its text. `Span.heading` is the deepest path that *all* of the chunk stands under: a
chunk that includes `Status` and `Context` of one decision stands under that decision, not under `Status`.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice

from rag_context.domain import documents
from rag_context.ingest.chunking import code, prose, text_blocks
from rag_context.ingest.chunking.prose import speech_of
from rag_context.ingest.chunking.syntax import Outline, marks
from rag_context.ports.models import Tokenizer

_CLAUSE = re.compile(r"[,;:)\]}]\s++|[，；：、]")
_SPACE = re.compile(r"\s++")

LARGE_WINDOW_TOKENS = 512
SMALL_WINDOW_CHUNK_TOKENS = 128
LONG_DOCUMENT_LINES = 500
MOST_PARTS = 20_000
"""Headings, or changes of role, in one document; where there are more, sizes alone bound chunks. Each chunk costs a run
of the model and some kilobytes, and two megabytes can be half a million headings."""

STAMP_CHARS = 40
"""Within so many characters from the start of a turn stands its time, if anywhere."""


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """Bounds of a chunk, in tokens of the embedder."""

    max_tokens: int
    overlap: int
    whole_tokens: int
    """Bound of a code fence that is not cut, with what leads into it."""


class Packer:
    """Cuts stretches of one text into pieces of at most `sizes.max_tokens`.

    `boundaries` reads those of the text (ascending), and `whole` what is not cut (ascending, without boundaries inside)
    and may make a piece larger, where a stretch is too long, which most messages are not.
    """

    def __init__(
        self,
        ruler: text_blocks.Ruler,
        boundaries: Callable[[], Sequence[text_blocks.Boundary]],
        sizes: ChunkSizes,
        whole: Callable[[], Sequence[text_blocks.Range]] = tuple,
    ) -> None:
        self._ruler = ruler
        self._text = ruler.text
        self._find = boundaries
        self._sizes = sizes
        self._find_whole = whole

    @cached_property
    def _boundaries(self) -> Sequence[text_blocks.Boundary]:
        return self._find()

    @cached_property
    def _offsets(self) -> list[int]:
        return [boundary.offset for boundary in self._boundaries]

    @cached_property
    def _whole(self) -> Sequence[text_blocks.Range]:
        return self._find_whole()

    def pieces(self, stretch: text_blocks.Range) -> Iterator[text_blocks.Range]:
        """Pieces that cover `stretch` in order; each starts at the end of the one before, less the overlap."""
        covered, end = stretch
        start = covered
        while covered < end:
            cut, most = self._end(start, covered, end)
            fitted = self._ruler.fitting(start, cut, most)
            # The overlap fills the piece by itself: it is left out, so that every piece gets further.
            if fitted <= covered:
                start = covered
                fitted = self._ruler.fitting(start, cut, most)
            # White space at a cut belongs to the piece before it, so that the next one begins with a word.
            if fitted < cut:
                space = _SPACE.match(self._text, fitted)
                cut = min(end, space.end() if space else fitted)
            yield start, cut
            if cut >= end:
                return
            start, covered = self._overlap_start(start, cut), cut

    def _end(self, start: int, covered: int, end: int) -> tuple[int, int]:
        """Where a piece that begins at `start` ends, and how many tokens it may have."""
        count, most, whole = self._ruler.count, self._sizes.max_tokens, self._sizes.whole_tokens
        if self._ruler.fits(start, end, most):
            return end, most
        limit = self._limit(start, covered, end)
        index = bisect_left(self._whole, (limit, 0)) - 1
        first, last = self._whole[index] if index >= 0 else (0, 0)
        if last <= limit:
            return self._cut(covered, limit), most
        # With what leads into it, unless that is large enough to stand alone.
        if count(covered, max(first, covered)) < text_blocks.substantial(most) and count(start, last) <= whole:
            # What is left is not worth a piece of its own.
            is_rest = count(last, end) < text_blocks.substantial(most) and count(start, end) <= whole
            return end if is_rest else min(last, end), whole
        return self._cut(covered, first if first > covered else limit), most

    def _limit(self, start: int, covered: int, end: int) -> int:
        """How far a piece may reach: full, but so that the last piece is large enough to stand alone."""
        full = self._ruler.reach(start, self._sizes.max_tokens)
        leaving = self._ruler.back(end, text_blocks.substantial(self._sizes.max_tokens))
        return max(min(full, leaving), covered + 1)

    def _cut(self, covered: int, limit: int) -> int:
        """Where to end a piece that holds `covered..` and may reach up to `limit`.

        The strongest boundary in the last quarter; of equals the last. A start of a turn, or a whole sentence that
        leaves more of the piece empty, comes before any cut inside a sentence.
        """
        floor = self._ruler.reach(covered, self._ruler.count(covered, limit) * 3 // 4)
        # Behind the first character that is not covered, so that every piece gets further than the one before.
        low = bisect_right(self._offsets, self._ruler.reach(covered, 0))
        high = bisect_right(self._offsets, limit)
        near = max(low, bisect_left(self._offsets, floor))
        for index in range(high - 1, low - 1, -1):
            if self._boundaries[index].strength is text_blocks.Strength.TURN:
                return self._offsets[index]
        ends = reversed(self._boundaries[near:high])
        best = max(ends, key=lambda boundary: boundary.strength, default=None)
        if best is not None and best.strength > text_blocks.Strength.WRAP:
            return best.offset
        return self._last_unit(low, near) or (best.offset if best else self._inside(floor, limit))

    def _last_unit(self, low: int, high: int) -> int | None:
        """The last boundary in `low..high` (indices), if the unit that begins there fits into a piece of its own."""
        for index in range(high - 1, low - 1, -1):
            if self._boundaries[index].strength > text_blocks.Strength.WRAP:
                start = self._offsets[index]
                reach = self._ruler.reach(start, self._sizes.max_tokens)
                following = self._boundaries[index + 1 : bisect_right(self._offsets, reach)]
                fits = reach == len(self._text) or any(unit.strength > text_blocks.Strength.WRAP for unit in following)
                return start if fits else None
        return None

    def _inside(self, floor: int, limit: int) -> int:
        """A cut inside a sentence: behind its last clause, else its last word, else anywhere."""
        stretch = self._text[floor:limit]
        for pattern in (_CLAUSE, _SPACE):
            if ends := [match.end() for match in pattern.finditer(stretch)]:
                return floor + ends[-1]
        return limit

    def _overlap_start(self, start: int, cut: int) -> int:
        """Where the piece behind `cut` begins, so that it repeats whole units, else whole words."""
        # A quarter at most: short pieces would otherwise be mostly repetition.
        tokens = min(self._sizes.overlap, self._ruler.count(start, cut) // 4)
        if not tokens:
            return cut
        # Behind `start`, so that the next piece begins later than this one.
        low = max(self._ruler.back(cut, tokens), start + 1)
        units = self._boundaries[bisect_left(self._offsets, low) : bisect_left(self._offsets, cut)]
        for unit in units:
            if unit.strength > text_blocks.Strength.WRAP:
                return unit.offset
        if units:
            return units[0].offset
        space = _SPACE.search(self._text, low, cut)
        return space.end() if space else cut


def sizes_for(content_type: str, window: int) -> ChunkSizes:
    """Bounds of a chunk of this kind of content under an embedder that reads `window` tokens."""
    if content_type == documents.CODE:
        size = min(256, window)
        return ChunkSizes(size, min(25, size // 10), size)
    if window >= LARGE_WINDOW_TOKENS:
        return ChunkSizes(512, 50, 512)
    return ChunkSizes(min(SMALL_WINDOW_CHUNK_TOKENS, window), 0, window)


def split_body(
    content: str, *, content_type: str, source: str, tokenizer: Tokenizer, window: int, outline: Outline = marks
) -> list[documents.Span]:
    """As `split`, without the front matter; offsets and lines are those of the whole content.

    At least one chunk, even of nothing: a document that is all front matter is found by its title and summary.
    """
    start = prose.body_start(content)
    lines = content.count("\n", 0, start)
    spans = split(
        content[start:], content_type=content_type, source=source, tokenizer=tokenizer, window=window, outline=outline
    )
    return [
        documents.Span(
            span.start + start, span.end + start, span.start_line + lines, span.end_line + lines, span.heading
        )
        for span in spans
    ] or [documents.Span(start, len(content), lines + 1, lines + 1)]


def split(
    content: str, *, content_type: str, source: str, tokenizer: Tokenizer, window: int, outline: Outline = marks
) -> list[documents.Span]:
    """Cut `content` into chunks, in order; an empty text has no chunks.

    Offsets of the result are characters of `content`. Any other `content_type` than `CONTENT_TYPES` is treated as
    documentation; the extension of `source` names the grammar of code. `tokenizer` is the embedder's own, `window` the
    most tokens of a chunk that it reads, without prefixes, at least 1. `outline` finds the definitions in code; the
    default reads them in this process, for texts that are trusted.
    """
    sizes = sizes_for(content_type, window)
    ruler = text_blocks.Ruler(content, tokenizer)
    match content_type:
        case documents.CHAT:
            return _chat(ruler, sizes)
        case documents.CODE:
            blocks = code.definitions(ruler, source, sizes.max_tokens, outline) or code.braced_blocks(content)
            return _blocked(ruler, blocks, lambda: code.line_boundaries(content), sizes, ".")
        case _:
            return _prose(ruler, sizes)


def _chat(ruler: text_blocks.Ruler, sizes: ChunkSizes) -> list[documents.Span]:
    """Whole turns, between two roles each by itself; a chunk that begins inside one is headed by its speaker."""
    speech = speech_of(ruler.text)
    conversation = speech.said
    blocks = conversation.turns
    starts = [block.start for block in blocks]

    def heading(start: int, _: int) -> str:
        turn = bisect_right(starts, start) - 1
        # The beginning of a turn names its speaker in the text itself.
        speaker = () if blocks[turn].start == start else blocks[turn].path
        has_stamp = conversation.clocks[turn] in ruler.text[start : start + STAMP_CHARS]
        return " ".join([*(() if has_stamp else (conversation.clocks[turn],)), *speaker])

    def boundaries() -> list[text_blocks.Boundary]:
        return _merged(prose.boundaries(ruler.text, prose.fences(ruler.text)), blocks, text_blocks.Strength.TURN)

    packer = Packer(ruler, boundaries, sizes)
    stretches = speech.stretches()
    if len(stretches) > MOST_PARTS:
        stretches = [(0, len(ruler.text))]
    pieces = [piece for stretch in stretches for piece in packer.pieces(stretch)]
    return _spans(ruler.text, pieces, [heading(*piece) for piece in pieces])


def _prose(ruler: text_blocks.Ruler, sizes: ChunkSizes) -> list[documents.Span]:
    text = ruler.text
    fences = prose.fences(text)
    sections = list(islice(prose.sections(text, fences), MOST_PARTS + 1))
    hard_level = 3 if text.count("\n", 0, -1) >= LONG_DOCUMENT_LINES else 1
    blocks = [
        text_blocks.TextBlock(start, end, path, hard=level <= hard_level, bare=body == end, preamble=level == 0)
        for start, end, body, level, path in sections
    ]
    if len(blocks) > MOST_PARTS:
        blocks, sections = [text_blocks.TextBlock(0, len(text))], []

    @cache
    def whole() -> list[text_blocks.Range]:
        # No cut inside a code fence that the model reads whole: half of it is no code. The line break belongs to it.
        lines = ((start, text.find("\n", end) + 1 or len(text)) for start, end in fences)
        return [fence for fence in lines if ruler.count(*fence) <= sizes.whole_tokens]

    def boundaries() -> list[text_blocks.Boundary]:
        # No cut between a heading and its text.
        bodies = {section.body for section in sections if section.level}
        return list(_outside([unit for unit in prose.boundaries(text, fences) if unit.offset not in bodies], whole()))

    return _blocked(ruler, blocks, boundaries, sizes, " > ", whole)


def _outside(
    boundaries: Sequence[text_blocks.Boundary], ranges: Sequence[text_blocks.Range]
) -> Iterator[text_blocks.Boundary]:
    starts = [start for start, _ in ranges]
    for boundary in boundaries:
        index = bisect_left(starts, boundary.offset) - 1
        if index < 0 or boundary.offset >= ranges[index][1]:
            yield boundary


def _blocked(
    ruler: text_blocks.Ruler,
    blocks: Sequence[text_blocks.TextBlock],
    boundaries: Callable[[], Sequence[text_blocks.Boundary]],
    sizes: ChunkSizes,
    separator: str,
    whole: Callable[[], Sequence[text_blocks.Range]] = tuple,
) -> list[documents.Span]:
    units = text_blocks.headed(blocks)
    packer = Packer(ruler, lambda: _merged(boundaries(), units, text_blocks.Strength.BLOCK), sizes, whole)
    pieces = [piece for group in text_blocks.grouped(units, ruler, sizes.max_tokens) for piece in packer.pieces(group)]
    starts = [block.start for block in blocks]
    headings = [separator.join(text_blocks.path_over(blocks, starts, *piece)) for piece in pieces]
    return _spans(ruler.text, pieces, headings)


def _merged(
    boundaries: Sequence[text_blocks.Boundary], blocks: Sequence[text_blocks.TextBlock], strength: text_blocks.Strength
) -> list[text_blocks.Boundary]:
    # The start of a block takes the place of a weaker boundary at the same offset.
    edges = {block.start for block in blocks if block.start}
    rest = [boundary for boundary in boundaries if boundary.offset not in edges]
    return sorted([*rest, *(text_blocks.Boundary(edge, strength) for edge in edges)])


def _spans(text: str, pieces: Sequence[text_blocks.Range], headings: Sequence[str]) -> list[documents.Span]:
    """Spans with their lines: that of the first character, and that of the last one that can be seen."""
    spans: list[documents.Span] = []
    position, line = 0, 1
    for (start, end), heading in zip(pieces, headings, strict=True):
        line += text.count("\n", position, start)
        position = start
        seen = start + len(text[start:end].rstrip())
        spans.append(documents.Span(start, end, line, line + text.count("\n", start, seen), heading))
    return spans
