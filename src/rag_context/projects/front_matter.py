"""Reads the front matter of a document, the YAML block at its top; an invalid one causes warnings only.

YAML is read by its 1.2 core schema: `no`, `2026-11-22` and `12:30` are strings. Anchors, aliases and tags are
rejected, so that a short block cannot expand into a long one or into anything but plain values.
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import yaml

from rag_context.domain.documents import Json
from rag_context.ingest.chunking.prose import front_matter
from rag_context.projects.records import RESERVED_TAGS, PromotionLevel

if TYPE_CHECKING:
    from yaml import SafeLoader as _Safe
else:
    _Safe = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_FRONT_MATTER_CHARS = 64 * 1024
MAX_DEPTH = 16
MAX_TAGS = 50
MAX_TAG_CHARS = 100
MAX_TITLE_CHARS = 200
MAX_SUMMARY_CHARS = 2000
MAX_REFERENCES = 100

_STANDING = frozenset(
    "doc_type title date summary significance promotion_level tags related_docs supersedes".split()  # noqa: SIM905
)
_DOC_TYPE = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_OPENING = re.compile(r"\ufeff?---[ \t]*+\r?\n")


class _Loader(_Safe):
    """Resolves null, booleans and numbers; everything else is a string."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}  # type: ignore[misc]


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,17})", [*"-+0123456789"]),
    ("float", r"[-+]?(?:[0-9]{1,17}\.[0-9]{0,17}|\.[0-9]{1,17})(?:[eE][-+]?[0-9]{1,3})?", [*"-+.0123456789"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), _first)


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A document's front matter. `values` are all keys as JSON; the other fields are the keys with a meaning.

    `body_start` is the offset of the text behind it; `exists` whether there is any.
    """

    body_start: int = 0
    exists: bool = False
    values: Mapping[str, Json] = field(default_factory=dict)
    doc_type: str | None = None
    title: str | None = None
    summary: str | None = None
    date: datetime.date | None = None
    significance: str | None = None
    promotion_level: PromotionLevel = PromotionLevel.STANDARD
    tags: tuple[str, ...] = ()
    related_docs: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def further(self) -> dict[str, Json]:
        """The keys without a meaning."""
        return {key: value for key, value in self.values.items() if key not in _STANDING}


class _UnreadableError(Exception):
    """The front matter cannot be read; the message says why."""


def read_front_matter(content: str) -> FrontMatter:
    """Read the front matter of a document; `warnings` say what is wrong with it."""
    start, end = front_matter(content)
    if end == 0:
        unclosed = _OPENING.match(content) is not None
        warning = "front matter: has no closing line, or is only a rule at the top; read as text"
        return FrontMatter(warnings=(warning,) if unclosed else ())
    line_end = content.find("\n", end)
    body_start = len(content) if line_end < 0 else line_end + 1
    try:
        values, repeated = _values(content[start:end])
    except _UnreadableError as error:
        return FrontMatter(body_start, exists=True, warnings=(f"front matter: {error}",))
    warnings = [f"front matter: {key!r} occurs twice; the last one counts" for key in repeated]
    return _interpreted(body_start, values, warnings)


def _interpreted(body_start: int, values: Mapping[str, Json], warnings: list[str]) -> FrontMatter:
    return FrontMatter(
        body_start=body_start,
        exists=True,
        values=values,
        doc_type=_doc_type(values, warnings),
        title=_line(values, "title", MAX_TITLE_CHARS, warnings),
        summary=_line(values, "summary", MAX_SUMMARY_CHARS, warnings),
        date=_date(values, warnings),
        significance=_line(values, "significance", MAX_TAG_CHARS, warnings),
        promotion_level=_promotion(values, warnings),
        tags=_tags(values, warnings),
        related_docs=_texts(values, "related_docs", MAX_REFERENCES, warnings),
        supersedes=_texts(values, "supersedes", MAX_REFERENCES, warnings),
        warnings=tuple(warnings),
    )


def _values(text: str) -> tuple[dict[str, Json], list[str]]:
    """The block as JSON, and the keys that occur twice. Raises: _UnreadableError."""
    if len(text) > MAX_FRONT_MATTER_CHARS:
        raise _UnreadableError(f"is longer than {MAX_FRONT_MATTER_CHARS} characters; ignored")
    try:
        _check_plain(text)
        node = yaml.compose(text, Loader=_Loader)
        loaded: object = yaml.load(text, Loader=_Loader)  # noqa: S506  (a loader of plain values)
    except yaml.MarkedYAMLError as error:
        place = f" (line {error.problem_mark.line + 2})" if error.problem_mark else ""
        raise _UnreadableError(f"is not valid YAML: {error.problem}{place}; ignored") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise _UnreadableError("is not valid YAML; ignored") from None
    if loaded is None:
        return {}, []
    if not isinstance(loaded, dict) or not isinstance(node, yaml.MappingNode):
        raise _UnreadableError("is not made of `key: value` lines; ignored")
    keys = Counter(str(key.value) for key, _ in node.value)
    repeated = sorted(key for key, count in keys.items() if count > 1)
    return {str(key): _json(value) for key, value in loaded.items()}, repeated


def _check_plain(text: str) -> None:
    """Check the parser's events before any object is built from them. Raises: _UnreadableError."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _UnreadableError("has a YAML anchor or alias, which is not supported; ignored")
        if getattr(event, "tag", None):
            raise _UnreadableError("has a YAML tag, which is not supported; ignored")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _UnreadableError(f"is nested more than {MAX_DEPTH} levels deep; ignored")


