"""The open sets that the program generates."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rag_context.errors import InvalidInputError
from rag_context.evaluation.evidence_sets import EvidenceSet, load_set
from rag_context.evaluation.open_sets import write_open_sets

WRITE = """
import sys, pathlib
from rag_context.evaluation.open_sets import write_open_sets
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
    """B-2: whoever repeats a figure measures on the same questions."""
    write_open_sets(tmp_path / "here")
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    subprocess.run([sys.executable, "-c", WRITE, str(tmp_path / "there")], env=env, check=True)
    assert digests(tmp_path / "here") == digests(tmp_path / "there") != {}


def test_no_evidence_is_given_away_by_the_question(sets: dict[str, EvidenceSet]) -> None:
    for each in sets.values():
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
