"""Maps a file of a project to the document that is indexed, and a stored document to a project document.

What filters need is in reserved tags, and what results show is in `Metadata.extra`: every store keeps both.

A document has a type, a built-in one or a project's own, whose schema its front matter is validated by. Schemas are
JSON Schema 2020-12 and are never fetched from the network. A document that does not match its schema is indexed anyway,
with a warning.
"""

import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing.exceptions import Unresolvable

from rag_context.domain.documents import DOCUMENTATION, Document, DocumentInput, Json, Listing, Metadata, Tenant
from rag_context.errors import FieldError
from rag_context.files.descriptors import NotRegularError, read_start
from rag_context.ingest.redaction import redact
from rag_context.projects.config import CustomDocType, ProjectConfig
from rag_context.projects.front_matter import FrontMatter, read_front_matter
from rag_context.projects.json_schemas import (
    MAX_PATTERNS,
    TooDeepError,
    TooManyStepsError,
    Validator,
    errors_of,
    has_too_many_patterns,
    not_applied,
    validator_of,
)
from rag_context.projects.links import inside
from rag_context.projects.records import (
    DEFAULT_DOC_TYPE,
    RESERVED_TAGS,
    DocTypeInfo,
    FileSystemError,
    ProjectDocument,
    PromotionLevel,
    SchemaValidationError,
    doc_type_tag,
    promotion_tag,
)

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

READER_VERSION = 2
"""Increased when files are read differently, so that all files are read again."""

_DIGEST_CHARS = 32
_RULES_CHARS = 8


class DocTypes:
    """The document types of one project.

    Args:
        infos: one per type, with distinct names. If two have the same folder, it belongs to the project's own type.
    """

    def __init__(self, infos: Sequence[DocTypeInfo]) -> None:
        self.infos = tuple(infos)
        self._by_name = {info.name: info for info in infos}
        by_depth = sorted(infos, key=lambda info: (-len(info.folder), not info.custom))
        self._folders = [(info.folder, info.name) for info in by_depth]
        self._validators: dict[str, Validator] = {info.name: validator_of(info.schema) for info in infos if info.schema}

    @property
    def warnings(self) -> tuple[str, ...]:
        """The parts of the project's own schemas that are ignored, with the reasons."""
        own = [info for info in self.infos if info.custom]
        return tuple(f"doc type {info.name!r}: {reason}" for info in own for reason in not_applied(info.schema))

    def named(self, name: str) -> DocTypeInfo | None:
        """The type with this name, or None."""
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
            found = list(dict.fromkeys(map(_sentence, errors_of(validator, front_matter))))
        except TooManyStepsError:
            return [f"The schema of {name!r} takes too long on this front matter and is not applied"]
        except (Unresolvable, TooDeepError, RecursionError) as error:
            return [f"The schema of {name!r} cannot be applied: {error}"]
        more = len(found) - MAX_COMPLAINTS
        return [*found[:MAX_COMPLAINTS], f"and {more} more"] if more > 0 else found


def doc_types_of(config: ProjectConfig, root: Path) -> DocTypes:
    """The built-in types and those of a configuration, which replace built-in ones of the same name.

    Raises:
        SchemaValidationError: a schema is invalid, does not exist, or is outside the repository.
        FileSystemError: a schema cannot be read.
    """
    infos = {info.name: info for info in _built_in()}
    for i, declared in enumerate(config.custom_doc_types):
        place = f"custom_doc_types[{i}]"
        infos[declared.name] = DocTypeInfo(
            name=declared.name,
            description=declared.description,
            folder=_folder(declared.folder, place),
            schema=_schema(declared, config.path.parent, root, place),
            custom=True,
        )
    return DocTypes(list(infos.values()))


def built_in_doc_types() -> tuple[DocTypeInfo, ...]:
    """The types that every project has."""
    return _built_in()


@cache
def _built_in() -> tuple[DocTypeInfo, ...]:
    found = []
    for name, folder in BUILT_IN_FOLDERS.items():
        text = files("rag_context.projects").joinpath("doc_type_schemas", f"{name}.json").read_text(encoding="utf-8")
        schema: dict[str, Json] = json.loads(text)
        found.append(DocTypeInfo(name, str(schema["description"]), folder, schema))
    return tuple(found)


