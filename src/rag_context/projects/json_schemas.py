"""Applies untrusted JSON Schemas to untrusted front matter, in bounded time.

Both come from a cloned repository. Python's regular expressions backtrack exponentially on patterns like `^(a+)+$`
and hold the interpreter's lock meanwhile, so patterns are matched by pydantic's linear engine. All other keywords are
counted: validation stops after a number of steps that only multiplying references reach.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema
from referencing import Registry

from rag_context.domain.documents import Json

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
class _Work:
    """The remaining steps of a validation, and its present depth."""

    steps_left: int
    depth: int = 0


_work: ContextVar[_Work] = ContextVar("work")


class TooManyStepsError(Exception):
    """Applying a schema takes too many steps."""


class TooDeepError(Exception):
    """A schema or its instance is nested too deeply, such as a schema that refers to itself."""


class Validator(Protocol):
    """Applies one schema."""

    def iter_errors(self, instance: object) -> Iterable[ValidationError]: ...


def validator_of(schema: Mapping[str, Json]) -> Validator:
    """A validator that fetches no references and matches patterns in linear time; for `errors_of`."""
    validator: Validator = _Bounded(
        dict(schema), registry=Registry(), format_checker=Draft202012Validator.FORMAT_CHECKER
    )
    return validator


def errors_of(validator: Validator, front_matter: Mapping[str, Json]) -> list[ValidationError]:
    """The errors of a front matter by a schema, sorted by path.

    Raises:
        TooManyStepsError: applying the schema takes too long.
        TooDeepError: the schema nests more than `MAX_DEPTH` keywords.
    """
    size = len(json.dumps(front_matter)) + 1
    _work.set(_Work(min(MAX_STEPS, max(MAX_STEPS // 50, MAX_MESSAGE_BYTES // size))))
    errors = validator.iter_errors(dict(front_matter))
    return sorted(errors, key=lambda error: list(map(str, error.absolute_path)))


def not_applied(schema: Mapping[str, Json]) -> list[str]:
    """The parts of a schema that are ignored, and why; one sentence each."""
    patterns, keywords = _patterns_and_keywords(schema)
    ignored = [f"{name!r} is not applied" for name in _NOT_APPLIED if name in keywords]
    for pattern in patterns:
        matcher = _matcher(pattern)
        if isinstance(matcher, str):
            ignored.append(f"the pattern {pattern[:100]!r} is not applied: {matcher}")
    return ignored


def has_too_many_patterns(schema: Mapping[str, Json]) -> bool:
    """Whether compiling all patterns of a schema would take long."""
    return len(_patterns_and_keywords(schema)[0]) > MAX_PATTERNS


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
