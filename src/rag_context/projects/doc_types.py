"""The document types of a project, and the JSON Schemas by which the front matter of their documents is checked.

A type is built in or declared by the project. Schemas are JSON Schema 2020-12 and are never fetched from the network.

Both schemas and front matter come from a cloned repository, so checking is bounded in time. Python's regular
expressions backtrack exponentially on patterns like `^(a+)+$` and hold the interpreter's lock meanwhile, so patterns
are matched by pydantic's linear engine. All other keywords are counted: a check stops after a number of steps that only
multiplying references reach.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema
from referencing import Registry
from referencing.exceptions import Unresolvable

from rag_context.domain.documents import Json
from rag_context.errors import FieldError
from rag_context.files.descriptors import NotRegularError, read_start
from rag_context.projects.config import CustomDocType, ProjectConfig
from rag_context.projects.links import inside
from rag_context.projects.records import DEFAULT_DOC_TYPE, DocTypeInfo, FileSystemError, invalid_config

BUILT_IN_FOLDERS = {
    "problem": "problems",
    "insight": "insights",
    "codebase": "codebase",
    "tool": "tools",
    "style": "styles",
}
"""Folder of each built-in type, relative to the docs folder."""

MAX_SCHEMA_BYTES = 1 << 20
MAX_COMPLAINTS = 5
"""The most warnings about one document's front matter; the others are counted."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

MAX_PATTERNS = 100
MAX_PATTERN_CHARS = 1000
MAX_PATTERN_COST = 20_000
"""Length of a pattern times its counted repeats, roughly its size when compiled; `^[a-z0-9-]{1,64}$` has some 1 000."""

MAX_STEPS = 50_000
"""Keywords applied to one front matter. A usual schema takes some thirty."""

MAX_MESSAGE_BYTES = 32 << 20
"""The size of all messages of one validation; each may quote the whole front matter."""

MAX_DEPTH = 64
"""Nesting of keywords. If Python's stack overflows, the library's maps, written in Rust, panic."""

_CLASS_COST = 100
"""A Unicode class, such as `\\w`, compiles to so many times the size of a letter."""

_REPEAT = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_CLASS = re.compile(r"\\[wWdDsSbBpP]")
_NOT_APPLIED = ("unevaluatedItems", "unevaluatedProperties")
"""Keywords that the library evaluates with uncounted steps and with its own pattern matching."""

_Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]


@dataclass
class _SchemaWork:
    """The remaining steps of a validation, and its present depth."""

    steps_left: int
    depth: int = 0


_work: ContextVar[_SchemaWork] = ContextVar("work")


class TooManyStepsError(Exception):
    """Applying a schema takes too many steps."""


class TooDeepError(Exception):
    """A schema or its instance is nested too deeply, such as a schema that refers to itself."""


class DocTypes:
    """The document types of one project. A folder that two types have belongs to the project's own type."""

    def __init__(self, infos: Sequence[DocTypeInfo]) -> None:
        self.infos = tuple(infos)
        self._by_name = {info.name: info for info in infos}
        # The longest folder first, so that the innermost decides; of equal ones the project's own.
        by_depth = sorted(infos, key=lambda info: (-len(info.folder), not info.custom))
        self._folders = [(info.folder, info.name) for info in by_depth]
        # They fetch no references, and match patterns in linear time.
        self._validators: dict[str, Any] = {
            info.name: _Bounded(
                dict(info.schema), registry=Registry(), format_checker=Draft202012Validator.FORMAT_CHECKER
            )
            for info in infos
            if info.schema
        }

    @property
    def warnings(self) -> tuple[str, ...]:
        """The parts of the project's own schemas that are ignored, with the reasons."""
        own = [info for info in self.infos if info.custom]
        return tuple(f"doc type {info.name!r}: {reason}" for info in own for reason in _ignored_parts(info.schema))

    def named(self, name: str) -> DocTypeInfo | None:
        return self._by_name.get(name)

    def by_folder(self, path: str) -> str:
        """The type of a document by its path relative to the docs folder; the innermost declared folder decides."""
        return next((name for folder, name in self._folders if path.startswith(f"{folder}/")), DEFAULT_DOC_TYPE)

    def complaints(self, name: str, front_matter: Mapping[str, Json]) -> list[str]:
        """The warnings of the type's schema about a front matter; none if it has no schema."""
        validator = self._validators.get(name)
        if validator is None:
            return []
        try:
            found = list(dict.fromkeys(map(_sentence, _errors(validator, front_matter))))
        except TooManyStepsError:
            return [f"The schema of {name!r} takes too long on this front matter and is not applied"]
        except (Unresolvable, TooDeepError, RecursionError) as error:
            return [f"The schema of {name!r} cannot be applied: {error}"]
        more = len(found) - MAX_COMPLAINTS
        return [*found[:MAX_COMPLAINTS], f"and {more} more"] if more > 0 else found


