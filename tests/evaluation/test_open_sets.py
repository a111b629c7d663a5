"""The open sets that the program generates."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.open_sets import write_open_sets

from rag_context.domain.text import terms
from rag_context.errors import InvalidInputError
from rag_context.evaluation.datasets import EvidenceSet, load_set
from rag_context.search.question_times import windows

ROOT = Path(__file__).resolve().parents[2]
WRITE = """
import sys, pathlib
from benchmarks.open_sets import write_open_sets
write_open_sets(pathlib.Path(sys.argv[1]))
"""


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*.jsonl")
    }


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EvidenceSet]:
    loaded = [load_set(path) for path in write_open_sets(tmp_path_factory.mktemp("open"))]
    return {each.name: each for each in loaded if isinstance(each, EvidenceSet)}


def test_another_process_writes_the_same_bytes(tmp_path: Path) -> None:
    """B-2: a repeated measurement uses the same questions."""
    write_open_sets(tmp_path / "here")
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", WRITE, str(tmp_path / "there")], env=env, check=True)
    assert digests(tmp_path / "here") == digests(tmp_path / "there") != {}


def test_no_message_of_a_conversation_repeats_the_question_that_it_answers(sets: dict[str, EvidenceSet]) -> None:
    for each in [each for each in sets.values() if each.has_sessions]:
        contents = {item.id: item.content.lower() for item in each.items}
        copied = [
            question.text
            for question in each.questions
            for id_ in question.evidence
            if question.text.lower() in contents[id_]
        ]
        assert copied == [], each.name


def test_conversations_have_two_roles_or_two_names(sets: dict[str, EvidenceSet]) -> None:
    """B-1: conversations, each with messages that answer and three kinds of questions that nothing answers."""
    roles = {item.content.partition("]")[0] for item in sets["roles"].items}
    assert roles == {"[user", "[assistant"}
    by_project: dict[str | None, set[str]] = {}
    for item in sets["names"].items:
        by_project.setdefault(item.project, set()).add(item.content.partition("]")[0])
    assert all(len(names) == 2 for names in by_project.values())
    kinds = {question.category for question in sets["names"].questions if not question.evidence}
    assert kinds == {"unanswerable: other memory", "unanswerable: near topic", "unanswerable: other person"}


def test_a_named_question_is_answered_by_the_person_it_names(sets: dict[str, EvidenceSet]) -> None:
    said = {item.id: item.content for item in sets["names"].items}
    for question in sets["names"].questions:
        for id_ in question.evidence:
            assert said[id_].partition("]")[0][1:] in question.text


def test_a_correction_is_later_than_what_it_corrects(sets: dict[str, EvidenceSet]) -> None:
    """B-1: updates."""
    at = {item.id: item.occurred_at for item in sets["updates"].items}
    changed = [question for question in sets["updates"].questions if question.outdated]
    assert len(changed) >= 40
    for question in changed:
        new, old = at[question.evidence[0]], at[question.outdated[0]]
        assert new is not None
        assert old is not None
        assert new > old


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="file cannot be written"):
        write_open_sets(tmp_path / "file")


def test_a_dated_question_is_answered_by_events_of_its_time(sets: dict[str, EvidenceSet]) -> None:
    """B-1: the phrase for a month or a day fits every event that answers."""
    at = {item.id: item.occurred_at for item in sets["dated"].items}
    for question in sets["dated"].questions:
        assert question.evidence
        for id_ in question.evidence:
            moment = at[id_]
            assert moment is not None
            assert moment.strftime("%B") in question.text or moment.date().isoformat() in question.text
            assert str(moment.year) in question.text


def test_dated_questions_that_nothing_answers_name_days_of_the_memory(sets: dict[str, EvidenceSet]) -> None:
    """B-1: unanswerable questions, with a date."""
    asked = [question for question in sets["roles"].questions if question.category.endswith("with a date")]
    times = [item.occurred_at for item in sets["roles"].items if item.occurred_at is not None]
    assert len(asked) == 48
    for question in asked:
        assert question.evidence == ()
        for window in windows(question.text, max(times)):
            assert window.since is not None
            assert window.until is not None
            assert window.until > min(times)
            assert window.since <= max(times)
        assert windows(question.text, max(times))


def test_a_standing_instruction_is_said_before_its_request_and_by_the_user(sets: dict[str, EvidenceSet]) -> None:
    said = {item.id: item.content for item in sets["standing"].items}
    assert len(sets["standing"].questions) == 40
    for question in sets["standing"].questions:
        (id_,) = question.evidence
        assert said[id_].startswith("[user] ")


def test_the_repository_has_four_languages_and_four_kinds_of_questions(sets: dict[str, EvidenceSet]) -> None:
    """B-1: code by symbol, by purpose and by file."""
    repository = sets["repository"]
    assert {item.path.rpartition(".")[2] for item in repository.items} == {"py", "ts", "go", "java"}
    assert {item.content_type for item in repository.items} == {"code"}
    assert {question.category for question in repository.questions if question.evidence} == {
        "symbol",
        "symbol in a sentence",
        "purpose",
        "file",
    }
    code = {item.id: item.content for item in repository.items}
    for question in repository.questions:
        if question.category == "symbol":
            name = question.text.split(".")[-1]
            assert name in code[question.evidence[0]]
            assert sum(name in content for content in code.values()) > 10  # its tests, examples and older versions
        if question.category == "purpose":
            assert set(terms(question.text)).isdisjoint(terms(code[question.evidence[0]])), question.text


def test_questions_about_the_manual_are_in_its_language(sets: dict[str, EvidenceSet]) -> None:
    projects = {item.project for item in sets["manual"].items}
    assert projects == {"en", "de", "ru", "zh"}
    assert {question.project for question in sets["manual"].questions} == projects


def test_variants_have_questions_that_mean_the_single_words_too(sets: dict[str, EvidenceSet]) -> None:
    by_kind = Counter(question.category for question in sets["variants"].questions)
    assert by_kind == {"phrasal verb": 20, "compound": 10, "hyphen": 10, "apart": 10}
    answered_by = {question.category: question.evidence[0][-1] for question in sets["variants"].questions}
    assert answered_by["phrasal verb"] == "a"
    assert answered_by["apart"] != "a"


def test_project_documents_go_through_the_project_tools(sets: dict[str, EvidenceSet]) -> None:
    assert [name for name, each in sets.items() if each.is_project] == ["project"]


def test_the_quality_page_shows_every_category_of_every_set(sets: dict[str, EvidenceSet]) -> None:
    """B-2: a set or category that was added, and not measured, fails here."""
    page = (ROOT / "docs" / "design" / "quality.md").read_text(encoding="utf-8")
    for each in sets.values():
        for category, count in Counter(question.category for question in each.questions).items():
            assert f"| {each.name} | {category} | {count} |" in page


def test_keyword_search_alone_solves_none_of_the_sets(sets: dict[str, EvidenceSet]) -> None:
    """B-2: by the figures on the page, recall@10 in mode text is below .7."""
    page = (ROOT / "docs" / "design" / "quality.md").read_text(encoding="utf-8")
    table = page.partition("### Evidence among")[2].partition("###")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    overall = {row[0]: row for row in rows[1:]}  # the last row of a set is the one of all its categories
    assert overall.keys() == sets.keys()
    for row in overall.values():
        assert float(row[3]) < 0.7
