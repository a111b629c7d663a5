"""The process that converts untrusted files: bounded, without a network, one file after the other.

A request is three frames: parameters (JSON), the file, and a file next to it. The response is a frame of JSON for
each document, then one with the result.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import PurePath

from rag_context.files.formats import exports
from rag_context.files.formats.client_records import counted, read
from rag_context.files.formats.conversation import Conversation, documents
from rag_context.files.formats.exchange import (
    MAX_CHARS,
    OWNER,
    TEAMMATE,
    ConversionError,
    Extracted,
    Format,
    encoded,
)
from rag_context.files.formats.json_stream import BrokenOffError
from rag_context.files.formats.transcripts import CLIENTS
from rag_context.resilience.confinement import CutOffError, Limits, confine, receive, renew, send

_CLIENTS = {client.format: client for client in CLIENTS}
_READERS = {
    Format.PDF: ("pdf", "extract"),
    Format.WORD: ("markup", "extract_word"),
    Format.HTML: ("markup", "extract_html"),
    Format.NOTEBOOK: ("notebook", "extract"),
}
"""The module here and its function, by format."""


def run(limits: Limits) -> None:
    """Answer requests on standard input until it ends, or until a failure that affects later requests."""
    confine(limits)
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    is_sound = True
    while is_sound:
        try:
            request, data, beside = json.loads(receive(requests)), receive(requests), receive(requests)
        except CutOffError:
            return
        renew(limits)
        try:
            for found in extract(Format(request["format"]), request["name"], data, beside, limits):
                send(answers, encoded(found))
            outcome: dict[str, object] = {"ended": True}
        except ConversionError as error:
            outcome = {"reason": str(error), "expected": error.expected}
        except MemoryError:
            # Libraries may be left in any state: the answer is sent, and this process takes no further file.
            is_sound = False
            outcome = {"reason": f"needs more than {limits.memory_bytes >> 20} MiB of memory"}
        send(answers, json.dumps(outcome).encode())


def extract(format_: Format, name: str, data: bytes, beside: bytes, limits: Limits) -> Iterator[Extracted]:
    """The documents in a file.

    Args:
        format_: what it is.
        name: its path; conversations without an id of their own are named after it.
        data: its bytes.
        beside: the users of a Slack export.
        limits: bounds of what is unpacked.

    Raises:
        ConversionError: it cannot be read, or not to its end.
    """
    if not data.strip():
        raise ConversionError("empty", expected=True)
    path = PurePath(name)
    found = False
    try:
        for document in _documents(format_, path, data, beside, limits):
            if len(document.content) > MAX_CHARS:
                raise ConversionError(f"holds more than {MAX_CHARS} characters")
            found = True
            yield document
    except BrokenOffError as error:
        so_far = "; what precedes that was indexed" if found else ""
        raise ConversionError(f"its JSON breaks off or is broken{so_far}") from error
    if not found:
        raise ConversionError("holds no text", expected=True)


def _documents(format_: Format, path: PurePath, data: bytes, beside: bytes, limits: Limits) -> Iterable[Extracted]:
    match format_:
        case Format.CHATGPT:
            return _documents_of(exports.chatgpt(data), OWNER)
        case Format.CLAUDE:
            return _documents_of(exports.claude(data), OWNER)
        case Format.SLACK:
            day = exports.slack(data, path.parent.name or path.stem, exports.slack_names(beside))
            return _documents_of([day], TEAMMATE)
        case Format.TRANSCRIPT:
            return _documents_of(exports.transcript(data, path.stem), None)
        case _ if format_ in _CLIENTS:
            return _documents_of([read(_CLIENTS[format_], data, path.stem)], OWNER)
        case _:
            return [_document(format_, data, limits)]


def _documents_of(conversations: Iterable[Conversation], origin: str | None) -> Iterator[Extracted]:
    """The documents of conversations. Raises: ConversionError if none of them has a message."""
    left_out: Counter[str] = Counter()
    is_empty = True
    for conversation in conversations:
        for document in documents(conversation):
            is_empty = False
            yield replace(document, origin=origin)
        left_out.update(conversation.left_out)
    if is_empty and left_out:
        reason = f"has no message of a person or a model; left out: {counted(left_out)}"
        raise ConversionError(reason, expected=True)


def _document(format_: Format, data: bytes, limits: Limits) -> Extracted:
    """By the libraries of the extra, each loaded when the first file needs it."""
    module, name = _READERS[format_]
    extract_: Callable[[bytes, Limits], Extracted] = getattr(import_module(f"rag_context.files.formats.{module}"), name)
    return extract_(data, limits)
