"""Types of documents, and what is indexed of a file."""

import asyncio
import datetime
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from rag_context.domain.documents import Channel, DocumentInput, Json, Listing, Metadata, Tenant
from rag_context.ingest.redaction import Redactor
from rag_context.projects.config import CustomDocType, ProjectConfig, read_config
from rag_context.projects.doc_types import DocTypes, doc_types_of
from rag_context.projects.project_documents import DocsFolder, project_document, project_input, text_digest
from rag_context.projects.records import ProjectDocument, PromotionLevel, SchemaValidationError
from tests.projects.sync_harness import TENANT, built_in, configure

SIGNIFICANCE = ("architectural", "behavioral", "performance", "correctness", "convention", "integration")
WHOLE: dict[str, Json] = {
    "doc_type": "problem",
    "title": "t",
    "date": "2026-03-01",
    "summary": "s",
    "significance": "performance",
}


def declared(root: Path, schema: object = None, **fields: object) -> DocTypes:
    """A project with one kind of its own, and its schema beside the configuration."""
    said = {"name": "recipe", "description": "How to", "folder": "recipes", **fields}
    path = configure(root, custom_doc_types=[said])
    if schema is not None:
        (path.parent / "recipe.json").write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return doc_types_of(read_config(path), root)


def test_the_built_in_kinds_have_a_folder_a_description_and_a_valid_schema() -> None:
    infos = built_in().infos
    assert [info.name for info in infos] == ["problem", "insight", "codebase", "tool", "style"]
    for info in infos:
        assert info.folder
        assert info.description.endswith(".")
        assert not info.custom
        Draft202012Validator.check_schema(dict(info.schema))


@pytest.mark.parametrize("name", ["problem", "insight", "codebase", "tool", "style"])
def test_complete_front_matter_has_nothing_against_it(name: str) -> None:
    optional: dict[str, Json] = {
        "tags": ["a"],
        "related_docs": ["b.md"],
        "supersedes": "c.md",
        "promotion_level": "critical",
    }
    assert built_in().complaints(name, {**WHOLE, "doc_type": name}) == []
    assert built_in().complaints(name, {**WHOLE, **optional, "doc_type": name, "status": "extra"}) == []


def test_what_is_missing_or_wrong_is_reported_without_its_value() -> None:
    said = built_in().complaints(
        "problem", {"doc_type": "problem", "significance": "s3cret", "date": "soon", "tags": [7]}
    )
    assert said == [
        "front matter: title, summary missing",
        "front matter: date must be a date",
        f"front matter: significance must be one of {', '.join(SIGNIFICANCE)}",
        "front matter: tags.0 must be a string",
    ]


def test_the_folder_decides_where_the_front_matter_does_not() -> None:
    kinds = built_in()
    assert kinds.by_folder("problems/a.md") == "problem"
    assert kinds.by_folder("tools/deep/er/a.md") == "tool"
    assert kinds.by_folder("problems-old/a.md") == "document"
    assert kinds.by_folder("problems.md") == "document"
    assert kinds.by_folder("x/problems/a.md") == "document"


def test_the_innermost_declared_folder_decides(tmp_path: Path) -> None:
    kinds = declared(tmp_path, folder="problems/recipes")
    assert kinds.by_folder("problems/recipes/a.md") == "recipe"
    assert kinds.by_folder("problems/a.md") == "problem"


def test_a_folder_of_a_custom_doc_type_has_that_type(tmp_path: Path) -> None:
    kinds = declared(tmp_path, folder="problems")
    assert kinds.by_folder("problems/a.md") == "recipe"


def test_a_project_adds_doc_types_with_their_own_schemas(tmp_path: Path) -> None:
    kinds = declared(tmp_path, {"type": "object", "required": ["servings"]}, schema_file="recipe.json")
    info = kinds.named("recipe")
    assert info is not None
    assert info.custom
    assert kinds.complaints("recipe", {}) == ["front matter: servings missing"]
    assert kinds.complaints("recipe", {"servings": 2}) == []
    assert kinds.by_folder("recipes/soup.md") == "recipe"


