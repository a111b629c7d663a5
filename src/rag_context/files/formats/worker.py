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

from rag_context.files.formats import exchange
from rag_context.files.formats.json_stream import BrokenOffError
from rag_context.files.histories import client_records, exports, transcripts
from rag_context.files.histories.conversation import Conversation, documents
from rag_context.files.histories.copied import copied
from rag_context.resilience.confinement import CutOffError, ProcessLimits, confine, receive, renew, send

_CLIENTS = {client.format: client for client in transcripts.CLIENTS}
_READERS = {
    exchange.Format.PDF: ("pdf", "extract"),
    exchange.Format.WORD: ("markup", "extract_word"),
    exchange.Format.HTML: ("markup", "extract_html"),
    exchange.Format.NOTEBOOK: ("notebook", "extract"),
}
"""The module here and its function, by format."""


def run(limits: ProcessLimits) -> None:
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
            ways = exchange.Ways(request["max_chars"], request["drivers"], request["repeated"])
            for found in extract(exchange.Format(request["format"]), request["name"], data, beside, limits, ways):
                send(answers, exchange.encoded(found))
            outcome: dict[str, object] = {"ended": True}
        except exchange.ConversionError as error:
            outcome = {"reason": str(error), "expected": error.expected}
        except MemoryError:
            # Libraries may be left in any state: the answer is sent, and this process takes no further file.
            is_sound = False
            outcome = {"reason": f"needs more than {limits.memory_bytes >> 20} MiB of memory"}
        send(answers, json.dumps(outcome).encode())


def extract(
    format_: exchange.Format,
    name: str,
    data: bytes,
    beside: bytes,
    limits: ProcessLimits,
    ways: exchange.Ways = exchange.WHOLE,
) -> Iterator[exchange.Extracted]:
    """The documents in a file; `beside` has the users of a Slack export. Raises: ConversionError."""
    if not data.strip():
        raise exchange.ConversionError("empty", expected=True)
    path = PurePath(name)
    found = False
    try:
        for document in _documents(format_, path, data, beside, limits, ways):
            if len(document.content) > exchange.MAX_CHARS:
                raise exchange.ConversionError(f"holds more than {exchange.MAX_CHARS} characters")
            found = True
            yield document
    except RecursionError as error:
        raise exchange.ConversionError("nested too deeply to be for readers") from error
    except BrokenOffError as error:
        so_far = "; what precedes that was indexed" if found else ""
        raise exchange.ConversionError(f"its JSON breaks off or is broken{so_far}") from error
    if not found:
        raise exchange.ConversionError("holds no text", expected=True)


def _documents(
    format_: exchange.Format, path: PurePath, data: bytes, beside: bytes, limits: ProcessLimits, ways: exchange.Ways
) -> Iterable[exchange.Extracted]:
    match format_:
        case exchange.Format.CHATGPT:
            return _documents_of(exports.chatgpt(data), exchange.OWNER)
        case exchange.Format.CLAUDE:
            return _documents_of(exports.claude(data), exchange.OWNER)
        case exchange.Format.SLACK:
            day = exports.slack(data, path.parent.name or path.stem, exports.slack_names(beside))
            return _documents_of([day], exchange.TEAMMATE)
        case exchange.Format.TRANSCRIPT:
            return _documents_of(exports.transcript(data, path.stem), None)
        case exchange.Format.COPIED:
            return _documents_of([copied(data, path.stem)], None)
        case exchange.Format.AIDER:
            return _documents_of(exports.aider(data, path.as_posix()), exchange.OWNER, ways)
        case _ if format_ in _CLIENTS:
            client = _CLIENTS[format_]
            name = path.parent.name if path.name in client.files else path.stem
            return _documents_of([client_records.read(client, data, name, ways)], exchange.OWNER, ways)
        case _:
            return [_document(format_, data, limits)]


def _documents_of(
    conversations: Iterable[Conversation], origin: str | None, ways: exchange.Ways = exchange.WHOLE
) -> Iterator[exchange.Extracted]:
    """The documents of conversations. Raises: ConversionError if none of them has a message."""
    left_out: Counter[str] = Counter()
    is_empty = True
    for conversation in conversations:
        if ways.drivers is not None and conversation.driver not in ("", exchange.PERSON, *ways.drivers):
            raise exchange.ConversionError(f"{conversation.driver} session", expected=True)
        for document in documents(conversation, ways.max_chars):
            is_empty = False
            yield replace(document, origin=origin)
        left_out.update(conversation.left_out)
    if is_empty and left_out:
        reason = f"has no message of a person or a model; left out: {client_records.counted(left_out)}"
        raise exchange.ConversionError(reason, expected=True)


def _document(format_: exchange.Format, data: bytes, limits: ProcessLimits) -> exchange.Extracted:
    """By the libraries of the extra, each loaded when the first file needs it."""
    module, name = _READERS[format_]
    extract_: Callable[[bytes, ProcessLimits], exchange.Extracted] = getattr(
        import_module(f"rag_context.files.formats.{module}"), name
    )
    return extract_(data, limits)
