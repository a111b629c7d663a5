"""Documents handed to a collection: tens of megabytes of numbers, read one document at a time.

A model per number would cost more than storing them. The body is decoded document by document with the standard
library, so that the thread that reads it lets others run in between, and each embedding becomes one row of float32
as soon as it is there.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from rag_context.api.wire import id_problem
from rag_context.domain.documents import Json
from rag_context.domain.where import is_unicode
from rag_context.errors import FieldError, InvalidInputError, joined

if TYPE_CHECKING:  # clients import these models, and do without numpy
    from rag_context.domain.vectors import Vector

MAX_DIMENSION = 65_535
"""Most numbers of an embedding: what the least of the providers takes (Qdrant)."""

TEXT_CHARS = 1_000_000
MAX_PROBLEMS = 100
RESERVED_ID = "all"
"""Means every document where documents are deleted."""

REQUIRED = "Documents array is required"
NOT_EMBEDDED = "All documents must include pre-computed embeddings"

_FIELDS = ("id", "text", "metadata", "embedding")
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBERS = frozenset({int, float})
_NAME_CHARS = 64

CheckMetadata: TypeAlias = Callable[[Mapping[str, Json], str], None]
"""Raises InvalidInputError about metadata whose place in the request is given."""


@dataclass(frozen=True, slots=True)
class SubmittedDocument:
    """A document as it was submitted; its vector, where it came with one, of length 1."""

    text: str
    metadata: Mapping[str, Json]
    id: str | None = None
    vector: "Vector | None" = None


@dataclass(frozen=True, slots=True)
class SubmittedDocuments:
    documents: tuple[SubmittedDocument, ...]
    problems: tuple[FieldError, ...]
    unembedded: tuple[int, ...]
    """Places of those without an embedding, which only some collections take."""

    def check(self, *, all_embedded: bool) -> None:
        """Raises: InvalidInputError, with every problem there is, if one is wrong or, where all must, not embedded."""
        unembedded = self.unembedded if all_embedded else ()
        missing = [FieldError(f"documents[{position}].embedding", NOT_EMBEDDED) for position in unembedded]
        raise_problems((*missing, *self.problems))


def raise_problems(problems: Iterable[FieldError]) -> None:
    details = tuple(problems)
    if details:
        raise InvalidInputError(joined([problem.message for problem in details]), details[:MAX_PROBLEMS])


def documents_of_json(body: bytes, check_metadata: CheckMetadata) -> SubmittedDocuments:
    """Read `{"documents": [...]}`. Blocking; about a second for 80 MB.

    Raises: InvalidInputError (the body is not that; what is wrong with single documents is in the result).
    """
    try:
        return documents_of(_Body(body.decode()).documents(), check_metadata)
    except (ValueError, RecursionError) as error:
        message = error.msg if isinstance(error, json.JSONDecodeError) else _unreadable(error)
        raise InvalidInputError(f"Not valid JSON: {message}", (FieldError("", f"Not valid JSON: {message}"),)) from None


def _unreadable(error: ValueError | RecursionError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


def documents_of(items: Iterable[object], check_metadata: CheckMetadata) -> SubmittedDocuments:
    reader = _DocumentsReader(check_metadata)
    for item in items:
        reader.read(item)
    if not reader.position:
        raise InvalidInputError(REQUIRED, (FieldError("documents", REQUIRED),))
    return SubmittedDocuments(tuple(reader.documents), tuple(reader.problems), tuple(reader.unembedded))


class _Body:
    """An object with one field, a long array, which is not built as a whole."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._decode = json.JSONDecoder(object_pairs_hook=_distinct).raw_decode

    def documents(self) -> Iterator[object]:
        if self._next() != "{":
            raise InvalidInputError("Not a JSON object", (FieldError("", "Not a JSON object"),))
        seen: set[object] = set()
        unknown: list[FieldError] = []
        while True:
            name = self._key()
            if name is None:
                break
            if name in seen:
                message = f"{str(name)[:_NAME_CHARS]} given twice"
                raise InvalidInputError(message, (FieldError(str(name)[:_NAME_CHARS], message),))
            seen.add(name)
            if name == "documents" and self._peek() == "[":
                yield from self._elements()
                continue
            value = self._value()
            if name != "documents":
                unknown.append(FieldError(str(name)[:_NAME_CHARS], _unknown(str(name), ("documents",))))
            elif value is not None:
                raise InvalidInputError(REQUIRED, (FieldError("documents", REQUIRED),))
        if self._peek():
            raise json.JSONDecodeError("text after the end of the object", self._text, self._at)
        raise_problems(unknown)

    def _key(self) -> object:
        """The next field's name, behind its colon; None behind the last."""
        sign = self._next()
        if sign == "}" or (sign == "," and self._peek() != '"'):
            if sign == "}":
                return None
            raise json.JSONDecodeError("Expecting a field's name in double quotes", self._text, self._at)
        if sign == '"':
            self._at -= 1
        elif sign != ",":
            raise json.JSONDecodeError("Expecting ',' or '}'", self._text, self._at)
        name = self._value()
        if self._next() != ":":
            raise json.JSONDecodeError("Expecting ':'", self._text, self._at)
        return name

    def _elements(self) -> Iterator[object]:
        self._next()
        if self._peek() == "]":
            self._next()
            return
        while True:
            yield self._value()
            sign = self._next()
            if sign == "]":
                return
            if sign != ",":
                raise json.JSONDecodeError("Expecting ',' or ']'", self._text, self._at)

    def _value(self) -> object:
        self._peek()
        value, self._at = self._decode(self._text, self._at)
        return value

    def _peek(self) -> str:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        sign = self._peek()
        self._at += 1
        return sign


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The object of these pairs. Raises: InvalidInputError where one would take another's place."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0][:_NAME_CHARS]
        raise InvalidInputError(f"{twice} given twice", (FieldError(twice, f"{twice} given twice"),))
    return fields


