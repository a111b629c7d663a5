"""Reads the front matter of a document, the YAML block at its top, and writes a promotion level into it.

YAML is read by its 1.2 core schema: `no`, `2026-11-22` and `12:30` are strings. Anchors, aliases and tags are
rejected, so that a short block cannot expand into a long one or into anything but plain values. An invalid block causes
warnings only.

Every byte but the level stays. The file is the source of truth, so it is written first, atomically. If the process is
killed before the index is written, the next synchronisation completes the change; if the index fails, the file is
restored.
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import yaml

from rag_context.domain.documents import Json
from rag_context.domain.provenance import front_matter, text_start
from rag_context.errors import FieldError
from rag_context.files.descriptors import open_folder
from rag_context.projects.records import RESERVED_TAGS, FileSystemError, PromotionLevel, SchemaValidationError

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
KEY = "promotion_level"
_MARK = "\ufeff"
_LINE_END = re.compile(r"\r?\n")
_OPENING = re.compile(r"\ufeff?---[ \t]*+(?P<end>\r?\n)")


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
    """A document's front matter: `values` are all keys as JSON, and the text begins at the offset `body_start`."""

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
    body_start = text_start(content)
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
        # In two steps: the mapping has the last of several equal keys, and the node that it is made of lists them all.
        loader = _Loader(text)
        node = loader.get_single_node()
        loaded: object = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 2})" if error.problem_mark else ""
        raise _UnreadableError(f"is not valid YAML: {error.problem}{line}; ignored") from None
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


@dataclass(frozen=True, slots=True)
class Rewrite:
    path: Path
    before: bytes
    after: bytes

    @property
    def previous(self) -> PromotionLevel:
        return read_front_matter(self.before.decode()).promotion_level

    def undo(self) -> None:
        """Restore the file, unless it was changed since. Raises: FileSystemError."""
        with _mapped(self.path), open_folder(self.path.parent) as folder:
            if folder.read(self.path.name) == self.after:
                folder.write(self.path.name, self.before)


def rewrite(path: Path, level: PromotionLevel) -> Rewrite:
    """Write a promotion level into a file, atomically; its mode and owner stay.

    All steps use one open folder, so that replacing the folder by a link meanwhile has no effect.
    Raises: FileSystemError (nothing has changed), SchemaValidationError (no UTF-8, or no YAML to change).
    """
    with _mapped(path), open_folder(path.parent) as folder:
        before = folder.read(path.name)
        try:
            text = before.decode()
        except UnicodeDecodeError as error:
            raise _unusable(f"{path.name!r} is not valid UTF-8") from error
        after = promoted(text, level).encode()
        if after != before:
            # Once more just before it is replaced: an editor may have saved the file meanwhile.
            if folder.read(path.name) != before:
                raise FileSystemError(f"Another program is changing {path.name!r}: try again")
            folder.write(path.name, after)
        return Rewrite(path, before, after)


def promoted(text: str, level: PromotionLevel) -> str:
    """The text with this promotion level in its front matter, added if there is none. Raises: SchemaValidationError."""
    current = read_front_matter(text)
    if current.promotion_level is level and not current.warnings:
        return text
    start, end = front_matter(text)
    changed = _with_value(text, start, end, level) if end else _with_front_matter(text, level)
    read = read_front_matter(changed)
    if read.promotion_level is not level or read.values.get(KEY) != level.label:
        raise _unusable("; ".join(read.warnings) or "its front matter cannot be changed")
    return changed


def _with_front_matter(text: str, level: PromotionLevel) -> str:
    if level is PromotionLevel.STANDARD and not _OPENING.match(text):
        return text
    mark = _MARK if text.startswith(_MARK) else ""
    found = _LINE_END.search(text)
    line_end = found[0] if found else "\n"
    lines = ("---", f"{KEY}: {level.label}", "---", "")
    return f"{mark}{line_end.join(lines)}{line_end}{text.removeprefix(mark)}"


def _with_value(text: str, start: int, end: int, level: PromotionLevel) -> str:
    block = text[start:end]
    if len(block) > MAX_FRONT_MATTER_CHARS:
        raise _unusable(f"its front matter is longer than {MAX_FRONT_MATTER_CHARS} characters")
    try:
        node = yaml.compose(block, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unusable("its front matter is not valid YAML; correct it first") from error
    if node is None:
        opening = _OPENING.match(text)
        line_end = opening["end"] if opening else "\n"
        return f"{text[:end]}{KEY}: {level.label}{line_end}{text[end:]}"
    if not isinstance(node, yaml.MappingNode):
        raise _unusable("its front matter is not made of `key: value` lines; correct it first")
    values = [value for key, value in node.value if key.value == KEY]
    return text[:start] + _set(block, node, values, level) + text[end:]


def _set(block: str, node: yaml.MappingNode, values: list[yaml.Node], level: PromotionLevel) -> str:
    """The block with each of its values replaced, from the last to the first, or with a new key at the end."""
    for value in reversed(values):
        begin = value.start_mark.index
        end = begin + len(block[begin : value.end_mark.index].rstrip())  # a block scalar ends behind its line
        gap = " " if block[begin - 1 : begin] == ":" else ""
        block = block[:begin] + gap + level.label + block[end:]
    if values:
        return block
    if node.flow_style:
        begin = node.start_mark.index + 1
        return f"{block[:begin]}{KEY}: {level.label}{', ' if node.value else ''}{block[begin:]}"
    found = _LINE_END.search(block)
    line_end = found[0] if found else "\n"
    indent = " " * int(node.start_mark.column)
    return f"{block}{indent}{KEY}: {level.label}{line_end}"


@contextmanager
def _mapped(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileSystemError(f"{path.name!r} cannot be changed: {error.strerror}") from error


def _unusable(reason: str) -> SchemaValidationError:
    message = f"The promotion level cannot be written: {reason}"
    return SchemaValidationError(message, [FieldError("document_path", message)])
