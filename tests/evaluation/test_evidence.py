"""Sets with evidence: their layout, what is measured on them, and the tables."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.interface_quality import project_dataset
from benchmarks.quality_page import evidence_markdown
from rich.console import Console

from rag_context.errors import BackendDataError, BackendUnavailableError, InvalidInputError
from rag_context.evaluation.datasets import Dataset, EvidenceQuestion, EvidenceSet, LabelledItem, load_set
from rag_context.evaluation.evidence_quality import EvidenceOutcome, Measured, Returned, corrected, evaluate_evidence
from rag_context.evaluation.quality import MODES
from rag_context.evaluation.report import Outcomes, as_object, as_tables, at_limits, figures
from rag_context.search.query import Mode
from rag_context.testing import Fault
from tests.evaluation.collections import write_graded, write_lines, write_spans
from tests.memory.harness import ServiceHarness

MESSAGES = [
    {"_id": "m1", "text": "My rent is 840 euros.", "speaker": "user", "sessionId": "s1", "project": "p"},
    {"_id": "m2", "text": "Foxes hunt voles.", "speaker": "user", "sessionId": "s1", "project": "p"},
    {"_id": "m3", "text": "The rent rose to 895 euros.", "speaker": "user", "sessionId": "s2", "project": "p"},
    {"_id": "other", "text": "Whales sing below ships.", "speaker": "user", "sessionId": "s3"},
]
QUESTIONS = [
    {"_id": "1", "text": "voles that foxes hunt", "evidence": ["m2"], "category": "plain", "project": "p"},
    {
        "_id": "2",
        "text": "rent still 840",
        "evidence": ["m3"],
        "outdated": ["m1"],
        "category": "changed",
        "project": "p",
    },
    {"_id": "3", "text": "price of copper", "evidence": [], "project": "p"},
    {"_id": "4", "text": "song of whales", "evidence": ["other"], "category": "plain"},
]


def write_messages(folder: Path, **changed: list[dict[str, Any]]) -> Path:
    write_lines(folder / "corpus.jsonl", changed.get("corpus", MESSAGES))
    write_lines(folder / "queries.jsonl", changed.get("queries", QUESTIONS))
    return folder


def evidence_set(folder: Path) -> EvidenceSet:
    loaded = load_set(write_messages(folder))
    assert isinstance(loaded, EvidenceSet)
    return loaded


def quiet(_doing: str, _done: int, _total: int) -> None:
    """Ignore progress."""


@pytest.fixture
async def harness() -> ServiceHarness:
    made = ServiceHarness()
    await made.bound.bind()
    return made


def test_messages_and_questions_are_read(tmp_path: Path) -> None:
    """B-1: evidence by message."""
    found = evidence_set(tmp_path / "talks")
    first = found.items[0]
    assert (first.content, first.content_type, first.session, first.project) == (
        "[user] My rent is 840 euros.",
        "chat",
        "s1",
        "p",
    )
    assert [question.category for question in found.questions] == ["plain", "changed", "unanswerable", "plain"]
    assert found.questions[1].outdated == ("m1",)
    assert found.has_sessions
    assert not found.is_project


def test_a_question_without_a_list_of_evidence_is_rejected(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = [*QUESTIONS, {"_id": "9", "text": "where is it"}]
    with pytest.raises(InvalidInputError, match=r"query '9' lacks evidence; write \[\] if nothing answers it"):
        load_set(write_messages(tmp_path, queries=asked))


def test_files_have_a_path_and_documents_a_heading(tmp_path: Path) -> None:
    corpus = [
        {"_id": "a", "text": "def f(): ...", "contentType": "code", "path": "src/a.py"},
        {"_id": "b", "text": "On foxes.", "title": "Foxes", "path": "docs/b.md"},
    ]
    asked = [{"_id": "1", "text": "f", "evidence": ["a"]}]
    found = load_set(write_messages(tmp_path, corpus=corpus, queries=asked))
    assert isinstance(found, EvidenceSet)
    assert [(item.content_type, item.path) for item in found.items] == [
        ("code", "src/a.py"),
        ("documentation", "docs/b.md"),
    ]
    assert found.items[1].content == "# Foxes\n\nOn foxes."
    assert not found.has_sessions


def test_the_other_layouts_are_read_as_before(tmp_path: Path) -> None:
    assert isinstance(load_set(write_graded(tmp_path / "graded")), Dataset)
    assert isinstance(load_set(write_spans(tmp_path / "spans")), Dataset)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"evidence": ["m9"]}, "query '1' names 'm9', which is not in corpus.jsonl"),
        ({"evidence": "m2"}, "query '1': evidence must be a list of ids of corpus.jsonl"),
        ({"evidence": [["m2"]]}, "query '1': evidence must be a list of ids"),
        ({"evidence": ["other"]}, "query '1' is asked in project 'p', but 'other' belongs to None"),
        ({"evidence": [], "outdated": ["m1"]}, "query '1' has outdated items, but no evidence that corrects them"),
        ({"evidence": []}, "none of the queries has evidence"),
        ({"evidence": ["m2"], "category": 7}, "query '1': category must be a text"),
    ],
)
def test_a_question_that_contradicts_the_corpus_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    asked = {"_id": "1", "text": "voles", "project": "p", **row}
    with pytest.raises(InvalidInputError, match=message):
        load_set(write_messages(tmp_path, queries=[asked]))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": " "}, "item 'm1' has no text"),
        ({"speaker": 3}, "item 'm1': speaker must be a text"),
        ({"occurredAt": "in May"}, "item 'm1': occurredAt must be a time such as 2026-05-07T09:30:00Z"),
        ({"occurredAt": "2026-05-07T09:30:00"}, "item 'm1': occurredAt must be a time such as"),
        ({"_id": "m2"}, "the _id 'm2' stands there twice"),
    ],
)
def test_an_item_that_cannot_be_used_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        load_set(write_messages(tmp_path, corpus=[{**MESSAGES[0], **row}, *MESSAGES[1:]]))


async def test_every_question_is_measured_in_its_project(harness: ServiceHarness, tmp_path: Path) -> None:
    """B-1: by message and by session, corrections, unanswerable questions, and answers by limit."""
    outcome = await evaluate_evidence(harness.service, evidence_set(tmp_path / "talks"), quiet)
    assert (outcome.dataset, outcome.items, outcome.sessions) == ("talks", 4, 3)
    plain, changed, unanswerable, other = outcome.measured
    assert set(plain.by_mode["recall"].values()) == set(other.by_mode["recall"].values()) == {1.0}
    assert plain.shares == {"noAnswer": 0, "standing": 0, "listed": 0, "anySession": 1, "allSessions": 1}
    assert not changed.by_mode["correctionFirst"][Mode.TEXT]  # the old message holds more of the question
    assert changed.shares["bothSides"]
    assert (unanswerable.by_mode, unanswerable.at_limit, unanswerable.shares["noAnswer"]) == ({}, {}, 1)
    text = "[user] Foxes hunt voles."
    assert plain.at_limit[1] == Returned(1, len(harness.fake.tokenizer.offsets(text)))


async def test_messages_of_a_session_are_indexed_in_their_order(harness: ServiceHarness, tmp_path: Path) -> None:
    await evaluate_evidence(harness.service, evidence_set(tmp_path / "talks"), quiet)
    answer = await harness.search("voles that foxes hunt", project="p", limit=1)
    assert answer.results[0].context is not None
    assert answer.results[0].context.before == "[user] My rent is 840 euros."


async def test_a_failing_component_ends_the_measurement(harness: ServiceHarness, tmp_path: Path) -> None:
    dataset = evidence_set(tmp_path / "talks")
    await evaluate_evidence(harness.service, dataset, quiet)
    harness.embedder.fault = Fault(BackendDataError("embedder", "nonsense"))
    with pytest.raises(BackendUnavailableError, match="level 2"):
        await evaluate_evidence(harness.service, dataset, quiet)


async def test_two_items_that_are_one_document_are_named(harness: ServiceHarness) -> None:
    items = tuple(LabelledItem(id_, "foxes", "code", path="a.py") for id_ in ("a", "b"))
    dataset = EvidenceSet("d", items, (EvidenceQuestion("1", "foxes", ("a",)),))
    with pytest.raises(InvalidInputError, match="is the same document as"):
        await evaluate_evidence(harness.service, dataset, quiet)


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [(["x", "new", "old"], True), (["old", "new"], False), (["x"], False), ([*"0123456789", "new"], False)],
)
def test_a_correction_counts_above_what_it_corrects_and_among_ten(ranking: list[str], expected: bool) -> None:
    assert corrected(ranking, EvidenceQuestion("1", "?", ("new",), ("old",))) is expected


def test_only_questions_with_an_answer_go_through_the_project_tools() -> None:
    items = (LabelledItem("a", "Foxes.", "documentation", path="docs/a.md"),)
    asked = (EvidenceQuestion("1", "foxes?", ("a",)), EvidenceQuestion("2", "copper?"))
    dataset = EvidenceSet("d", items, asked)
    assert dataset.is_project
    assert [dict(question.grades) for question in project_dataset(dataset).questions] == [{"a": 1}]


def measured(category: str, evidence: int, hybrid: float, found: int, tokens: int, **fields: Any) -> Measured:
    by_mode = dict.fromkeys(MODES, 0.5) | {Mode.HYBRID: hybrid}
    modes = {"correctionFirst": fields.pop("correctionFirst")} if "correctionFirst" in fields else {}
    return Measured(
        EvidenceQuestion("q", "?", tuple(map(str, range(evidence))), category=category),
        {**({"recall": by_mode, "ndcg": by_mode} if evidence else {}), **modes},
        {"noAnswer": 0, "standing": 0, "listed": 0, **fields},
        dict.fromkeys((1, 3, 5, 10, 20), Returned(found, tokens)) if evidence else {},
    )


OUTCOME = EvidenceOutcome(
    "tiny",
    6,
    2,
    (
        measured("a", 1, 1.0, 1, 30, anySession=1, allSessions=1),
        measured("a", 2, 0.5, 1, 50, anySession=1, allSessions=0, noAnswer=1),
        measured("b", 1, 0.0, 0, 20, correctionFirst=dict.fromkeys(MODES, 0) | {Mode.TEXT: 1}, bothSides=1),
        measured("unanswerable", 0, 0.0, 0, 0, noAnswer=1),
        measured("unanswerable", 0, 0.0, 0, 0),
    ),
)


def test_the_list_of_standing_instructions_has_a_table_of_its_own() -> None:
    rows = (
        measured("a", 1, 1.0, 1, 30, standing=1, listed=2),
        measured("a", 1, 1.0, 1, 30, standing=0, listed=1),
        measured("b", 1, 1.0, 1, 30),
    )
    outcome = EvidenceOutcome("tiny", 6, 2, rows)
    lines = "\n".join(evidence_markdown([outcome])).partition("### Standing instructions")[2].partition("###")[0]
    assert "| tiny | a | 2 | 50.0% | 1.50 |\n| tiny | all | 3 | 33.3% | 1.00 |" in lines
    assert "| tiny | b |" not in lines
    assert [each.get("standing") for each in as_object(Outcomes([], [outcome]))["evidence"][0]["categories"]] == [
        0.5,
        None,
        1 / 3,
    ]
    assert "### Standing instructions" not in "\n".join(evidence_markdown([OUTCOME]))


async def test_what_an_answer_lists_is_measured(harness: ServiceHarness, tmp_path: Path) -> None:
    rule = {"_id": "rule", "text": "Always call foxes red.", "speaker": "user", "sessionId": "s1", "project": "p"}
    found = load_set(write_messages(tmp_path / "talks", corpus=[*MESSAGES, rule]))
    assert isinstance(found, EvidenceSet)
    outcome = await evaluate_evidence(harness.service, found, quiet)
    first, *_, elsewhere = outcome.measured
    assert (first.shares["listed"], elsewhere.shares["listed"]) == (1, 0)


def test_figures_are_means_by_category_and_of_all_that_is_answered() -> None:
    by_category = {each.category: each for each in figures(OUTCOME)}
    assert list(by_category) == ["a", "b", "unanswerable", "all"]
    a, b, all_ = by_category["a"], by_category["b"], by_category["all"]
    assert (a.questions, a.by_mode["recall"][Mode.HYBRID]) == (2, 0.75)
    assert a.shares == {"noAnswer": 0.5, "anySession": 1.0, "allSessions": 0.5}
    first = b.by_mode["correctionFirst"]
    assert (first[Mode.TEXT], first[Mode.HYBRID], "anySession" in b.shares) == (1.0, 0.0, False)
    assert (all_.questions, all_.by_mode["recall"][Mode.HYBRID]) == (3, 0.5)
    assert all_.shares["noAnswer"] == pytest.approx(1 / 3)
    assert (by_category["unanswerable"].answerable, by_category["unanswerable"].shares) == (False, {"noAnswer": 0.5})


def test_evidence_per_1000_tokens_is_of_all_answers_together() -> None:
    (first, *_) = at_limits(OUTCOME)
    assert (first["limit"], first["recall"]) == (1, 0.5)
    assert first["any"] == pytest.approx(2 / 3)
    assert first["tokens"] == pytest.approx(100 / 3)
    assert first["evidencePer1000Tokens"] == pytest.approx(20.0)


def test_the_tables_show_each_figure_once() -> None:
    lines = list(evidence_markdown([OUTCOME]))
    assert "| tiny | a | 2 | .500 | .500 | .750 | .500 | .500 | .750 |" in lines
    assert "| tiny | a | 2 | 100.0% | 50.0% |" in lines
    assert "| tiny | b | 1 | 100.0% | 0.0% | 0.0% | 100.0% |" in lines
    assert "| tiny | unanswerable | 2 | no | 50.0% |" in lines
    assert "| tiny | all | 3 | yes | 33.3% |" in lines
    assert "| tiny | 1 | .500 | 66.7% | 33 | 20.00 |" in lines
    out = io.StringIO()
    Console(file=out, width=200).print(as_tables(Outcomes(with_evidence=[OUTCOME])))
    assert "Correction first" in out.getvalue()


def test_a_table_without_rows_is_left_out() -> None:
    only = EvidenceOutcome("tiny", 1, 0, OUTCOME.measured[:1])
    assert "### Correction first" in list(evidence_markdown([OUTCOME]))
    assert "### Correction first" not in list(evidence_markdown([only]))


def test_programs_get_the_same_figures() -> None:
    (found,) = json.loads(json.dumps(as_object(Outcomes([], [OUTCOME]))))["evidence"]
    assert (found["dataset"], found["items"], found["sessions"]) == ("tiny", 6, 2)
    first, second, unanswerable, _ = found["categories"]
    assert first["recall"] == {"text": 0.5, "vector": 0.5, "hybrid": 0.75}
    assert second["correctionFirst"] == {"text": 1.0, "vector": 0.0, "hybrid": 0.0}
    assert (second["bothSides"], "bothSides" in first) == (1.0, False)
    assert unanswerable == {"category": "unanswerable", "questions": 2, "answerable": False, "noAnswer": 0.5}
    assert found["limits"][0]["evidencePer1000Tokens"] == pytest.approx(20.0)
