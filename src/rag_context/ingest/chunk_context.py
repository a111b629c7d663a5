"""A document's chunks and what surrounds them: its title, the headings they stand under, and its near-duplicates.

Title and headings are embedded and matched with the chunk, so that a later part of a document differs from the same
text elsewhere; they are never returned. Of a project's file, its summary and tags stand with the first chunk.
Near-duplicates are found by SimHash (Charikar 2002, "Similarity estimation techniques from rounding algorithms").
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache

import numpy as np

from rag_context.domain import documents, provenance
from rag_context.domain.documents import Channel, Chunk, Document, DocumentInput, Metadata, Origin, Span, chunk_ids
from rag_context.domain.provenance import SPEAKER_FIELDS, front_matter, role_name, stated_message_times, time_at
from rag_context.domain.text import term_key
from rag_context.ingest.chunking.chunker import split, split_body
from rag_context.ingest.chunking.prose import body_start, fences, sections, speech_of
from rag_context.ingest.chunking.syntax import Outline, marks
from rag_context.ports.models import Tokenizer

CONTEXT_TOKENS = 32
"""Most tokens of context; a chunk is cut this much shorter than the model's window, so that both fit."""

ABOUT_TOKENS = 64
"""Most tokens of a file's summary and tags that are embedded with its first chunk."""

_PATH = " > "


def chunks_of(document: Document, tokenizer: Tokenizer, window: int, outline: Outline = marks) -> list[Chunk]:
    """The chunks of a document with their context, each within a model's `window` of tokens; blocking."""
    budget = max(window - CONTEXT_TOKENS, CONTEXT_TOKENS)
    cut = split_body if document.tenant.has_files else split
    spans = cut(
        document.content,
        content_type=document.content_type,
        source=document.source,
        tokenizer=tokenizer,
        window=budget,
        outline=outline,
    )
    title = own_title(document.content, document.content_type)
    file = code_file(document.source, document.content_type)
    texts = [document.content[span.start : span.end] for span in spans]
    contexts = [
        context_of(title, span.heading, text, tokenizer, file=file) for span, text in zip(spans, texts, strict=True)
    ]
    if document.tenant.has_files:
        (first,) = tokenizer.count(texts[:1])
        contexts[0] = with_about(contexts[0], about(document.metadata), tokenizer, budget - first)
    ids = chunk_ids(document.id, zip(contexts, texts, strict=True))
    return chunks_at(document, spans, ids, contexts, [None] * len(spans))


def chunks_at(
    document: Document,
    spans: Sequence[Span],
    ids: Iterable[str],
    contexts: Iterable[str],
    times: Iterable[datetime | None],
) -> list[Chunk]:
    """The chunks of these spans of a document; `times` are those that are known, the others follow from its text."""
    stated, speakers = message_times(document), speakers_of(document, spans)
    return [
        Chunk(
            id_,
            document.id,
            position,
            document.content[span.start : span.end],
            span,
            context,
            occurred_at=at or time_at(stated, span.start, span.end, document.occurred_at),
            speaker=speaker,
            origin=origin,
            is_standing=is_standing,
        )
        for position, (span, id_, context, at, speaker, (origin, is_standing)) in enumerate(
            zip(spans, ids, contexts, times, speakers, origins_of(document, spans, speakers), strict=True)
        )
    ]


def cut_alike(stored: Iterable[Chunk], chunks: Iterable[Chunk]) -> bool:
    """Whether a document's stored chunks are these, said by the same."""
    known, made = (
        [(chunk.id, chunk.speaker, chunk.origin, chunk.is_standing) for chunk in each] for each in (stored, chunks)
    )
    return known == made


def message_times(document: Document) -> Sequence[documents.MessageTime]:
    """The times of a conversation's messages: as submitted, else as its text states them; none elsewhere."""
    if document.message_times or document.content_type != documents.CHAT:
        return document.message_times
    return stated_message_times(document.content)


def origin_of(document: DocumentInput) -> Origin:
    """Whose words a document is: as submitted, else by how it came in and who speaks."""
    if document.origin is not None:
        return document.origin
    names: set[str] = set()
    if document.content_type == documents.CHAT:
        names = {_stated_speaker(document.metadata)} - {""} or speech_of(document.content).names
    return provenance.origin_of(document.content_type, document.source, document.channel, names)