def doc_types_of(config: ProjectConfig, root: Path) -> DocTypes:
    """The built-in types and those of a configuration, which replace built-in ones of the same name.

    Raises: SchemaValidationError (a schema is invalid, missing or outside the repository), FileSystemError.
    """
    infos = {info.name: info for info in built_in_doc_types()}
    for i, declared in enumerate(config.custom_doc_types):
        location = f"custom_doc_types[{i}]"
        infos[declared.name] = DocTypeInfo(
            name=declared.name,
            description=declared.description,
            folder=_folder(declared.folder, location),
            schema=_schema(declared, config.path.parent, root, location),
            custom=True,
        )
    return DocTypes(list(infos.values()))


@cache
def built_in_doc_types() -> tuple[DocTypeInfo, ...]:
    """The types that every project has."""
    found = []
    for name, folder in BUILT_IN_FOLDERS.items():
        text = files("rag_context.projects").joinpath("doc_type_schemas", f"{name}.json").read_text(encoding="utf-8")
        schema: dict[str, Json] = json.loads(text)
        found.append(DocTypeInfo(name, str(schema["description"]), folder, schema))
    return tuple(found)


def _folder(path: str, location: str) -> str:
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts or not parts or path.startswith("/"):
        raise invalid_config(f"{location}.folder", f"{path!r} is not a folder below the docs folder")
    return "/".join(parts)


