"""Documents as JSON lines (C-3)."""

import io
import json
import tracemalloc

import pytest

from rag_context.api.index import BulkLine
from rag_context.api.wire import Vocabulary
from rag_context.domain.documents import Metadata
from rag_context.files.file_reading import Labels, Rejected
from rag_context.files.sending import LINE_BYTES, read_documents

WHOLE = {"content": "text", "contentType": "code", "sessionId": "s", "source": "a"}


def read(*lines: object, labels: Labels | None = None, raw: bytes = b"") -> list[BulkLine | Rejected]:
    stream = b"".join(json.dumps(line).encode() + b"\n" for line in lines) + raw
    model = BulkLine.with_vocabulary(Vocabulary())
    return list(read_documents(io.BytesIO(stream), "docs.jsonl", labels or Labels(), model))


def reasons(raw: bytes) -> list[str]:
    return [each.reason if isinstance(each, Rejected) else "taken" for each in read(raw=raw)]


def test_a_line_is_what_the_bulk_route_accepts() -> None:
    (line,) = read({**WHOLE, "metadata": {"tags": ["x"], "ticket": 7}, "fromFile": True})

    assert isinstance(line, BulkLine)
    assert line.from_file
    assert line.metadata is not None
    assert line.metadata.to_metadata() == Metadata(tags=("x",), extra={"ticket": 7})


def test_labels_supply_what_a_line_does_not() -> None:
    labels = Labels("decision", "talks", Metadata(agent="me", tags=("x",), category="bugfix", game="g"))
    bare, full = read(
        {"content": "text", "source": "a"}, {**WHOLE, "metadata": {"agent": "you", "tags": ["y"]}}, labels=labels
    )

    assert isinstance(bare, BulkLine)
    assert isinstance(full, BulkLine)
    assert (bare.content_type, bare.session_id) == ("decision", "talks")
    assert bare.metadata is not None
    expected = {"agent": "me", "tags": ["x"], "category": "bugfix", "game": "g"}
    assert bare.metadata.model_dump(exclude_none=True) == expected
    assert (full.content_type, full.session_id) == ("code", "s")
    assert full.metadata is not None
    assert (full.metadata.agent, full.metadata.tags) == ("you", ["y", "x"])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "Not JSON: "),
        (b"[" * 100_000, "Not JSON: "),
        (b"\xff\xfe", "Not JSON: "),
        (b'"text"', "Not a JSON object"),
        (b'{"content": "x", "source": "a"}', "Content type required"),
        (b'{"content": "", "source": "a", "contentType": "code"}', "Content cannot be empty"),
        (b'{"content": "x", "contentType": "code"}', "Source required"),
        (b'{"content": "x", "source": "a", "contentType": "cod"}', "contentType must be one of "),
        (b'{"content": "x", "source": "a", "contentType": "code", "metadata": 3}', "metadata must be an object"),
        (b'{"content": "\\ud800", "source": "a", "contentType": "code"}', ""),
        (b'{"contents": "x"}', ""),
    ],
)
def test_a_bad_line_is_reported_and_stops_no_other(line: bytes, reason: str) -> None:
    good = json.dumps(WHOLE).encode()

    first, last = reasons(line + b"\n" + good)

    assert first != "taken"
    assert first.startswith(reason)
    assert last == "taken"


def test_a_bad_line_is_named_by_its_number() -> None:
    (rejected,) = read(raw=b"\n\n{\n")

    assert isinstance(rejected, Rejected)
    assert rejected.path == "docs.jsonl:3"


def test_empty_lines_and_marks_say_nothing_and_the_last_needs_no_end() -> None:
    assert len(read(WHOLE, raw=b"\r\n  \n\xef\xbb\xbf" + json.dumps(WHOLE).encode())) == 2
    assert read() == []


def test_a_line_without_end_costs_no_memory() -> None:
    raw: io.RawIOBase = _Endless(LINE_BYTES * 4, json.dumps(WHOLE).encode())
    stream = io.BufferedReader(raw)
    tracemalloc.start()
    try:
        first, last = read_documents(stream, "docs.jsonl", Labels())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert isinstance(first, Rejected)
    assert first.reason == f"Line too long (max {LINE_BYTES} bytes)"
    assert isinstance(last, BulkLine)
    assert peak < LINE_BYTES * 3


class _Endless(io.RawIOBase):
    """A very long line, then another."""

    def __init__(self, size: int, last: bytes) -> None:
        self._left = size
        self._last = b"\n" + last

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray") -> int:  # type: ignore[override]
        if self._left > 0:
            count = min(self._left, len(buffer))
            buffer[:count] = b"x" * count
            self._left -= count
            return count
        count = min(len(self._last), len(buffer))
        buffer[:count], self._last = self._last[:count], self._last[count:]
        return count