def origins_of(document: Document, spans: Sequence[Span], speakers: Sequence[str | None]) -> list[tuple[Origin, bool]]:
    """Of each span, which one says, whose words it is, and whether it holds a standing instruction."""
    pieces = [(span.start, span.end, speaker) for span, speaker in zip(spans, speakers, strict=True)]
    return provenance.origins(document.content, document.content_type, document.origin, pieces)


def speakers_of(document: Document, spans: Sequence[Span]) -> list[str | None]:
    """Who alone said each span of a conversation, by its metadata or its text; see `Chunk.speaker`."""
    if document.content_type != documents.CHAT:
        return [None] * len(spans)
    if speaker := _stated_speaker(document.metadata):
        return [speaker] * len(spans)
    speech = speech_of(document.content)
    return [speech.speaker(span.start, span.end) for span in spans]


def _stated_speaker(metadata: Metadata) -> str:
    """Who says a single message, by its metadata; empty where that does not say."""
    names = (metadata.extra.get(field) for field in SPEAKER_FIELDS)
    return role_name(_one_line(next((name for name in names if isinstance(name, str) and name.strip()), "")))


def context_of(title: str, heading: str, text: str, tokenizer: Tokenizer, *, file: str = "") -> str:
    """Title and headings that `text` does not hold itself, as one line of at most `CONTEXT_TOKENS` tokens.

    The `file` that code lies in, if one is given, stands on a line above: it is matched, and not embedded
    (`Chunk.embedded`).
    """
    headings = _headings(title, heading, text, tokenizer)
    return f"{file}\n{headings}" if file else headings