def test_a_project_may_replace_a_built_in_kind(tmp_path: Path) -> None:
    kinds = declared(tmp_path, name="problem", folder="bugs")
    assert kinds.by_folder("bugs/a.md") == "problem"
    assert kinds.by_folder("problems/a.md") == "document"
    assert kinds.complaints("problem", {}) == []


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "JSON object"),
        ({"type": 7}, "not a JSON Schema"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "dialect"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_an_invalid_schema_stops_the_activation(tmp_path: Path, schema: object, message: str) -> None:
    with pytest.raises(SchemaValidationError, match=message) as caught:
        declared(tmp_path, schema, schema_file="recipe.json")
    assert caught.value.details[0].field == "custom_doc_types[0].schema_file"


@pytest.mark.parametrize("place", ["../../outside.json", "/etc/passwd", "link.json"])
def test_a_schema_outside_the_repository_is_rejected(tmp_path: Path, place: str) -> None:
    root = tmp_path / "repository"
    (root / ".rag-context").mkdir(parents=True)
    (tmp_path / "outside.json").write_text("{}")
    (root / ".rag-context" / "link.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(SchemaValidationError, match="is outside the repository"):
        declared(root, schema_file=place)


@pytest.mark.parametrize("name", ["nowhere.json", "nowhere/a.json", "."])
def test_a_schema_that_is_missing_is_a_mistake_of_the_configuration(tmp_path: Path, name: str) -> None:
    with pytest.raises(SchemaValidationError, match=re.escape(f"There is no file {name!r}")):
        declared(tmp_path, schema_file=name)


def test_a_pattern_that_would_backtrack_for_ever_is_matched(tmp_path: Path) -> None:
    schema = {"properties": {"title": {"pattern": "^(a+)+$"}}, "patternProperties": {"^(x+x+)+y$": {"type": "null"}}}
    kinds = declared(tmp_path, schema, schema_file="recipe.json")
    assert kinds.complaints("recipe", {"title": "a" * 34 + "!", "x" * 40: 1}) == [
        "front matter: title does not match 'pattern' of its doc type"
    ]
    assert kinds.complaints("recipe", {"title": "a" * 34}) == []
    assert kinds.warnings == ()


def test_names_that_patterns_take_are_not_further_ones(tmp_path: Path) -> None:
    schema = {"properties": {"a": {}}, "patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}
    kinds = declared(tmp_path, schema, schema_file="recipe.json")
    assert kinds.complaints("recipe", {"a": 1, "x-b": "c"}) == []
    assert kinds.complaints("recipe", {"x-b": 1}) == ["front matter: x-b must be a string"]
    assert kinds.complaints("recipe", {"ax-b": "c"}) == ["front matter: has keys that its doc type does not define"]


def test_a_pattern_that_no_linear_engine_matches_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    schema: dict[str, Json] = {
        "properties": {"title": {"pattern": "^(?!a)"}},
        "patternProperties": {r"(\w{50}){20}": {}},
    }
    kinds = declared(
        tmp_path, {**schema, "additionalProperties": False, "unevaluatedItems": False}, schema_file="recipe.json"
    )
    assert kinds.complaints("recipe", {"title": "abc"}) == []
    assert [warning.partition(":")[0] for warning in kinds.warnings] == ["doc type 'recipe'"] * 3
    assert "'unevaluatedItems' is not applied" in kinds.warnings[0]
    assert any("look-around" in warning for warning in kinds.warnings)
    assert any("too large" in warning for warning in kinds.warnings)


def test_a_schema_whose_references_multiply_is_given_up(tmp_path: Path) -> None:
    both = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(20)}
    schema = {"$defs": {**both, "d20": {"type": "object"}}, "$ref": "#/$defs/d0"}
    kinds = declared(tmp_path, schema, schema_file="recipe.json")
    assert kinds.complaints("recipe", {"a": 1}) == [
        "The schema of 'recipe' takes too long on this front matter and is not applied"
    ]


def test_a_schema_of_too_many_patterns_is_rejected(tmp_path: Path) -> None:
    schema: dict[str, Json] = {"patternProperties": {f"^{i}$": {} for i in range(101)}}
    with pytest.raises(SchemaValidationError, match="more than 100 patterns"):
        declared(tmp_path, schema, schema_file="recipe.json")


@pytest.mark.parametrize(("items", "found"), [([1, 1], 1), ([1, "1", True], 0), ([{"a": 1}, {"a": 1}], 1)])
def test_items_are_compared_by_value(tmp_path: Path, items: Json, found: int) -> None:
    kinds = declared(tmp_path, {"properties": {"t": {"uniqueItems": True}}}, schema_file="recipe.json")
    assert len(kinds.complaints("recipe", {"t": items})) == found


@pytest.mark.parametrize("folder", ["..", "/", ".", "a/../b", "/abs"])
def test_a_folder_outside_the_docs_folder_is_rejected(tmp_path: Path, folder: str) -> None:
    with pytest.raises(SchemaValidationError, match="below the docs folder"):
        declared(tmp_path, folder=folder)


async def test_a_reference_to_another_place_is_not_fetched_but_warned_about(tmp_path: Path) -> None:
    asked = asyncio.Event()

    def hear(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        writer.close()

    async with await asyncio.start_server(hear, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        kinds = declared(tmp_path, {"$ref": f"http://127.0.0.1:{port}/schema.json"}, schema_file="recipe.json")
        assert "cannot be applied" in (await asyncio.to_thread(kinds.complaints, "recipe", {}))[0]
    assert not asked.is_set()


def test_a_schema_that_refers_to_itself_without_end_is_warned_about(tmp_path: Path) -> None:
    kinds = declared(tmp_path, {"$ref": "#"}, schema_file="recipe.json")
    assert "cannot be applied: it nests more than 64 keywords" in kinds.complaints("recipe", {"a": 1})[0]


def test_a_schema_that_nests_thirty_levels_is_applied(tmp_path: Path) -> None:
    schema: dict[str, Json] = {"type": "string"}
    value: Json = 1
    for _ in range(30):
        schema, value = {"properties": {"a": schema}}, {"a": value}
    assert isinstance(value, dict)
    assert declared(tmp_path, schema, schema_file="recipe.json").complaints("recipe", value) != []


def test_a_kind_without_a_schema_has_nothing_against_anything() -> None:
    kind = CustomDocType(name="loop", folder="loops")
    config = ProjectConfig(Path("/x/.rag-context/config.json"), "shop", custom_doc_types=(kind,))
    assert doc_types_of(config, Path("/x")).complaints("loop", {"a": 1}) == []


def test_many_complaints_are_counted(tmp_path: Path) -> None:
    schema = {"properties": {name: {"type": "string"} for name in "abcdefgh"}}
    kinds = declared(tmp_path, schema, schema_file="recipe.json")
    said = kinds.complaints("recipe", dict.fromkeys("abcdefgh", 1))
    assert len(said) == 6
    assert said[-1] == "and 3 more"


FOLDER = DocsFolder(TENANT, Path("/repository/docs"), built_in())
EVERY_FIELD = """\
---
doc_type: insight
title: A title
date: 2026-03-01
summary: What it says.
significance: behavioral
promotion_level: critical
tags: [db, 'promotion:standard']
related_docs: [tools/b.md]
supersedes: problems/old.md
author: somebody
path: ../../etc
revision: forged
---
# Heading
"""


def document(text: str, path: str = "problems/a.md") -> tuple[ProjectDocument, Metadata, tuple[str, ...]]:
    """What a project knows of a file once it is stored."""
    draft = DocumentInput(text, "documentation", "files", f"/repository/docs/{path}", channel=Channel.FILE)
    read = project_input(draft, path, FOLDER)
    made = read.document
    assert made.tenant == TENANT
    assert made.content == text
    listing = Listing(
        "id",
        NOON,
        indexed=True,
        title="Title by name",
        content_type=made.content_type,
        session_id="files",
        source=made.source,
        timestamp=NOON,
        metadata=made.metadata,
    )
    return project_document(listing), made.metadata, read.warnings


NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def test_a_document_comes_back_as_its_front_matter_says() -> None:
    known, metadata, _ = document(EVERY_FIELD)
    assert known == ProjectDocument(
        id="id",
        path="problems/a.md",
        title="A title",
        doc_type="insight",
        promotion_level=PromotionLevel.CRITICAL,
        char_count=len("# Heading\n"),
        line_count=EVERY_FIELD.count("\n"),
        summary="What it says.",
        date=datetime.date(2026, 3, 1),
        significance="behavioral",
        tags=("db",),
        supersedes=("problems/old.md",),
        related=("tools/b.md",),
        docs_folder="/repository/docs",
        revision=FOLDER.revision(EVERY_FIELD),
        warnings=known.warnings,
    )
    assert metadata.tags == ("doc_type:insight", "promotion:critical", "db")
    assert metadata.extra["author"] == "somebody"


def test_front_matter_cannot_forge_what_the_index_records_of_a_file() -> None:
    known, metadata, warnings = document(EVERY_FIELD)
    assert (known.path, known.revision) == ("problems/a.md", FOLDER.revision(EVERY_FIELD))
    assert metadata.tags.count("promotion:critical") == 1
    assert "promotion:standard" not in metadata.tags
    assert any("reserved" in warning for warning in warnings)


def test_a_document_without_front_matter_is_standard_and_typed_by_its_folder() -> None:
    known, metadata, warnings = document("# Heading\n")
    assert (known.doc_type, known.promotion_level, known.title) == ("problem", PromotionLevel.STANDARD, "Title by name")
    assert metadata.tags == ("doc_type:problem", "promotion:standard")
    assert warnings == ()


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("title: x", "doc_type, date, summary, significance missing"),
        ("doc_type: nonsuch\ntitle: x", "'nonsuch' is not declared"),
        ("title: [broken", "not valid YAML"),
    ],
)
def test_incomplete_front_matter_is_a_warning_that_is_kept(block: str, message: str) -> None:
    known, _, warnings = document(f"---\n{block}\n---\ntext\n")
    assert message in warnings[0]
    assert known.warnings == warnings


def test_what_is_wrong_is_reported_once() -> None:
    _, _, warnings = document(EVERY_FIELD.replace("2026-03-01", "soon").replace("critical", "urgent"))
    assert len([warning for warning in warnings if "date" in warning]) == 1
    assert len([warning for warning in warnings if "promotion_level" in warning]) == 1


def test_secrets_in_front_matter_are_made_unreadable() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    text = f"---\ntitle: x\nsummary: the token is {secret}\nnotes: [{{deep: {secret}}}]\ntags: [{secret}]\n---\n"
    draft = DocumentInput(text, "documentation", "files", "/repository/docs/a.md", channel=Channel.FILE)
    clean, _ = Redactor().document(project_input(draft, "a.md", FOLDER).document)
    assert secret not in str(clean)
    said: dict[str, Json] = dict(clean.metadata.extra)
    assert "the token is" in str(said["summary"])


def test_a_revision_changes_with_the_text_and_with_the_rules() -> None:
    kinds = built_in().infos
    moved = DocsFolder(TENANT, FOLDER.root, type(built_in())([replace(kinds[0], folder="bugs"), *kinds[1:]]))
    assert moved.rules != FOLDER.rules
    assert FOLDER.revision("a") != FOLDER.revision("b")
    assert FOLDER.revision("a") != moved.revision("a")
    assert text_digest(FOLDER.revision("a")) == text_digest(moved.revision("a"))
    assert text_digest(FOLDER.revision("a")) != text_digest(FOLDER.revision("b"))
    assert text_digest("") == ""


def test_a_document_that_no_project_wrote_is_known_by_its_source() -> None:
    metadata = Metadata(extra={"promotion_level": 7, "date": "x", "char_count": "many", "supersedes": "no list"})
    known = project_document(
        Listing(
            "id",
            NOON,
            indexed=True,
            title="T",
            content_type="chat",
            session_id="s",
            source="notes",
            timestamp=NOON,
            metadata=metadata,
        )
    )
    assert (known.path, known.title, known.doc_type) == ("notes", "T", "document")
    assert (known.promotion_level, known.date, known.char_count, known.supersedes) == (
        PromotionLevel.STANDARD,
        None,
        0,
        (),
    )


def test_another_tenant_and_root_do_not_change_the_rules() -> None:
    assert DocsFolder(Tenant("other"), Path("/x"), built_in()).rules == FOLDER.rules
