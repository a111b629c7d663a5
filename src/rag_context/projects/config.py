"""The configuration of a project, `.rag-context/config.json`, with every key checked.

A value comes from the project's file, else from the defaults; `Traced` says from which. A call may override both.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from rag_context.api.project_queries import inclusion
from rag_context.errors import FieldError, joined
from rag_context.files.descriptors import read_start
from rag_context.projects import records

CONFIG_FILE = ".rag-context/config.json"
FOREIGN_CONFIG_FILE = ".csharp-compounding-docs/config.json"
"""The same configuration in the folder of another tool; unknown keys in it belong to that tool."""

FOREIGN_DOCS_FOLDER = "csharp-compounding-docs"
"""The docs folder of that tool, used if its configuration names none and this one exists."""

MAX_CONFIG_BYTES = 1 << 20
MAX_RESULTS = 20
MAX_LISTED = 50
MAX_LINKED_DOCS = 100
MAX_LINK_DEPTH = 10
MAX_CONTEXT_TOKENS = 1_000_000

QUERY_DEFAULTS = records.RetrievalOptions()
SEARCH_DEFAULTS = records.RetrievalOptions(
    max_results=10, max_linked_docs=0, max_link_depth=0, include_critical=records.CriticalInclusion.NEVER
)
"""`semantic_search` lists documents by relevance and nothing else."""

Score = Annotated[float, Field(ge=0.0, le=1.0)]
Folder = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")]
Pattern = Annotated[str, Field(min_length=1, max_length=1000)]
Inclusion = Annotated[Literal["always", "relevant", "never"], BeforeValidator(inclusion)]


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Retrieval(_Section):
    """Defaults of `rag_query`."""

    min_relevance_score: Score | None = None
    max_results: Annotated[int, Field(ge=1, le=MAX_RESULTS)] | None = None
    max_linked_docs: Annotated[int, Field(ge=0, le=MAX_LINKED_DOCS)] | None = None
    include_critical: Inclusion | None = None
    min_promotion_level: Literal["standard", "important", "critical"] | None = None
    apply_relevance_boosting: bool | None = None
    important_boost: Score | None = None
    critical_boost: Score | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_CONTEXT_TOKENS)] | None = None


class SemanticSearch(_Section):
    """Defaults of `semantic_search`."""

    min_relevance_score: Score | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] | None = None


class LinkResolution(_Section):
    """How far links are followed, and whether `related_docs` of the front matter count as links."""

    max_depth: Annotated[int, Field(ge=0, le=MAX_LINK_DEPTH)] | None = None
    related_docs: bool | None = None


class ExternalDocs(_Section):
    """A folder of external documents, searched separately and never written."""

    path: Folder
    include_patterns: Annotated[list[Pattern], Field(min_length=1, max_length=100)] = ["**/*.md"]
    exclude_patterns: Annotated[list[Pattern], Field(max_length=100)] = []


class CustomDocType(_Section):
    """A document type of the project's own."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
    description: Annotated[str, Field(max_length=1000)] = ""
    folder: Folder
    schema_file: Folder | None = None


class ConfigFile(_Section):
    """The model of the configuration file."""

    model_config = ConfigDict(title="rag-context project configuration")

    json_schema: Annotated[str | None, Field(alias="$schema")] = None
    project_name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=200)]
    docs_path: Folder = "docs"
    retrieval: Retrieval = Retrieval()
    semantic_search: SemanticSearch = SemanticSearch()
    link_resolution: LinkResolution = LinkResolution()
    external_docs: ExternalDocs | None = None
    custom_doc_types: Annotated[list[CustomDocType], Field(max_length=100)] = []


class ValueSource(StrEnum):
    PROJECT = "project"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Traced:
    """A value in force and its source."""

    name: str
    value: object
    source: ValueSource