def _folder(path: str, place: str) -> str:
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    if ".." in parts or not parts or path.startswith("/"):
        raise _unusable(f"{place}.folder", f"{path!r} is not a folder below the docs folder")
    return "/".join(parts)


def _schema(declared: CustomDocType, home: Path, root: Path, place: str) -> Mapping[str, Json]:
    if declared.schema_file is None:
        return {}
    place = f"{place}.schema_file"
    path = inside(home, declared.schema_file, root)
    if path is None:
        raise _unusable(place, f"{declared.schema_file!r} is outside the repository")
    try:
        data = read_start(path, MAX_SCHEMA_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError, NotRegularError):
        raise _unusable(place, f"There is no file {declared.schema_file!r} beside the configuration") from None
    except OSError as error:
        raise FileSystemError(
            f"The schema {declared.schema_file!r} of the doc type {declared.name!r} cannot be read: {error.strerror}",
            [FieldError(place, f"Cannot be read: {error.strerror}")],
        ) from error
    return _checked(data, place)


def _checked(data: bytes, place: str) -> Mapping[str, Json]:
    if len(data) > MAX_SCHEMA_BYTES:
        raise _unusable(place, f"The schema is larger than {MAX_SCHEMA_BYTES} bytes")
    try:
        schema = json.loads(data.decode("utf-8-sig"))
        if not isinstance(schema, dict):
            raise _unusable(place, "The schema must be a JSON object")
        if schema.get("$schema", _DIALECT).rstrip("#") != _DIALECT:
            raise _unusable(place, f"The schema must have the dialect {_DIALECT}")
        Draft202012Validator.check_schema(schema)
        if has_too_many_patterns(schema):
            raise _unusable(place, f"The schema has more than {MAX_PATTERNS} patterns")
    except SchemaError as error:
        raise _unusable(place, f"The schema is not a JSON Schema: {error.message[:200]}") from None
    except (ValueError, RecursionError, AttributeError) as error:
        raise _unusable(place, f"The schema is not valid JSON: {error}") from None
    return cast("Mapping[str, Json]", schema)


def _unusable(place: str, message: str) -> SchemaValidationError:
    sentence = f"The project configuration is invalid: {place}: {message}"
    return SchemaValidationError(sentence, [FieldError(place, message)])


def _sentence(error: ValidationError) -> str:
    """One warning, without the value: it may be long, and is in the file anyway."""
    place = ".".join(str(part) for part in error.absolute_path)
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
    return f"front matter: {place} {problem}" if place else f"front matter: {problem}"


def _joined(expected: object) -> str:
    return ", ".join(str(each) for each in expected) if isinstance(expected, list) else str(expected)


@dataclass(frozen=True, slots=True)
class Reader:
    """A docs folder, its tenant, and its document types."""

    tenant: Tenant
    docs_root: Path
    doc_types: DocTypes

    @property
    def rules(self) -> str:
        """Digest of everything except the file that determines a document: the reader's version and the types."""
        kinds = [[info.name, info.folder, dict(info.schema)] for info in self.doc_types.infos]
        return _digest(json.dumps([READER_VERSION, kinds], sort_keys=True))[:_RULES_CHARS]


@dataclass(frozen=True, slots=True)
class Read:
    """A file that was read: the document to index, and warnings about its front matter."""

    document: DocumentInput
    warnings: tuple[str, ...]


def revision(text: str, rules: str) -> str:
    """Digest of a file's text and of the reader's rules; equal revisions make equal documents."""
    return f"{_digest(text)[:_DIGEST_CHARS]}.{rules}"


def text_digest(revision: str) -> str:
    """The part of a revision that is the digest of the text; "" if it has none."""
    return revision.partition(".")[0]


