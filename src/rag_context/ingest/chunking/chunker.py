"""Cuts a text into the chunks that are embedded and returned.

The chunks, overlap removed, give back the text exactly; each fits the embedder's window by the embedder's own count;
sizes and overlap of each kind of content are upper bounds. Where the window is smaller than 512
tokens, prose and conversations are packed to 128 instead, whole sentences or turns and no overlap: measured best on the
answer spans of five long texts, where ranking smooths over neighbouring chunks.

Headings bound chunks before sizes do. An H1 always begins a chunk; in documents of more than 500 lines so do H2 and
H3. Elsewhere a heading begins a chunk unless what runs before it is too small to stand alone (`blocks.grouped`).
A heading never parts from its text. `Span.heading` is the deepest path that *all* of the chunk stands under: a
chunk that includes `Status` and `Context` of one decision stands under that decision, not under `Status`.
"""

from bisect import bisect_right
from collections.abc import Sequence

from rag_context.domain import documents
from rag_context.ingest.chunking import code, markdown, sentences, syntax
from rag_context.ingest.chunking import messages as turns
from rag_context.ingest.chunking.blocks import Block, Boundary, Range, Strength, grouped, headed, path_over
from rag_context.ingest.chunking.packing import ChunkSizes, Packer
from rag_context.ingest.chunking.ruler import Ruler
from rag_context.ports.models import Tokenizer

__all__ = ["ChunkSizes", "sizes_for", "split", "split_body"]

LARGE_WINDOW_TOKENS = 512
SMALL_WINDOW_CHUNK_TOKENS = 128
LONG_DOCUMENT_LINES = 500
STAMP_CHARS = 40
"""Within so many characters from the start of a turn stands its time, if anywhere."""


def sizes_for(content_type: str, window: int) -> ChunkSizes:
    """Bounds of a chunk of this kind of content under an embedder that reads `window` tokens."""
    if content_type == documents.CODE:
        size = min(256, window)
        return ChunkSizes(size, min(25, size // 10))
    if window >= LARGE_WINDOW_TOKENS:
        return ChunkSizes(512, 50)
    return ChunkSizes(min(SMALL_WINDOW_CHUNK_TOKENS, window), 0)


def split_body(
    content: str, *, content_type: str, source: str, tokenizer: Tokenizer, window: int
) -> list[documents.Span]:
    """As `split`, without the front matter; offsets and lines are those of the whole content.

    At least one chunk, even of nothing: a document that is all front matter is found by its title and summary.
    """
    start = markdown.body_start(content)
    lines = content.count("\n", 0, start)
    spans = split(content[start:], content_type=content_type, source=source, tokenizer=tokenizer, window=window)
    return [
        documents.Span(
            span.start + start, span.end + start, span.start_line + lines, span.end_line + lines, span.heading
        )
        for span in spans
    ] or [documents.Span(start, len(content), lines + 1, lines + 1)]


def split(content: str, *, content_type: str, source: str, tokenizer: Tokenizer, window: int) -> list[documents.Span]:
    """Cut `content` into chunks, in order; an empty text has no chunks.

    Args:
        content: The text; offsets of the result are characters of it.
        content_type: One of `types.CONTENT_TYPES`; any other is treated as documentation.
        source: Where the text comes from; its extension names the grammar of code.
        tokenizer: The embedder's own.
        window: Most tokens of a chunk that the embedder reads, without prefixes; at least 1.
    """
    sizes = sizes_for(content_type, window)
    ruler = Ruler(content, tokenizer)
    match content_type:
        case documents.CHAT:
            return _chat(ruler, sizes)
        case documents.CODE:
            return _code(ruler, source, sizes)
        case _:
            return _prose(ruler, sizes)


def _chat(ruler: Ruler, sizes: ChunkSizes) -> list[documents.Span]:
    """Whole turns; a chunk that begins inside one is headed by its speaker, one without a stamp of time by the last."""
    fences = markdown.fences(ruler.text)
    conversation = turns.conversation(ruler.text, fences)
    blocks = conversation.turns
    boundaries = _merged(sentences.boundaries(ruler.text, fences), blocks, Strength.TURN)
    starts = [block.start for block in blocks]

    def heading(start: int, _: int) -> str:
        place = bisect_right(starts, start) - 1
        speaker = () if blocks[place].start == start else blocks[place].path
        said = conversation.clocks[place] in ruler.text[start : start + STAMP_CHARS]
        return " ".join([*(() if said else (conversation.clocks[place],)), *speaker])

    pieces = list(Packer(ruler, boundaries, sizes).pieces((0, len(ruler.text))))
    return _spans(ruler.text, pieces, [heading(*piece) for piece in pieces])


def _code(ruler: Ruler, source: str, sizes: ChunkSizes) -> list[documents.Span]:
    blocks = syntax.definitions(ruler, source, sizes.max_tokens) or code.braced_blocks(ruler.text)
    return _blocked(ruler, blocks, code.line_boundaries(ruler.text), sizes, ".")


def _prose(ruler: Ruler, sizes: ChunkSizes) -> list[documents.Span]:
    text = ruler.text
    fences = markdown.fences(text)
    sections = markdown.sections(text, fences)
    hard_level = 3 if text.count("\n", 0, -1) >= LONG_DOCUMENT_LINES else 1
    blocks = [
        Block(
            section.start,
            section.end,
            section.path,
            hard=section.level <= hard_level,
            bare=section.body == section.end,
            preamble=section.level == 0,
        )
        for section in sections
    ]
    bodies = {section.body for section in sections if section.level}
    boundaries = [unit for unit in sentences.boundaries(text, fences) if unit.offset not in bodies]
    return _blocked(ruler, blocks, boundaries, sizes, " > ")


def _blocked(
    ruler: Ruler, blocks: Sequence[Block], boundaries: Sequence[Boundary], sizes: ChunkSizes, separator: str
) -> list[documents.Span]:
    units = headed(blocks)
    packer = Packer(ruler, _merged(boundaries, units, Strength.BLOCK), sizes)
    pieces = [piece for group in grouped(units, ruler, sizes.max_tokens) for piece in packer.pieces(group)]
    starts = [block.start for block in blocks]
    headings = [separator.join(path_over(blocks, starts, *piece)) for piece in pieces]
    return _spans(ruler.text, pieces, headings)


def _merged(boundaries: Sequence[Boundary], blocks: Sequence[Block], strength: Strength) -> list[Boundary]:
    edges = {block.start for block in blocks if block.start}
    rest = [boundary for boundary in boundaries if boundary.offset not in edges]
    return sorted([*rest, *(Boundary(edge, strength) for edge in edges)])


def _spans(text: str, pieces: Sequence[Range], headings: Sequence[str]) -> list[documents.Span]:
    """Spans with their lines: that of the first character, and that of the last one that can be seen."""
    spans: list[documents.Span] = []
    position, line = 0, 1
    for (start, end), heading in zip(pieces, headings, strict=True):
        line += text.count("\n", position, start) if start >= position else -text.count("\n", start, position)
        position = start
        seen = start + len(text[start:end].rstrip())
        spans.append(documents.Span(start, end, line, line + text.count("\n", start, seen), heading))
    return spans
