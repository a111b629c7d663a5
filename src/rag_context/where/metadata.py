"""The rule for metadata, the same for every provider: what is stored comes back, and can be filtered by its path."""

import math
from collections.abc import Mapping

from rag_context.domain.documents import Json
from rag_context.errors import FieldError, InvalidInputError

MAX_DEPTH = 32
"""Objects and lists within each other, the metadata itself included."""

MAX_VALUES = 10_000
MAX_CHARACTERS = 1_000_000
"""Of all keys and texts together."""

MAX_BITS = 1024
"""Of an integer: as large as the largest float."""

SHOWN = 60
"""Characters of a name that a message repeats."""


def check_metadata(metadata: Mapping[str, Json], field: str = "metadata") -> None:
    """Check that metadata can be stored exactly and filtered.

    Nested objects are allowed and reached as `a.b`; therefore a key holds no dot, is not empty and does not begin
    with `$`.

    Args:
        metadata: of a document or a collection.
        field: what to call it in messages, such as `documents[3].metadata`.

    Raises:
        InvalidInputError: it breaks the rule; says where.
    """
    _Check(field).mapping(metadata, "", 1)


def refused_number(value: float) -> str | None:
    """Why a number cannot be stored or filtered; None where it can."""
    if isinstance(value, int):
        return f"is an integer of more than {MAX_BITS} bits" if value.bit_length() > MAX_BITS else None
    return None if math.isfinite(value) else "is NaN or infinite; only finite numbers are allowed"


def is_unicode(text: str) -> bool:
    """Whether `text` can be written as UTF-8: lone surrogates cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(name: str) -> str:
    """A name from outside as messages show it: quoted and cut."""
    return repr(name if len(name) <= SHOWN else f"{name[:SHOWN]}…")


class _Check:
    """One walk through one document's metadata."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._values = 0
        self._characters = 0

    def mapping(self, found: Mapping[str, Json], place: str, depth: int) -> None:
        self._deepen(place, depth)
        for key, value in found.items():
            self._key(key, place)
            self._value(value, f"{place}.{key}", depth)

    def _value(self, value: object, place: str, depth: int) -> None:
        self._values += 1
        if self._values > MAX_VALUES:
            self._refuse("", f"has more than {MAX_VALUES} values")
        if isinstance(value, str):
            self._text(value, place)
        elif isinstance(value, int | float):
            reason = refused_number(value)
            if reason is not None:
                self._refuse(place, reason)
        elif isinstance(value, Mapping):
            self.mapping(value, place, depth + 1)
        elif isinstance(value, list):
            self._deepen(place, depth + 1)
            for position, element in enumerate(value):
                self._value(element, f"{place}[{position}]", depth + 1)
        elif value is not None:
            self._refuse(place, f"is a {type(value).__name__}, which JSON does not have")

    def _key(self, key: object, place: str) -> None:
        if not isinstance(key, str):
            self._refuse(place, f"has a key that is a {type(key).__name__}; keys are strings")
        elif not key:
            self._refuse(place, "has an empty key")
        elif "." in key or key.startswith("$"):
            self._refuse(place, f"has the key {shown(key)}; a key holds no dot and does not begin with '$'")
        else:
            self._text(key, place)

    def _text(self, text: str, place: str) -> None:
        self._characters += len(text)
        if self._characters > MAX_CHARACTERS:
            self._refuse("", f"has more than {MAX_CHARACTERS} characters")
        if not is_unicode(text):
            self._refuse(place, "holds half a surrogate pair, which is not a character")

    def _deepen(self, place: str, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._refuse(place, f"is nested deeper than {MAX_DEPTH} levels")

    def _refuse(self, place: str, reason: str) -> None:
        field = (self._field + place)[: len(self._field) + SHOWN].encode("ascii", "backslashreplace").decode()
        raise InvalidInputError(f"{field} {reason}.", [FieldError(field, f"{reason}.")])
