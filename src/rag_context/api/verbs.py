"""`remember` and `recall`: one sentence is kept, and one question gets what a project knows beside what is general.

They fill in the fields of indexing and searching. What belongs to a project carries a tag that begins with
`PROJECT_TAG`; `agents.workspace` computes it. A document without one is general: it may be shown in any project.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Final, Literal

from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.api.parsing import read_fields
from rag_context.api.search import SearchResponse
from rag_context.domain.documents import CHAT, DECISION, DOCUMENTATION, PROJECT_TAG
from rag_context.domain.own_words import instructions
from rag_context.errors import BackendUnavailableError, InvalidInputError

Kind = Literal["decision", "instruction", "fix", "note"]

REMEMBERED: Final = "remembered"
"""The session of all that was remembered, and the beginning of each source."""

_CONTENT_TYPES: Final[dict[Kind, str]] = {
    "decision": DECISION,
    # Standing instructions are what a user says to an assistant.
    "instruction": CHAT,
    "fix": DECISION,
    "note": DOCUMENTATION,
}
_CATEGORIES: Final[dict[Kind, str]] = {"fix": "bugfix"}


def remembered(text: str, kind: Kind = "decision", tags: Sequence[str] = (), workspace: str | None = None) -> BulkLine:
    """The document that keeps the owner's own words; the same words of the same project are the same document.

    A tag of a project takes the place of `workspace`; without either the words are general.

    Raises: InvalidInputError (the text is empty or too long, or a tag cannot be used).
    """
    labels = with_workspace(tags, workspace)
    projects = sorted(tag for tag in labels if tag.startswith(PROJECT_TAG))
    key = blake2b("\0".join([text, *projects]).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    if kind == "instruction":  # as a user says it, so that it stands from now on
        text = f"User: {text}" if instructions(f"User: {text}") else f"User: From now on: {text}"
    return read_fields(
        BulkLine,
        {
            "content": text,
            "contentType": _CONTENT_TYPES[kind],
            "sessionId": REMEMBERED,
            "source": f"{REMEMBERED}/{key}",
            "metadata": {"tags": labels, "category": _CATEGORIES.get(kind)},
            "origin": "owner",
        },
    )


def with_workspace(tags: Iterable[str], workspace: str | None) -> list[str]:
    """The tags of a document that belongs to a project, unless they name one already."""
    given = list(tags)
    if workspace is None or any(tag.startswith(PROJECT_TAG) for tag in given):
        return given
    return [*given, workspace]


def kept(receipt: BulkReceipt) -> BulkReceipt:
    """The receipt of what was remembered. Raises: InvalidInputError, BackendUnavailableError."""
    if receipt.status not in {"rejected", "forgotten"}:
        return receipt
    reason = f"This was not remembered: {receipt.reason or 'it was rejected'}"
    if receipt.retryable:
        raise BackendUnavailableError("memory", f"{reason.rstrip('.')}. Try again.")
    raise InvalidInputError(reason)


def recalled(everything: SearchResponse, own: SearchResponse, workspace: str, limit: int) -> SearchResponse:
    """What a project may be shown of an answer from the whole memory, then what the project itself has beside it.

    Two searches, because no store can filter for "this project or none": where other projects fill the first answer,
    the second still has this one's.
    """
    results = [each for each in everything.results if may_show(each.metadata.get("tags") or (), workspace)]
    best_is_shown = results[:1] == everything.results[:1]
    known = {each.chunk_id for each in results}
    results += [each for each in own.results if each.chunk_id not in known]
    standing = [each for each in everything.standing or () if may_show(each.tags or (), workspace)]
    listed = {each.chunk_id for each in standing}
    standing += [each for each in own.standing or () if each.chunk_id not in listed]
    return everything.model_copy(
        update={
            "results": results[:limit],
            "standing": standing or None,
            "no_answer": everything.no_answer if best_is_shown else own.no_answer,
        }
    )


def may_show(tags: Iterable[str], workspace: str) -> bool:
    """Whether a document with these tags belongs to the project, or to none."""
    projects = {tag for tag in tags if tag.startswith(PROJECT_TAG)}
    return not projects or workspace in projects
