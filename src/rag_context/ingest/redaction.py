"""Removes secrets from all that is stored, and leaves texts that merely mention secrets unchanged.

The patterns of secrets are in `secret_rules`. A pattern is tried only where a substring search found its beginning:
the time is linear on any input, and close to zero on a text without such words.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, chain, pairwise
from typing import Any

from rag_context.domain import documents
from rag_context.domain.documents import DEFAULT_TENANT, DocumentInput, Json, MessageTime
from rag_context.domain.patterns import folded
from rag_context.domain.search import Filter
from rag_context.domain.word_search import WordSearch
from rag_context.errors import FieldError, InvalidInputError
from rag_context.ingest.secret_rules import ASSIGNED, RULES, TABLE_HEADING, TABLE_NAMES, SecretRule, looks_random

MARK = "[REDACTED:"
"""How a mask begins."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and how many of each kind were found: none where nothing was changed."""

    content: str
    found: Counter[str]


class RedactionMode(StrEnum):
    REDACT = "redact"
    REJECT = "reject"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Redactor:
    """Takes secrets out of all that is stored: every write passes one of these methods, every filter `where`.

    Texts are masked, or rejected with the name of their field. What a caller addresses something by (the name of a
    collection, the id of its document, a project) is rejected in both modes: two masked names may be one.
    """

    mode: RedactionMode = RedactionMode.REDACT

    def text(self, text: str) -> str:
        """A text that cannot be rejected, such as a query to record: masked unless redaction is off."""
        return text if self.mode is RedactionMode.OFF else redact(text).content

    def json(self, value: Json) -> Json:
        """A value with which stored ones are compared, masked as those are."""
        return value if self.mode is RedactionMode.OFF else _masked(value, Counter())

    def where(self, where: Filter) -> Filter:
        """A filter that finds what was stored under these values."""
        given = {name: value for name in _COMPARED if (value := getattr(where, name))}
        if self.mode is RedactionMode.OFF or not (given or where.agents or where.tags or where.any_tags):
            return where
        masked: dict[str, Any] = {name: self.text(value) for name, value in given.items()}
        return replace(
            where,
            **masked,
            agents=tuple(map(self.text, where.agents)),
            tags=tuple(map(self.text, where.tags)),
            any_tags=tuple(tuple(map(self.text, tags)) for tags in where.any_tags),
        )

    def document(self, document: DocumentInput) -> tuple[DocumentInput, Mapping[str, int]]:
        """A document as it may be stored, and how many secrets of each kind were taken out of it.

        Raises: InvalidInputError (secrets are rejected; or its project's name, or the path of a project's file, is
        one).
        """
        tenant = document.tenant
        if tenant != DEFAULT_TENANT:
            path = document.source if tenant.has_files else None
            self.check_names({"project": tenant.project, "branch": tenant.branch, "source": path})
        given: dict[str, Json] = {"content": document.content, **_labels(document)}
        masked, counts = self.fields(given)
        if not counts:
            return document, {}
        metadata = replace(
            document.metadata,
            tags=tuple(dict.fromkeys(masked["metadata.tags"])),
            extra=masked["metadata"],
            **{field: masked[name] for field, name in _METADATA.items()},
        )
        times = _moved(document.message_times, document.content, masked["content"])
        clean = replace(
            document,
            content=masked["content"],
            session_id=masked["sessionId"],
            source=masked["source"],
            metadata=metadata,
            message_times=times,
        )
        return clean, counts

    def finds_none(self, submitted: Sequence[DocumentInput]) -> bool:
        """Whether `document` would change or reject none of these, by one pass over all; False where that may be."""
        if any(each.tenant != DEFAULT_TENANT for each in submitted):
            return False
        # Without the names of fields, which make no value a secret; what many have in common is searched once.
        given = (_texts([each.content, *_labels(each).values()]) for each in submitted)
        texts = dict.fromkeys(chain.from_iterable(given))
        return self.mode is RedactionMode.OFF or not redact("\n\n".join(texts)).found

    def fields(self, fields: Mapping[str, Json]) -> tuple[dict[str, Any], Mapping[str, int]]:
        """Named fields as they may be stored, and counts of their secrets. Raises: InvalidInputError (names them)."""
        if self.mode is RedactionMode.OFF or not redact("\n".join(_texts(dict(fields)))).found:
            return dict(fields), {}  # most end here, after one pass over all of them
        masked: dict[str, Json] = {}
        counts: Counter[str] = Counter()
        problems: list[FieldError] = []
        for name, value in fields.items():
            found: Counter[str] = Counter()
            masked[name] = _masked(value, found)
            counts += found
            if found:
                problems.append(FieldError(name, _rejection(name, found)))
        if self.mode is RedactionMode.REJECT:
            _raise(problems)
        return masked, counts

    def check_names(self, names: Mapping[str, str | None]) -> None:
        """Check what a caller will address something by. Raises: InvalidInputError if one holds a secret."""
        given = {name: value for name, value in names.items() if value}
        if self.mode is RedactionMode.OFF or not redact("\n".join(given.values())).found:
            return
        counts = {name: redact(value).found for name, value in given.items()}
        _raise([FieldError(name, _rejection(name, found)) for name, found in counts.items() if found])


