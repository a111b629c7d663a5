"""Removes secrets from a text before anything is stored, and leaves texts that merely mention secrets unchanged.

The patterns of secrets are in `secret_rules`. A pattern is tried only where a substring search found its beginning:
the time is linear on any input, and close to zero on a text without such words.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate, chain, pairwise

from rag_context.domain.documents import DocumentInput, MessageTime
from rag_context.errors import FieldError, InvalidInputError
from rag_context.ingest.secret_rules import ASSIGNED, RULES, TABLE_HEADING, TABLE_NAMES, Rule
from rag_context.ingest.secret_values import looks_random


@dataclass(frozen=True, slots=True)
class Redaction:
    """The number of secrets of one kind that were removed."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text without its secrets, and what was found; `found` is empty where nothing was changed."""

    content: str
    found: tuple[Redaction, ...]


class RedactionMode(StrEnum):
    """What happens to secrets."""

    REDACT = "redact"
    REJECT = "reject"
    OFF = "off"


def cleaned(document: DocumentInput, mode: RedactionMode) -> tuple[DocumentInput, Mapping[str, int]]:
    """A document as it may be stored, and how many secrets of each kind were taken out of it.

    Raises:
        InvalidInputError: it holds secrets, and documents with secrets are rejected.
    """
    if mode is RedactionMode.OFF:
        return document, {}
    redacted = redact(document.content)
    if not redacted.found:
        return document, {}
    found = {redaction.kind: redaction.count for redaction in redacted.found}
    if mode is RedactionMode.REJECT:
        kinds = ", ".join(f"{count} x {kind}" for kind, count in found.items())
        message = f"Content holds secrets ({kinds}); remove them and try again"
        raise InvalidInputError(message, [FieldError("content", message)])
    times = _moved(document.message_times, document.content, redacted.content)
    return replace(document, content=redacted.content, message_times=times), found


def _moved(times: Sequence[MessageTime], content: str, redacted: str) -> tuple[MessageTime, ...]:
    """The times of messages where these stand now: every message is redacted by itself to measure it."""
    edges = [*(min(each.start, len(content)) for each in times), len(content)]
    pieces = [redact(content[start:end]).content for start, end in pairwise([0, *edges])] if times else []
    if "".join(pieces) != redacted:  # a secret that reaches over the edge of a message
        return tuple(each for each in times if each.start < len(redacted))
    starts = accumulate(map(len, pieces))
    return tuple(replace(each, start=start) for each, start in zip(times, starts, strict=False))


def redact(content: str) -> Redacted:
    """Replace each secret in `content` by `[REDACTED:kind]`.

    Where zero-width characters or percent-encoding hide a secret, they are removed from the whole text too.
    """
    redacted = _redacted(content)
    # Most texts end here: the second pass is for those that may hide something.
    if _HIDING.search(content) is None:
        return redacted
    shown = _redacted(_HIDING.sub(lambda match: _SHOWN.get(match[0].lower(), ""), content))
    return shown if _total(shown) > _total(redacted) else redacted


_HIDING = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]|%2d|%2e|%5f", re.IGNORECASE)
_SHOWN = {"%2d": "-", "%2e": ".", "%5f": "_"}
"""Characters that no address needs to escape; escaping them hides something."""


def _total(redacted: Redacted) -> int:
    return sum(each.count for each in redacted.found)


def _redacted(content: str) -> Redacted:
    counts: Counter[str] = Counter()
    search = _Search(content)
    for rule in RULES:
        if search.has_none(rule.anchors):
            continue
        spans = list(_secrets(rule, content, search.offsets(rule.anchors)))
        if spans:
            counts[rule.kind] += len(spans)
            content = _replaced(content, spans, f"[REDACTED:{rule.kind}]")
            search = _Search(content)  # the offsets have moved
    spans = [] if search.has_none(TABLE_NAMES) else list(_secret_cells(content, search.offsets(TABLE_NAMES)))
    if spans:
        counts[ASSIGNED] += len(spans)
        content = _replaced(content, spans, f"[REDACTED:{ASSIGNED}]")
    return Redacted(content, tuple(Redaction(kind, count) for kind, count in counts.items()))


_WORDS = frozenset((*TABLE_NAMES, *(word for rule in RULES for word in rule.anchors)))


class _Search:
    """Where words begin in a text, whatever their case; each word is searched once, though many rules need it."""

    def __init__(self, content: str) -> None:
        self._folded = folded = _fold(content)
        self._present = {word for word in _WORDS if word in folded}
        self._known: dict[str, list[int]] = {}

    def has_none(self, words: Sequence[str]) -> bool:
        """Whether none of `words` is there: so it is for most texts and rules."""
        return self._present.isdisjoint(words)

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


def _fold(content: str) -> str:
    """Lower case at the same offsets; a capital I with a dot is the only letter whose lower case is longer."""
    return content.replace("\u0130", "i").lower()


def _secrets(rule: Rule, content: str, offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
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