def _schema(declared: CustomDocType, home: Path, root: Path, location: str) -> Mapping[str, Json]:
    if declared.schema_file is None:
        return {}
    location = f"{location}.schema_file"
    path = inside(home, declared.schema_file, root)
    if path is None:
        raise invalid_config(location, f"{declared.schema_file!r} is outside the repository")
    try:
        data = read_start(path, MAX_SCHEMA_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        raise invalid_config(location, f"There is no file {declared.schema_file!r} beside the configuration") from None
    except OSError as error:
        raise FileSystemError(
            f"The schema {declared.schema_file!r} of the doc type {declared.name!r} cannot be read: {error.strerror}",
            [FieldError(location, f"Cannot be read: {error.strerror}")],
        ) from error
    return _checked(data, location)


def _checked(data: bytes, location: str) -> Mapping[str, Json]:
    if len(data) > MAX_SCHEMA_BYTES:
        raise invalid_config(location, f"The schema is larger than {MAX_SCHEMA_BYTES} bytes")
    try:
        schema = json.loads(data.decode("utf-8-sig"))
        if not isinstance(schema, dict):
            raise invalid_config(location, "The schema must be a JSON object")
        if schema.get("$schema", _DIALECT).rstrip("#") != _DIALECT:
            raise invalid_config(location, f"The schema must have the dialect {_DIALECT}")
        Draft202012Validator.check_schema(schema)
        if len(_patterns_and_keywords(schema)[0]) > MAX_PATTERNS:  # compiling them all would take long
            raise invalid_config(location, f"The schema has more than {MAX_PATTERNS} patterns")
    except SchemaError as error:
        raise invalid_config(location, f"The schema is not a JSON Schema: {error.message[:200]}") from None
    except (ValueError, RecursionError, AttributeError) as error:
        raise invalid_config(location, f"The schema is not valid JSON: {error}") from None
    return cast("Mapping[str, Json]", schema)


def _sentence(error: ValidationError) -> str:
    """One warning, without the value: it may be long, and is in the file anyway."""
    location = ".".join(str(part) for part in error.absolute_path)
    expected: Any = error.validator_value
    match error.validator:
        case "required":
            missing = [name for name in expected if name not in cast("dict[str, object]", error.instance)]
            problem = f"{', '.join(missing)} missing"
        case "const" | "enum":
            problem = f"must be {'one of ' if isinstance(expected, list) else ''}{_joined(expected)}"
        case "type" | "format":
            problem = f"must be a {_joined(expected)}"
        case "additionalProperties":
            problem = "has keys that its doc type does not define"
        case _:
            problem = f"does not match {error.validator!r} of its doc type"
    return f"front matter: {location} {problem}" if location else f"front matter: {problem}"


def _joined(expected: object) -> str:
    return ", ".join(str(each) for each in expected) if isinstance(expected, list) else str(expected)


def _errors(validator: Any, front_matter: Mapping[str, Json]) -> list[ValidationError]:
    """The errors of a front matter by a schema, sorted by path. Raises: TooManyStepsError, TooDeepError."""
    size = len(json.dumps(front_matter)) + 1
    _work.set(_SchemaWork(min(MAX_STEPS, max(MAX_STEPS // 50, MAX_MESSAGE_BYTES // size))))
    errors: Iterable[ValidationError] = validator.iter_errors(dict(front_matter))
    return sorted(errors, key=lambda error: list(map(str, error.absolute_path)))


def _ignored_parts(schema: Mapping[str, Json]) -> list[str]:
    """The parts of a schema that are ignored, and why; one sentence each."""
    patterns, keywords = _patterns_and_keywords(schema)
    ignored = [f"{name!r} is not applied" for name in _NOT_APPLIED if name in keywords]
    for pattern in patterns:
        matcher = _matcher(pattern)
        if isinstance(matcher, str):
            ignored.append(f"the pattern {pattern[:100]!r} is not applied: {matcher}")
    return ignored


def _patterns_and_keywords(schema: Mapping[str, Json]) -> tuple[list[str], set[str]]:
    """All patterns in a schema, including what may be one, and the names of all keywords."""
    patterns: dict[str, None] = {}
    keywords: set[str] = set()
    waiting: list[object] = [schema]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            keywords.update(item)
            waiting.extend(item.values())
            several, single = item.get("patternProperties"), item.get("pattern")
            patterns.update(dict.fromkeys(several if isinstance(several, Mapping) else ()))
            patterns.update({single: None} if isinstance(single, str) else {})
        elif isinstance(item, list):
            waiting.extend(item)
    return list(patterns), keywords


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> SchemaValidator | str:
    """The compiled pattern, or the reason why it cannot be used."""
    if len(pattern) > MAX_PATTERN_CHARS or _cost(pattern) > MAX_PATTERN_COST:
        return "it is too large"
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except PatternError as error:
        reason = str(error).strip().rpartition("\n")[2].removeprefix("error: ")
        return f"it cannot be matched in linear time ({reason[:200]})"


def _cost(pattern: str) -> int:
    cost = len(pattern) + _CLASS_COST * len(_CLASS.findall(pattern))
    for least, most in _REPEAT.findall(pattern):
        cost *= max(int(least), int(most or 0), 1)
    return cost


def _matches(pattern: str, text: str) -> bool | None:
    """Whether a text contains a match; None if the pattern is not applied."""
    matcher = _matcher(pattern)
    return None if isinstance(matcher, str) else matcher.isinstance_python(text)


def _pattern(validator: Any, pattern: str, instance: object, _schema: object) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and _matches(pattern, str(instance)) is False:
        yield ValidationError("does not match the pattern")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, object], instance: Any, _schema: object
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, inner in patterns.items():
            for name in filter(lambda name: _matches(pattern, name), instance):
                yield from validator.descend(instance[name], inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: Any, allowed: object, instance: Any, schema: Mapping[str, Any]
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    # A name that a pattern might match which is not applied does not count as extra.
    extra = [
        name for name in instance if name not in known and all(_matches(pattern, name) is False for pattern in patterns)
    ]
    if isinstance(allowed, Mapping):
        for name in extra:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and extra:
        yield ValidationError("has further properties")


def _unique_items(validator: Any, unique: object, instance: Any, _schema: object) -> Iterator[ValidationError]:
    if unique and validator.is_type(instance, "array"):
        texts = [json.dumps(item, sort_keys=True) for item in instance]
        if len(set(texts)) < len(texts):
            yield ValidationError("has an item twice")


def _nothing(_validator: Any, _value: object, _instance: object, _schema: object) -> None:
    return None


def _counted(keyword: _Keyword) -> _Keyword:
    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        work = _work.get()
        work.steps_left -= 1
        if work.steps_left < 0:
            raise TooManyStepsError
        if work.depth >= MAX_DEPTH:
            raise TooDeepError(f"it nests more than {MAX_DEPTH} keywords")
        work.depth += 1
        try:
            yield from keyword(validator, value, instance, schema) or ()
        finally:
            work.depth -= 1

    return counted


_Bounded: Any = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {
        name: _counted(keyword)
        for name, keyword in {
            **Draft202012Validator.VALIDATORS,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "uniqueItems": _unique_items,
            **dict.fromkeys(_NOT_APPLIED, _nothing),
        }.items()
    },
)