_COMPARED = ("session_id", *documents.FILTERED, "source", "source_prefix")
_METADATA = {name: f"metadata.{documents.wire_name(name)}" for name in ("agent", *documents.TEXT_FIELDS)}


def _labels(document: DocumentInput) -> dict[str, Json]:
    """All that a caller says of a document beside its content, by the names that it has for callers."""
    metadata = document.metadata
    return {
        "sessionId": document.session_id,
        "source": document.source,
        "metadata.tags": list(metadata.tags),
        "metadata": dict(metadata.extra),
        **{name: getattr(metadata, field) for field, name in _METADATA.items()},
    }


def _rejection(name: str, counts: Mapping[str, int]) -> str:
    kinds = ", ".join(f"{count} x {kind}" for kind, count in counts.items())
    return f"{name[0].upper()}{name[1:]} holds secrets ({kinds}); remove them and try again"


def _raise(problems: Sequence[FieldError]) -> None:
    if problems:
        raise InvalidInputError("; ".join(problem.message for problem in problems), problems)


def _masked(value: Json, counts: Counter[str]) -> Json:
    """A value without secrets, in keys too; counts what was taken out."""
    if isinstance(value, str):
        redacted = redact(value)
        counts.update(redacted.found)
        return redacted.content
    if isinstance(value, list):
        return [_masked(each, counts) for each in value]
    if isinstance(value, dict):
        members = {str(_masked(key, counts)): _masked(each, counts) for key, each in value.items()}
        return {key: _masked_by_name(key, each, counts) for key, each in members.items()}
    return value


def _masked_by_name(key: str, value: Json, counts: Counter[str]) -> Json:
    """A value that its key makes a secret: `{"password": "hunter2xyz"}`."""
    if not isinstance(value, str):
        return value
    before = f'"{key}": "'
    redacted = redact(f'{before}{value}"')
    if not (redacted.found and redacted.content.startswith(before)):
        return value
    counts.update(redacted.found)
    return redacted.content.removeprefix(before).removesuffix('"')