@dataclass(slots=True)
class _DocumentsReader:
    check_metadata: CheckMetadata
    position: int = 0
    documents: list[SubmittedDocument] = field(default_factory=list)
    problems: list[FieldError] = field(default_factory=list)
    unembedded: list[int] = field(default_factory=list)
    _ids: dict[str, int] = field(default_factory=dict)
    _first: tuple[int, int] | None = None
    """Place and dimension of the first embedding."""

    def read(self, item: object) -> None:
        path = f"documents[{self.position}]"
        if not isinstance(item, Mapping):
            self._wrong(path, f"{path} must be an object")
        else:
            for name in item.keys() - set(_FIELDS):
                self._wrong(f"{path}.{str(name)[:_NAME_CHARS]}", _unknown(str(name), _FIELDS))
            text = self._text(item.get("text"), f"{path}.text")
            metadata = self._metadata(item.get("metadata"), f"{path}.metadata")
            vector = self._vector(item.get("embedding"), f"{path}.embedding")
            self.documents.append(SubmittedDocument(text, metadata, self._id(item.get("id"), f"{path}.id"), vector))
        self.position += 1

    def _text(self, value: object, path: str) -> str:
        if value is None:
            self._wrong(path, f"{path} required")
        elif not isinstance(value, str):
            self._wrong(path, f"{path} must be a string")
        elif not value.strip():
            self._wrong(path, f"{path} must not be empty")
        elif len(value) > TEXT_CHARS:
            self._wrong(path, f"{path} too long (max {TEXT_CHARS} characters)")
        elif "\0" in value or not is_unicode(value):
            self._wrong(path, f"{path} must not hold the NUL character or half a surrogate pair")
        else:
            return value
        return ""

    def _metadata(self, value: object, path: str) -> Mapping[str, Json]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._wrong(path, f"{path} must be an object")
            return {}
        try:
            self.check_metadata(value, path)
        except InvalidInputError as error:
            self._wrong(error.details[0].field if error.details else path, str(error).rstrip("."))
        return value

    def _id(self, value: object, path: str) -> str | None:
        if value is None:
            return None
        problem = id_problem(value)
        if value == RESERVED_ID:
            problem = "must not be 'all', which means every document where documents are deleted"
        if problem:
            self._wrong(path, f"{path} {problem}")
            return None
        first = self._ids.setdefault(str(value), self.position)
        if first != self.position:
            self._wrong(path, f"{path} is the same as documents[{first}].id")
        return str(value)

    def _vector(self, value: object, path: str) -> "Vector | None":
        if value is None:
            self.unembedded.append(self.position)
            return None
        try:
            vector = unit_vector(value)
        except ValueError as error:
            self._wrong(path, f"{path} {error}")
            return None
        position, dimension = self._first = self._first or (self.position, len(vector))
        if len(vector) != dimension:
            self._wrong(
                path,
                f"Embedding dimension mismatch: documents[{position}] has {dimension} dimensions and "
                f"documents[{self.position}] has {len(vector)}",
            )
        return vector

    def _wrong(self, path: str, message: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(FieldError(path, message))


def unit_vector(value: object) -> "Vector":
    """An embedding, `(dim,) float32`, brought to length 1.

    Raises: ValueError (it is none; the message ends the sentence "... must be").
    """
    import numpy as np  # noqa: PLC0415

    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list) or not _NUMBERS.issuperset(map(type, value)):
        raise ValueError("must be an array of numbers")
    if not 0 < len(value) <= MAX_DIMENSION:
        raise ValueError(f"must have 1 to {MAX_DIMENSION} dimensions, not {len(value)}")
    try:
        exact = np.array(value, dtype=np.float64)
    except OverflowError:
        raise ValueError("must not hold a number beyond the range of floating point") from None
    largest = float(np.abs(exact).max())
    if not np.isfinite(largest):
        raise ValueError("must not hold NaN or an infinite number")
    if largest == 0.0:
        raise ValueError("must not be all zeros: it has no direction")
    exact /= largest  # the square of a large number would be infinite, that of a small one zero
    unit: Vector = (exact / np.sqrt(exact @ exact)).astype(np.float32)
    return unit


def _unknown(name: str, known: tuple[str, ...]) -> str:
    return f"Unknown field {name[:_NAME_CHARS]!r}; known are {', '.join(known)}"