def _json(value: object) -> Json:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case list():
            return [_json(each) for each in value]
        case dict():
            return {str(key): _json(each) for key, each in value.items()}
        case _:
            return str(value)


def _line(values: Mapping[str, Json], key: str, longest: int, warnings: list[str]) -> str | None:
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, (list, dict, bool)):
        warnings.append(f"front matter: {key} must be a text")
        return None
    return " ".join(str(value).split())[:longest].rstrip() or None


def _doc_type(values: Mapping[str, Json], warnings: list[str]) -> str | None:
    doc_type = _line(values, "doc_type", MAX_TAG_CHARS, warnings)
    if doc_type is not None and not _DOC_TYPE.fullmatch(doc_type):
        warnings.append("front matter: doc_type must be a name of lower-case letters, digits, hyphens and underscores")
        return None
    return doc_type


def _date(values: Mapping[str, Json], warnings: list[str]) -> datetime.date | None:
    value = values.get("date")
    if value is None:
        return None
    if isinstance(value, str) and (match := _DATE.match(value)):
        try:
            return datetime.date.fromisoformat(match[0])
        except ValueError:
            pass
    warnings.append("front matter: date must be a day, YYYY-MM-DD")
    return None


def _promotion(values: Mapping[str, Json], warnings: list[str]) -> PromotionLevel:
    value = values.get("promotion_level")
    if value is None:
        return PromotionLevel.STANDARD
    try:
        return PromotionLevel.of(str(value))
    except ValueError:
        warnings.append("front matter: promotion_level must be standard, important or critical; read as standard")
        return PromotionLevel.STANDARD


def _tags(values: Mapping[str, Json], warnings: list[str]) -> tuple[str, ...]:
    value = values.get("tags")
    listed: Json = [*value.split(",")] if isinstance(value, str) else value
    tags = [tag[:MAX_TAG_CHARS] for tag in _listed(listed, "tags", warnings)]
    kept = [tag for tag in dict.fromkeys(tags) if not tag.startswith(RESERVED_TAGS)]
    if len(kept) < len(set(tags)):
        warnings.append(f"front matter: tags that begin with {' or '.join(RESERVED_TAGS)} are reserved; left out")
    if len(kept) > MAX_TAGS:
        warnings.append(f"front matter: has more than {MAX_TAGS} tags; the rest is left out")
    return tuple(kept[:MAX_TAGS])


def _texts(values: Mapping[str, Json], key: str, most: int, warnings: list[str]) -> tuple[str, ...]:
    value = values.get(key)
    texts = list(_listed([value] if isinstance(value, str) else value, key, warnings))
    if len(texts) > most:
        warnings.append(f"front matter: {key} has more than {most} entries; the rest is left out")
    return tuple(dict.fromkeys(texts[:most]))


def _listed(value: Json, key: str, warnings: list[str]) -> Iterator[str]:
    """The strings of a list; numbers count as strings."""
    if value is None:
        return
    if not isinstance(value, list) or any(isinstance(each, (list, dict, bool)) for each in value):
        warnings.append(f"front matter: {key} must be a list of texts")
    for each in value if isinstance(value, list) else ():
        if isinstance(each, (str, int, float)) and not isinstance(each, bool) and (text := str(each).strip()):
            yield text