def _texts(value: Json) -> Iterator[str]:
    """All texts of a value, and all pairs of key and text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield f'"{key}": "{each}"' if isinstance(each, str) else key
            yield from _texts(each)


def _moved(times: Sequence[MessageTime], content: str, redacted: str) -> tuple[MessageTime, ...]:
    """The times of messages where these stand now: every message is redacted by itself to measure it."""
    edges = [*(min(each.start, len(content)) for each in times), len(content)]
    pieces = [redact(content[start:end]).content for start, end in pairwise([0, *edges])] if times else []
    if "".join(pieces) != redacted:  # a secret that reaches over the edge of a message
        return tuple(each for each in times if each.start < len(redacted))
    starts = accumulate(map(len, pieces))
    return tuple(replace(each, start=start) for each, start in zip(times, starts, strict=False))


def redact(content: str) -> Redacted:
    """Replace each secret in `content` by `[REDACTED:kind]`, and remove the characters everywhere that hide one."""
    redacted = _redacted(content)
    # Most texts end here: the second pass is for those that may hide something.
    if _HIDING.search(content) is None:
        return redacted
    shown = _redacted(_HIDING.sub(lambda match: _SHOWN.get(match[0].lower(), ""), content))
    return shown if shown.found.total() > redacted.found.total() else redacted


_HIDING = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]|%2d|%2e|%5f", re.IGNORECASE)
_SHOWN = {"%2d": "-", "%2e": ".", "%5f": "_"}
"""Characters that no address needs to escape; escaping them hides something."""


def _redacted(content: str) -> Redacted:
    counts: Counter[str] = Counter()
    search = _Search(content)
    for at in _WORDS.rules(search.present):
        rule = RULES[at]
        spans = list(_secrets(rule, content, search.offsets(rule.anchors)))
        if spans:
            counts[rule.kind] += len(spans)
            content = _replaced(content, spans, f"{MARK}{rule.kind}]")
            search = _Search(content)  # the offsets have moved
    spans = [] if search.present.isdisjoint(TABLE_NAMES) else list(_secret_cells(content, search.offsets(TABLE_NAMES)))
    if spans:
        counts[ASSIGNED] += len(spans)
        content = _replaced(content, spans, f"{MARK}{ASSIGNED}]")
    return Redacted(content, counts)


_WORDS = WordSearch([rule.anchors for rule in RULES], TABLE_NAMES)


class _Search:
    """Where words begin in a text, whatever their case; each word is searched once, though many rules need it."""

    def __init__(self, content: str) -> None:
        self._folded = folded(content)
        self.present = _WORDS.present(self._folded)
        self._known: dict[str, list[int]] = {}

    def offsets(self, words: Sequence[str]) -> list[int]:
        """The offsets of all of `words`, ascending."""
        return sorted(chain.from_iterable(map(self._of, words)))

    def _of(self, word: str) -> list[int]:
        if word not in self._known:
            found = self._known[word] = []
            offset = self._folded.find(word)
            while offset >= 0:
                found.append(offset)
                offset = self._folded.find(word, offset + 1)
        return self._known[word]


def _secrets(rule: SecretRule, content: str, offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    end = 0
    for offset in offsets:
        # An anchor inside the last secret begins no other one.
        start = offset - rule.before
        match = rule.pattern.match(content, start) if start >= end else None
        if match and rule.is_secret(match["secret"]):
            end = match.end("secret")
            yield match.span("secret")


def _secret_cells(content: str, offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cells of tables in Markdown below a heading such as `Password`."""
    end = 0
    for offset in offsets:
        heading = TABLE_HEADING.match(content, offset) if offset >= end else None
        if heading is None:
            continue
        # From the right, where the heading's line ends: rows may begin with a bar or not.
        column = heading["after"].rstrip().removesuffix("|").count("|")
        end = heading.end()
        while (row := _ROW.match(content, end)) is not None:
            cells = row["cells"].rstrip().removesuffix("|").split("|")
            if column < len(cells):
                value = cells[-1 - column].strip(' \t`*"')
                start = end + sum(len(cell) + 1 for cell in cells[: -1 - column]) + cells[-1 - column].index(value)
                if looks_random(value):
                    yield start, start + len(value)
            end = row.end()


_ROW = re.compile(r"(?P<cells>[^\r\n|]{0,400}\|[^\r\n]{0,4000})(?:\r?\n|$)")


def _replaced(content: str, spans: Sequence[tuple[int, int]], mark: str) -> str:
    parts: list[str] = []
    position = 0
    for start, end in spans:
        parts += [content[position:start], mark]
        position = end
    return "".join([*parts, content[position:]])