def project_input(document: DocumentInput, path: str, reader: Reader, rules: str) -> Read:
    """The document of a project's file, with type, level, tags and metadata; secrets in its front matter are redacted.

    Args:
        document: the file as it was read.
        path: relative to the docs folder.
        reader: the docs folder and its tenant.
        rules: `reader.rules`.
    """
    front = read_front_matter(document.content)
    doc_type, warnings = _kind(front, path, reader.doc_types)
    values = {key: _redacted(value) for key, value in {**front.further, **_values(front)}.items()}
    extra: dict[str, Json] = {
        **values,
        "path": path,
        "doc_type": doc_type,
        "promotion_level": front.promotion_level.label,
        "char_count": len(document.content) - front.body_start,
        "line_count": document.content.count("\n") + (not document.content.endswith("\n")),
        "revision": revision(document.content, rules),
    }
    if warnings:
        extra["warnings"] = list(warnings)
    own_tags = dict.fromkeys(redact(tag).content for tag in front.tags)
    if own_tags:
        extra["tags"] = list(own_tags)
    metadata = Metadata(tags=(doc_type_tag(doc_type), promotion_tag(front.promotion_level), *own_tags), extra=extra)
    return Read(replace(document, content_type=DOCUMENTATION, tenant=reader.tenant, metadata=metadata), warnings)


def project_document(stored: Listing | Document) -> ProjectDocument:
    """The project document of a stored document; its path is the source if no project wrote it."""
    extra = stored.metadata.extra
    path = _text(extra, "path") or stored.source
    return ProjectDocument(
        id=stored.id,
        path=path,
        title=_text(extra, "title") or stored.title,
        doc_type=_text(extra, "doc_type") or DEFAULT_DOC_TYPE,
        promotion_level=_level(extra),
        char_count=_number(extra, "char_count"),
        line_count=_number(extra, "line_count"),
        summary=_text(extra, "summary"),
        date=_day(extra),
        significance=_text(extra, "significance"),
        tags=tuple(tag for tag in stored.metadata.tags if not tag.startswith(RESERVED_TAGS)),
        supersedes=_texts(extra, "supersedes"),
        related=_texts(extra, "related_docs"),
        docs_folder=stored.source.removesuffix(path).rstrip("/"),
        revision=_text(extra, "revision") or "",
        warnings=_texts(extra, "warnings"),
    )


def _kind(front: FrontMatter, path: str, doc_types: DocTypes) -> tuple[str, tuple[str, ...]]:
    """The type of a document, and warnings about its front matter."""
    doc_type = front.doc_type or doc_types.by_folder(path)
    if not front.values:
        return doc_type, front.warnings
    reported = {warning.partition(" must ")[0] for warning in front.warnings}
    found = doc_types.complaints(doc_type, front.values)
    complaints = [complaint for complaint in found if complaint.partition(" must ")[0] not in reported]
    if front.doc_type and front.doc_type != DEFAULT_DOC_TYPE and doc_types.named(front.doc_type) is None:
        complaints = [f"front matter: the doc type {front.doc_type!r} is not declared in the project"]
    return doc_type, (*front.warnings, *complaints)


def _values(front: FrontMatter) -> dict[str, Json]:
    values: dict[str, Json] = {
        "title": front.title,
        "summary": front.summary,
        "date": front.date.isoformat() if front.date else None,
        "significance": front.significance,
        "supersedes": list(front.supersedes),
        "related_docs": list(front.related_docs),
    }
    return {key: value for key, value in values.items() if value}


def _redacted(value: Json) -> Json:
    match value:
        case str():
            return redact(value).content
        case list():
            return [_redacted(each) for each in value]
        case dict():
            return {key: _redacted(each) for key, each in value.items()}
        case _:
            return value


def _level(extra: Mapping[str, Json]) -> PromotionLevel:
    try:
        return PromotionLevel.of(_text(extra, "promotion_level") or PromotionLevel.STANDARD.label)
    except ValueError:
        return PromotionLevel.STANDARD


def _day(extra: Mapping[str, Json]) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(_text(extra, "date") or "")
    except ValueError:
        return None


def _text(extra: Mapping[str, Json], key: str) -> str | None:
    value = extra.get(key)
    return value if isinstance(value, str) and value else None


def _texts(extra: Mapping[str, Json], key: str) -> tuple[str, ...]:
    value = extra.get(key)
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _number(extra: Mapping[str, Json], key: str) -> int:
    value = extra.get(key)
    return value if isinstance(value, int) else 0


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
