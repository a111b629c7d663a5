"""JSON one element at a time, so that an export of any size needs the memory of its largest conversation.

A truncated file is read as far as it goes: the beginning of a file is recognised by the same code.
"""

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from json import JSONDecodeError
from typing import TypeAlias

Fields: TypeAlias = dict[str, object]

_STEP = 1 << 20
_BETWEEN = re.compile(r"[\s,]*+")
_LIST = re.compile(r"\"(?:messages|conversations?|turns|transcript|chat|history|requests)\"\s*+:\s*+\[\s*+(?=\{)")
_OBJECT = re.compile(r"\s*+\{")
_BEFORE_LIST_CHARS = 1 << 16
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*+"|["\[\]{},]', re.DOTALL)
_HALF_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?\Z")
_decoder = json.JSONDecoder(strict=False)  # exports hold control characters as they were typed


class BrokenOffError(ValueError):
    """The rest of the file is truncated or not JSON."""


def elements(data: bytes) -> Iterator[Fields]:
    """The objects of a JSON array, or of the messages in an object, as far as they are complete."""
    try:
        yield from whole_elements(data)
    except BrokenOffError:
        return


def whole_elements(data: bytes) -> Iterator[Fields]:
    """As `elements`. Raises: BrokenOffError if the array has no end."""
    source = _Text(data)
    source.more()
    opening = _LIST.search(source.text, 0, _BEFORE_LIST_CHARS) if _OBJECT.match(source.text) else None
    if opening is None and not source.text.lstrip().startswith("["):
        raise BrokenOffError
    place = opening.end() if opening else source.text.index("[") + 1
    while True:
        place = _BETWEEN.match(source.text, place).end()  # type: ignore[union-attr]  # it matches anywhere
        if source.text.startswith("]", place):
            return
        try:
            element, place = _decoder.raw_decode(source.text, place)
        except (JSONDecodeError, RecursionError) as error:
            # The element may only be incomplete: what is decoded already is dropped, and more of the file is read.
            source.text, place = source.text[place:], 0
            if not source.more():
                raise BrokenOffError from error
            continue
        if isinstance(element, dict):
            yield element


def lines(data: bytes) -> Iterator[Fields]:
    """The objects among the lines; other lines are skipped."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        try:
            element = json.loads(data[start:end].strip(b"\xef\xbb\xbf \t\r"))
        except (ValueError, RecursionError):
            element = None
        if isinstance(element, dict):
            yield element
        start = end + 1


def beginning(text: str) -> object:
    """The value at the start of a truncated text: what is open at the end of the text is closed there."""
    try:
        return _decoder.raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError):
        pass
    closing, comma = _open(text)
    for attempt in (_HALF_ESCAPE.sub(r"\1", text) + closing, text + closing, text[:comma] + _open(text[:comma])[0]):
        try:
            return _decoder.decode(attempt)
        except (ValueError, RecursionError):
            continue
    return None


def _open(text: str) -> tuple[str, int]:
    """The closing brackets of all that is open at the end of a text, and the offset of its last structural comma."""
    closing: list[str] = []
    comma = 0
    for match in _STRUCTURE.finditer(text):
        mark = match[0]
        if mark == '"':  # a string without an end: nothing in it is structure
            return '"' + "".join(reversed(closing)), comma
        if mark in "[{":
            closing.append("]" if mark == "[" else "}")
        elif mark in "]}" and closing:
            closing.pop()
        elif mark == ",":
            comma = match.start()
    return "".join(reversed(closing)), comma


def fields(value: object) -> Fields:
    """An object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Fields]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, Sequence) else []


def word(item: Fields, *keys: str) -> str:
    """The first of some fields that holds a text."""
    return next((value for key in keys if isinstance(value := item.get(key), str) and value), "")


class _Text:
    """Decodes bytes piece by piece; each piece is as long as the text so far, so that the time is linear."""

    def __init__(self, data: bytes) -> None:
        self.text = ""
        self._data = data
        self._read = 0
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")

    def more(self) -> bool:
        """Read the next piece; False at the end."""
        if self._read >= len(self._data):
            return False
        size = max(_STEP, len(self.text))
        piece = self._data[self._read : self._read + size]
        self._read += size
        self.text += self._decoder.decode(piece, final=self._read >= len(self._data))
        return True