def about(metadata: Metadata) -> str:
    """Summary and tags of a project's file on one line; "" where its front matter has neither."""
    summary, tags = metadata.extra.get("summary"), metadata.extra.get("tags")
    parts = [summary if isinstance(summary, str) else ""]
    parts += [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    return " ".join(" ".join(parts).split())


def with_about(context: str, summary: str, tokenizer: Tokenizer, budget: int) -> str:
    """The context of a file's first chunk with summary and tags, embedded as far as `budget` tokens allow."""
    if not summary:
        return context
    embedded = min(budget, ABOUT_TOKENS)
    (count,) = tokenizer.count([summary])
    if count <= embedded:
        return f"{context} | {summary}" if context else summary
    # Too long to be embedded: on a line of its own, which is only matched.
    return f"{summary}\n{context}"


def _headings(title: str, heading: str, text: str, tokenizer: Tokenizer) -> str:
    parts = dict.fromkeys([title, *heading.split(_PATH)])
    # What the text has itself would be embedded and matched twice.
    context = _PATH.join(part for part in parts if part and part not in text)
    if not context:
        return ""
    offsets = tokenizer.offsets(context)
    return context if len(offsets) <= CONTEXT_TOKENS else context[: offsets[CONTEXT_TOKENS - 1][1]]


MAX_TITLE_CHARS = 200
MAX_LINE_CHARS = 80
"""Of a first line that stands for a title."""

HEAD_CHARS = 4_000
"""So much of a text is searched for a first line with a word in it."""

FILE_PARTS = 2
"""Of a path, that say which file it is: the last folder and the name."""

_TITLE = re.compile(r"^title[ \t]*+:[ \t]++(?P<value>[^\n]++)", re.MULTILINE)
_QUOTED = re.compile(r"\"(?P<double>(?:[^\"\\]|\\.)*+)\"|'(?P<single>(?:[^']|'')*+)'")
_COMMENT = re.compile(r"(?:^|[ \t])#")
_SEPARATOR = re.compile(r"[/\\]")
_MARKS = re.compile(r"^(?:[\s>#*+=~-]|\d{1,9}[.)](?=\s))++")
_LETTER = re.compile(r"[^\W\d_]")


def title_of(
    content: str, source: str, content_type: str, metadata: Metadata | None = None, channel: Channel = Channel.TOOL
) -> str:
    """What a document is listed under; one line, never empty.

    Its own title, else the `title` of its metadata, else its first heading. Without these a file and code are listed
    under the last segment of `source`, another text under its first line, if it has one.
    """
    stated = metadata.extra.get("title") if metadata is not None else None
    is_prose = content_type not in (documents.CODE, documents.CHAT)
    return (
        own_title(content, content_type)
        or _one_line(stated if isinstance(stated, str) else "")
        or (_one_line(_first_heading(content, 6)) if is_prose and channel is Channel.FILE else "")
        or ("" if content_type == documents.CODE or channel is Channel.FILE else _first_line(content))
        or _one_line(next((part for part in reversed(_SEPARATOR.split(source)) if part.strip()), ""))
        or _one_line(source)
        or "Untitled"
    )


def own_title(content: str, content_type: str) -> str:
    """The title in the front matter, else the first H1; one line, empty where the document has neither.

    A chat has only the one in its front matter, and code has no title: a `#` in them is no heading.
    """
    match content_type:
        case documents.CODE:
            return ""
        case documents.CHAT:
            return _one_line(_front_matter_title(content))
        case _:
            return _one_line(_front_matter_title(content) or _first_heading(content, 1))


def code_file(source: str, content_type: str) -> str:
    """The file that code lies in, with its folder; empty for any other kind of content."""
    if content_type != documents.CODE:
        return ""
    parts = [part for part in _SEPARATOR.split(source) if part.strip()]
    return _one_line("/".join(parts[-FILE_PARTS:]))


def _front_matter_title(content: str) -> str:
    start, end = front_matter(content)
    match = _TITLE.search(content[start:end])
    return _scalar(match["value"].strip()) if match else ""


def _scalar(value: str) -> str:
    """A YAML scalar of one line; what goes on over several lines is not read."""
    if quoted := _QUOTED.match(value):
        if quoted["double"] is not None:
            return re.sub(r"\\(.)", r"\1", quoted["double"])
        return quoted["single"].replace("''", "'")
    if value[:1] in "|>&*!{[":
        return ""
    return _COMMENT.split(value, maxsplit=1)[0]


def _first_heading(content: str, last_level: int) -> str:
    found = sections(content, fences(content))
    return next((each.path[-1] for each in found if each.level <= last_level and each.path), "")


def _first_line(content: str) -> str:
    """The first line with a letter in it, without Markdown's marks, cut behind a word."""
    start = body_start(content)
    for line in content[start : start + HEAD_CHARS].splitlines():
        text = _one_line(_MARKS.sub("", line).replace("**", "").replace("`", ""))
        if not _LETTER.search(text) or text.startswith(("<", "|")):
            continue
        return text if len(text) <= MAX_LINE_CHARS else text[:MAX_LINE_CHARS].rsplit(maxsplit=1)[0] + " …"
    return ""


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_TITLE_CHARS].rstrip()


HASH_BITS = 64
_FIELD_BYTES = 4
_SPREAD = [
    int.from_bytes(bytes(byte for bit in range(8) for byte in (0, 0, 0, value >> (7 - bit) & 1)), "big")
    for value in range(256)
]
"""Each byte with a field of its own for every bit, in which occurrences are counted."""


def similarity_hash(terms: Sequence[str]) -> int:
    """SimHash of `terms`, each weighted by how often it occurs, as a signed 64-bit integer; 0 without terms."""
    # All bits are summed by one addition of long integers: a text of twenty words takes a third of the time with numpy.
    sums = sum(_spread(term) * count for term, count in Counter(terms).items())
    ones = np.frombuffer(sums.to_bytes(HASH_BITS * _FIELD_BYTES, "big"), ">u4")
    # A bit is 1 where the terms that have it outweigh those that have not.
    bits = np.packbits(ones * 2 > len(terms))
    return int.from_bytes(bits.tobytes(), "big", signed=True)


@lru_cache(maxsize=16_384)
def _spread(term: str) -> int:
    """The hash of a term, each bit in a field of `_FIELD_BYTES`."""
    spread = 0
    for byte in term_key(term).to_bytes(HASH_BITS // 8, "little"):
        spread = spread << 8 * 8 * _FIELD_BYTES | _SPREAD[byte]
    return spread
