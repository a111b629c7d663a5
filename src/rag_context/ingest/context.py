"""What a chunk does not say of itself: the title and headings it stands under.

Embedded and matched with the chunk, they tell a later part of a document from the same words elsewhere; they
are never returned. Of a project's file, what its front matter says of it (summary, tags) stands with the first chunk.
"""

from rag_context.domain.documents import Metadata
from rag_context.ports.models import Tokenizer

CONTEXT_TOKENS = 32
"""Most tokens of context; a chunk is cut this much shorter than the model's window, so that both fit."""

ABOUT_TOKENS = 64
"""Most tokens of what a file's front matter says of it that are embedded with its first chunk."""

_PATH = " > "


def context_of(title: str, heading: str, text: str, tokenizer: Tokenizer, *, file: str = "") -> str:
    """Title and headings that `text` does not hold itself, as one line of at most `CONTEXT_TOKENS` tokens.

    The file, if one is given, stands on a line above: it is matched, and not embedded (`Chunk.embedded`).

    Args:
        title: the document's own title; empty where it has none.
        heading: the heading path of the chunk, as in `Span.heading`.
        text: the chunk.
        tokenizer: measures tokens.
        file: where code lies; empty for other kinds of content.
    """
    headings = _headings(title, heading, text, tokenizer)
    return f"{file}\n{headings}" if file else headings


def about(metadata: Metadata) -> str:
    """Summary and tags of a project's file on one line; "" where its front matter has none."""
    summary, tags = metadata.extra.get("summary"), metadata.extra.get("tags")
    said = [summary if isinstance(summary, str) else ""]
    said += [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    return " ".join(" ".join(said).split())


def with_about(context: str, said: str, tokenizer: Tokenizer, room: int) -> str:
    """The context of a file's first chunk with what the file says of itself.

    It is embedded as far as `room` tokens allow, and matched anyway.
    """
    if not said:
        return context
    embedded = min(room, ABOUT_TOKENS)
    offsets = tokenizer.offsets(said)
    if len(offsets) <= embedded:
        return f"{context} | {said}" if context else said
    return f"{said}\n{context}"


def _headings(title: str, heading: str, text: str, tokenizer: Tokenizer) -> str:
    parts = dict.fromkeys([title, *heading.split(_PATH)])
    context = _PATH.join(part for part in parts if part and part not in text)
    if not context:
        return ""
    offsets = tokenizer.offsets(context)
    return context if len(offsets) <= CONTEXT_TOKENS else context[: offsets[CONTEXT_TOKENS - 1][1]]