@dataclass(frozen=True, slots=True)
class ProjectConfig:
    """A project's configuration. `query`, `search` have the values of the file, by field of `RetrievalOptions`."""

    path: Path
    project_name: str
    docs_path: str = "docs"
    query: Mapping[str, object] = field(default_factory=dict)
    search: Mapping[str, object] = field(default_factory=dict)
    external: ExternalDocs | None = None
    custom_doc_types: tuple[CustomDocType, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def query_options(self) -> records.RetrievalOptions:
        """Options of a `rag_query`, which a call may override."""
        return replace(QUERY_DEFAULTS, **cast("dict[str, Any]", self.query))

    @property
    def search_options(self) -> records.RetrievalOptions:
        """Options of a `semantic_search`, which a call may override."""
        return replace(SEARCH_DEFAULTS, **cast("dict[str, Any]", self.search))

    def traced(self) -> dict[str, tuple[Traced, ...]]:
        """The options of both tools, by the name of the tool."""
        return {
            "rag_query": _traced(self.query_options, self.query),
            "semantic_search": _traced(self.search_options, self.search),
        }


def read_config(path: Path) -> ProjectConfig:
    """Read a project's configuration. Raises: FileSystemError, SchemaValidationError."""
    values = _parsed(path)
    foreign = path.parent.name == FOREIGN_CONFIG_FILE.partition("/")[0]
    unknown = _remove_unknown(values) if foreign else []
    try:
        file = ConfigFile.model_validate(values)
    except ValidationError as error:
        raise _invalid(path, [_detail(item) for item in error.errors(include_url=False)]) from None
    twice = _repeated([doc_type.name for doc_type in file.custom_doc_types])
    if twice:
        raise _invalid(path, [FieldError("custom_doc_types", f"The name {name!r} occurs twice") for name in twice])
    is_theirs = (
        foreign and "docs_path" not in file.model_fields_set and (path.parents[1] / FOREIGN_DOCS_FOLDER).is_dir()
    )
    return ProjectConfig(
        path=path,
        project_name=file.project_name,
        docs_path=FOREIGN_DOCS_FOLDER if is_theirs else file.docs_path,
        query=_query_values(file),
        search=_given(
            min_relevance_score=file.semantic_search.min_relevance_score, max_results=file.semantic_search.limit
        ),
        external=file.external_docs,
        custom_doc_types=tuple(file.custom_doc_types),
        warnings=tuple(f"{key!r} has no effect here and is ignored" for key in unknown),
    )


def _remove_unknown(values: dict[str, Any]) -> list[str]:
    """Remove the unknown keys from another tool's configuration; returns their paths."""
    try:
        ConfigFile.model_validate(values)
    except ValidationError as error:
        unknown = [item["loc"] for item in error.errors(include_url=False) if item["type"] == "extra_forbidden"]
        for *above, key in unknown:
            holder: Any = values
            for step in above:
                holder = holder[step]
            del holder[key]
        return [_location(loc) for loc in unknown]
    return []


def _query_values(file: ConfigFile) -> dict[str, object]:
    section, links = file.retrieval, file.link_resolution
    level = section.min_promotion_level
    values = _given(
        min_relevance_score=section.min_relevance_score,
        max_results=section.max_results,
        max_linked_docs=section.max_linked_docs,
        max_link_depth=links.max_depth,
        include_critical=None
        if section.include_critical is None
        else records.CriticalInclusion(section.include_critical),
        min_promotion_level=None if level is None else records.PromotionLevel.of(level),
        follow_related_docs=links.related_docs,
        max_tokens=section.max_tokens,
    )
    return {**values, **_boosting(section)}


def _boosting(section: Retrieval) -> dict[str, object]:
    if section.apply_relevance_boosting is False:
        # None is a value here: no boosts. An option that the file does not set is left out.
        return {"boosts": None}
    given = _given(important=section.important_boost, critical=section.critical_boost)
    if not given and section.apply_relevance_boosting is None:
        return {}
    return {"boosts": replace(records.DEFAULT_BOOSTS, **cast("dict[str, float]", given))}


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}


def _traced(options: records.RetrievalOptions, project: Collection[str]) -> tuple[Traced, ...]:
    return tuple(
        Traced(name, getattr(options, name), ValueSource.PROJECT if name in project else ValueSource.DEFAULT)
        for name in (each.name for each in fields(options))
    )


def _parsed(path: Path) -> dict[str, Any]:
    try:
        data = read_start(path, MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise records.FileSystemError(
            f"The project configuration {path.name!r} cannot be read: {error.strerror}"
        ) from error
    if len(data) > MAX_CONFIG_BYTES:
        raise _invalid(path, [FieldError("", f"It is larger than {MAX_CONFIG_BYTES} bytes")])
    try:
        values = json.loads(data.decode("utf-8-sig"), object_pairs_hook=_once)
    except UnicodeDecodeError as error:
        raise _invalid(path, [FieldError("", f"It is not valid UTF-8 at byte {error.start}")]) from None
    except RecursionError:
        raise _invalid(path, [FieldError("", "It is nested too deeply")]) from None
    except json.JSONDecodeError as error:
        location = f"line {error.lineno}, column {error.colno}"
        raise _invalid(path, [FieldError("", f"It is not valid JSON: {error.msg} ({location})")]) from None
    except ValueError as error:  # a repeated key, or a number with too many digits
        raise _invalid(path, [FieldError("", f"It is not valid JSON: {error}")]) from None
    if not isinstance(values, dict):
        raise _invalid(path, [FieldError("", "It must be a JSON object")])
    return values


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if twice := _repeated([key for key, _ in pairs]):
        raise ValueError(f"the key {twice[0]!r} occurs twice")
    return dict(pairs)


def _repeated(names: Sequence[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _invalid(path: Path, details: Sequence[FieldError]) -> records.SchemaValidationError:
    problems = joined([f"{detail.field}: {detail.message}" if detail.field else detail.message for detail in details])
    return records.SchemaValidationError(f"The project configuration {path.name!r} is invalid: {problems}", details)


def _detail(item: ErrorDetails) -> FieldError:
    location = _location(item["loc"])
    match item["type"]:
        case "missing":
            return FieldError(location, "Is missing")
        case "extra_forbidden":
            return FieldError(location, "Is not a setting of a project")
        case "string_pattern_mismatch" if location == "project_name":
            return FieldError(
                location, "Must begin with a lower-case letter; then lower-case letters, digits and hyphens"
            )
        case _:
            return FieldError(location, item["msg"])


def _location(loc: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
