"""A file of a project as a draft, and a stored document as its project knows it."""

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from rag_context.domain.documents import DocumentInput, Json, Listing, Metadata, Origin, Tenant
from rag_context.projects.project_documents import Reader, project_document, project_input, revision, text_digest
from rag_context.projects.records import ProjectDocument, PromotionLevel
from tests.projects.sync_harness import TENANT, built_in

READER = Reader(TENANT, Path("/repository/docs"), built_in())
WHOLE = """\
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
    draft = DocumentInput(text, "documentation", "files", f"/repository/docs/{path}", origin=Origin.FILE)
    read = project_input(draft, path, READER, READER.rules)
    made = read.document
    assert made.tenant == TENANT
    assert made.content == text
    listing = Listing("id", "Title by name", made.content_type, "files", made.source, NOON, made.metadata, indexed=True)
    return project_document(listing), made.metadata, read.warnings


NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def test_a_document_comes_back_as_its_front_matter_says() -> None:
    known, metadata, _ = document(WHOLE)
    assert known == ProjectDocument(
        id="id",
        path="problems/a.md",
        title="A title",
        doc_type="insight",
        promotion_level=PromotionLevel.CRITICAL,
        char_count=len("# Heading\n"),
        line_count=WHOLE.count("\n"),
        summary="What it says.",
        date=datetime.date(2026, 3, 1),
        significance="behavioral",
        tags=("db",),
        supersedes=("problems/old.md",),
        related=("tools/b.md",),
        docs_folder="/repository/docs",
        revision=revision(WHOLE, READER.rules),
        warnings=known.warnings,
    )
    assert metadata.tags == ("doc_type:insight", "promotion:critical", "db")
    assert metadata.extra["author"] == "somebody"


def test_front_matter_cannot_forge_what_the_index_records_of_a_file() -> None:
    known, metadata, warnings = document(WHOLE)
    assert (known.path, known.revision) == ("problems/a.md", revision(WHOLE, READER.rules))
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
    _, _, warnings = document(WHOLE.replace("2026-03-01", "soon").replace("critical", "urgent"))
    assert len([warning for warning in warnings if "date" in warning]) == 1
    assert len([warning for warning in warnings if "promotion_level" in warning]) == 1


def test_secrets_in_front_matter_are_made_unreadable() -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    _, metadata, _ = document(f"---\ntitle: x\nsummary: the token is {secret}\nnotes: [{{deep: {secret}}}]\n---\n")
    said: dict[str, Json] = dict(metadata.extra)
    assert secret not in str(said)
    assert "the token is" in str(said["summary"])


def test_a_revision_changes_with_the_text_and_with_the_rules() -> None:
    kinds = built_in().infos
    moved = Reader(TENANT, READER.docs_root, type(built_in())([replace(kinds[0], folder="bugs"), *kinds[1:]]))
    assert moved.rules != READER.rules
    assert revision("a", "1") != revision("b", "1")
    assert revision("a", "1") != revision("a", "2")
    assert text_digest(revision("a", "1")) == text_digest(revision("a", "2"))
    assert text_digest(revision("a", "1")) != text_digest(revision("b", "1"))
    assert text_digest("") == ""


def test_a_document_that_no_project_wrote_is_known_by_its_source() -> None:
    metadata = Metadata(extra={"promotion_level": 7, "date": "x", "char_count": "many", "supersedes": "no list"})
    known = project_document(Listing("id", "T", "chat", "s", "notes", NOON, metadata, indexed=True))
    assert (known.path, known.title, known.doc_type) == ("notes", "T", "document")
    assert (known.promotion_level, known.date, known.char_count, known.supersedes) == (
        PromotionLevel.STANDARD,
        None,
        0,
        (),
    )


def test_tenants_of_other_readers_do_not_change_the_rules() -> None:
    assert Reader(Tenant("other"), Path("/x"), built_in()).rules == READER.rules
