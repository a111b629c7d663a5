"""`correct`, `history`, `log`, `undo` and `forget`, as a person reads them."""

import pytest

from .run_command import Commands


@pytest.fixture
def document(commands: Commands) -> str:
    """The id of a decision; a second document stands beside it."""
    for text in ("We retry a failed payment three times.", "The heron stands in the harbour."):
        assert commands("remember", text).status == 0
    documents = commands("list", "--json").json()["documents"]
    return str(next(each["documentId"] for each in documents if "payment" in each["title"]))


def test_a_correction_hides_what_it_corrects_until_it_is_undone(commands: Commands, document: str) -> None:
    corrected = commands("correct", document, "--content", "We retry a failed payment five times.", "--reason", "few")
    assert corrected.status == 0
    assert "because: few" in commands("history", document).out
    found = commands("search", "how often is a failed payment retried", "--json").json()["results"]
    assert ["three" in result["content"] for result in found if "payment" in result["content"]] == [False]
    hidden = commands("search", "how often is a failed payment retried", "--superseded", "--json").json()["results"]
    assert any("three" in result["content"] and "supersededBy" in result for result in hidden)
    newest = commands("log", "--json").json()["entries"][0]
    assert (newest["operation"], newest["undoable"]) == ("correct", True)
    assert commands("undo", newest["id"]).status == 0
    assert "undo" in commands("log").out
    found = commands("search", "how often is a failed payment retried", "--json").json()["results"]
    assert ["three" in result["content"] for result in found if "payment" in result["content"]] == [True]
    assert commands("undo", newest["id"]).status != 0, "it is undone already"


def test_what_is_forgotten_is_previewed_restored_and_purged(commands: Commands, document: str) -> None:
    preview = commands("forget", "--contains", "heron", "--dry-run")
    assert "1 document would be forgotten" in preview.out
    assert commands("forget", "--contains", "heron", "--yes").status == 0
    assert len(commands("list", "--json").json()["documents"]) == 1
    newest = commands("log", "--json").json()["entries"][0]
    assert commands("undo", newest["id"]).status == 0
    assert len(commands("list", "--json").json()["documents"]) == 2
    assert commands("forget", "--contains", "heron", "--purge", "--yes").status == 0
    assert b"heron" not in (commands.data_dir / "rag-context.db").read_bytes()
    assert "purge" in commands("log").out
    assert commands("history", "00000000-0000-4000-8000-000000000000").status != 0
    assert commands("undo", "999").status != 0


def test_what_probably_needs_a_decision_is_listed(commands: Commands, document: str) -> None:
    assert commands("remember", "We retry a failed payment five times.").status == 0
    listed = commands("review")
    assert "A later statement gives another value" in listed.out
    assert document in listed.out
    assert "3 documents examined" in listed.err
    (found,) = commands("review", "--json").json()["suggestions"]
    assert found["documents"][1]["documentId"] == document


def test_commands_without_a_server_are_recorded_too(commands: Commands, document: str) -> None:
    """X-8: a process that opens the index itself leaves lines as clients of a server do, without a text."""
    for name in ("one", "two"):
        (commands.folder / f"{name}.md").write_text(f"# {name}\n\nThe walrus of {name} sleeps.\n")
    assert commands("index", ".").status == 0
    (commands.folder / "two.md").unlink()
    assert commands("index", ".", "--prune").status == 0
    assert commands("forget", document, "--yes").status == 0
    assert commands("export", "all.jsonl").status == 0
    assert commands("import", "all.jsonl").status == 0
    assert commands("undo", "999").status != 0

    listed = commands("log", "--accesses", "--limit", "100000")

    recorded = [(each["operation"], each["outcome"]) for each in listed.lines()][::-1]
    assert recorded == [
        *[("bulk", "ok")] * 3,  # both that were remembered, and the folder
        ("rag_context_delete", "ok"),
        ("rag_context_forget", "ok"),
        ("import", "ok"),
        ("rag_context_undo", "NotFoundError"),
    ]
    assert "walrus" not in listed.out
    assert "two.md" not in listed.out
    assert [each["operation"] for each in commands("log", "--accesses", "--limit", "2").lines()] == [
        "rag_context_undo",
        "import",
    ]
