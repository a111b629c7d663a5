"""Documents as JSON lines, from a file or a pipe of any length: one object a line, as `POST /bulk` takes them."""

import json
from collections.abc import Iterator
from typing import BinaryIO

from rag_context.api.index import BulkLine
from rag_context.api.reading import read_fields
from rag_context.errors import InvalidInputError
from rag_context.files.reading import FILES_SESSION, Labels, Rejected

LINE_BYTES = 16 * 1024 * 1024
"""Longest line; a longer one is skipped, not kept."""

_SKIPPED_AT_ONCE = 1 << 16


def read_documents(
    file: BinaryIO, name: str, labels: Labels, model: type[BulkLine] = BulkLine
) -> Iterator[BulkLine | Rejected]:
    """The documents of a stream, one at a time; empty lines are skipped.

    Args:
        file: the stream, at its beginning.
        name: its name in messages about rejected lines.
        labels: defaults for documents without these fields; tags are added to theirs.
        model: the schema of a line.
    """
    for number, line in enumerate(_lines(file), start=1):
        try:
            if document := _document(line, labels, model):
                yield document
        except InvalidInputError as error:
            yield Rejected(f"{name}:{number}", str(error))


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """The lines; None in place of one that is too long."""
    while line := file.readline(LINE_BYTES + 1):
        if len(line) <= LINE_BYTES:
            yield line.strip().removeprefix(b"\xef\xbb\xbf")
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(_SKIPPED_AT_ONCE)
        yield None


def _document(line: bytes | None, labels: Labels, model: type[BulkLine]) -> BulkLine | None:
    if line is None:
        raise InvalidInputError(f"Line too long (max {LINE_BYTES} bytes)")
    if not line:
        return None
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"Not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InvalidInputError("Not a JSON object")
    return read_fields(model, _labelled(fields, labels))


def _labelled(fields: dict[str, object], labels: Labels) -> dict[str, object]:
    said = {name: value for name, value in fields.items() if value is not None}
    own = said.get("metadata", {})
    whole: dict[str, object] = {"sessionId": labels.session_id or FILES_SESSION}
    if labels.content_type is not None:
        whole["contentType"] = labels.content_type
    whole |= said
    if isinstance(own, dict):
        whole["metadata"] = _metadata(own, labels)
    return whole


def _metadata(own: dict[str, object], labels: Labels) -> dict[str, object]:
    ours = labels.metadata
    known = {"agent": ours.agent, "category": ours.category, "game": ours.game}
    whole: dict[str, object] = {name: value for name, value in known.items() if value is not None} | own
    tags = own.get("tags") or []
    if ours.tags and isinstance(tags, list):
        whole["tags"] = [*tags, *ours.tags]
    return whole
