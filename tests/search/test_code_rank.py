"""Ranking of code by definitions, paths and files."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import numpy as np
import pytest

from rag_context.domain.documents import CHAT, CODE, Chunk, Metadata, Span
from rag_context.domain.search import ChunkRef, Passage
from rag_context.search.code_rank import KnownCode, PathWords, by_file, defined, is_minor, question_words, ranked_code
from rag_context.search.query import Query
from rag_context.search.question_rules import is_symbol, symbols_in
from rag_context.search.ranking import Candidate
from tests.search.columns import columns
from tests.search.harness import ChainHarness

AT = datetime(2026, 1, 1, tzinfo=UTC)


def passage(path: str, text: str, heading: str = "") -> Passage:
    chunk = Chunk(path, path, 0, text, Span(0, len(text), 1, 1, heading), occurred_at=AT)
    return Passage(
        chunk, path, title=path, content_type=CODE, session_id="files", source=path, timestamp=AT, metadata=Metadata()
    )


def order(
    question: str,
    fused: dict[str, float],
    texts: dict[str, str],
    kind: str = CODE,
    headings: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Paths by rank: `fused` of each before, `texts` of those that have one, and what they are part of."""
    known = KnownCode()
    known.add({path: passage(path, text, headings.get(path, "")) for path, text in texts.items()})
    candidates = columns([Candidate(ChunkRef(path, path, 0, kind), 0.5, 1.0, 0.5) for path in fused])
    scores = ranked_code(question, np.array(list(fused.values())), known.features(question, candidates))
    return [path for _, path in sorted(zip(-scores, fused, strict=True))]


@pytest.mark.parametrize(
    "question",
    ["PlanStore", "save_plan", "_gap", "Plan.save", "queue::push", "node->next", "`NewQueue()`", "MAX_SIZE?", "queue"],
)
def test_a_name_is_recognised(question: str) -> None:
    assert is_symbol(question)
    assert [symbol.text for symbol in symbols_in(question)] == [question.strip("`?").removesuffix("()")]


@pytest.mark.parametrize(
    "question", ["Condition of the plan", "save the plan", "2026-05-01", "", "e-mail", "the US", "a class that saves"]
)
def test_words_are_no_name(question: str) -> None:
    assert not is_symbol(question)
    assert symbols_in(question) == ()


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("Where is PlanStore defined?", ["PlanStore"]),
        ("what does wait_for return", ["wait_for"]),
        ("signature of json.loads", ["json.loads"]),
        ("How does `heappush` work, and heappop()?", ["heappush", "heappop"]),
        ("class Condition", ["Condition"]),
        ("the trait Matcher", ["Matcher"]),
        ("Why does HTTPServer call node->next and Queue::push?", ["HTTPServer", "node->next", "Queue::push"]),
    ],
)
def test_names_among_words_are_recognised(question: str, names: list[str]) -> None:
    assert not is_symbol(question)
    assert [symbol.text for symbol in symbols_in(question)] == names


@pytest.mark.parametrize(
    "text",
    [
        "class Plan:",
        "async def Plan(day):",
        "export interface Plan<T> {",
        "export const Plan = (day) => day;",
        "func (s *Store) Plan(day string) error {",
        "type Plan struct {",
        "pub(crate) fn Plan<'a>(day: &'a str) -> bool {",
        "    public static BigDecimal Plan(int tonnage, long minutes) {",
        "  async Plan(day: string): Promise<void> {",
        "static struct entry *\nPlan(const char *day)\n{",
        "#define Plan(day) ((day) + 1)",
        "void Store::Plan(int day) {",
        "public record Plan(String text) {}",
    ],
)
def test_a_definition_is_recognised(text: str) -> None:
    assert "Plan" in defined(f"// first line\n{text}\n")


@pytest.mark.parametrize(
    "text",
    [
        "return Plan(day);",
        "x = Plan(day)",
        "if (Plan(day)) {",
        "await Plan(() => {",
        "import Plan",
        "class PlanStore {",
        "store.Plan(day);",
        "new Plan(day) {",
        "test('Plan(', () => {",
        "class Report(Plan):",
    ],
)
def test_a_use_is_no_definition(text: str) -> None:
    assert "Plan" not in defined(f"// first line\n{text}\n")


def test_the_file_that_defines_a_name_stands_above_those_that_use_it() -> None:
    texts = {"a/report.py": "Plan(1)\nPlan(2)", "a/plan.py": "class Plan:", "a/other.py": "class Plan:\n  x = 1"}
    assert order("Plan", {"a/report.py": 0.9, "a/other.py": 0.5, "a/plan.py": 0.5}, texts) == [
        "a/plan.py",
        "a/other.py",
        "a/report.py",
    ]


def test_the_candidates_that_define_a_name_are_known() -> None:
    known = KnownCode()
    known.add({"a": passage("a.py", "Plan(1)"), "b": passage("b.py", "class Plan:"), "c": passage("c.py", "plan")})
    chunks = [ChunkRef(id_, f"{id_}.py", 0, CODE) for id_ in "abcd"]
    assert known.unknown("store.Plan", [*chunks, ChunkRef("e", "e", 0, CHAT)]) == ["d"]
    assert known.defining("store.Plan", chunks) == ["b"]
    assert known.defining("the plan", chunks) == []


def test_a_question_without_a_name_needs_to_know_one_passage_of_each_file() -> None:
    known = KnownCode()
    known.add({"a1": passage("a.py", "Plan(1)")})
    chunks = [ChunkRef(f"{file}{place}", f"{file}.py", place, CODE) for file in "ab" for place in (1, 2)]
    assert known.unknown("Where is the plan?", chunks) == ["b2"]
    candidates = columns([Candidate(chunk, 0.5, 1.0, 0.5) for chunk in chunks])
    assert {row: features.path for row, features in known.features("Where is the plan?", candidates).items()} == {
        0: "a.py",
        1: "a.py",
    }
    assert list(known.features("Plan", candidates)) == [0]


def test_a_definition_in_a_test_or_an_older_version_stands_below() -> None:
    texts = dict.fromkeys(["tests/plan.py", "compat/v1/plan.py", "src/plan.py"], "class Plan:")
    assert (
        order("Plan", {"tests/plan.py": 0.9, "compat/v1/plan.py": 0.8, "src/plan.py": 0.6}, texts)[0] == "src/plan.py"
    )


@pytest.mark.parametrize(
    "path",
    ["tests/a.py", "src/test/java/A.java", "pkg/a_test.go", "a.spec.ts", "src/ATest.java", "test_a.py", "Legacy/a.c"],
)
def test_files_that_stand_back(path: str) -> None:
    assert is_minor(path)
    assert (
        order("how is it saved", {path: 0.9, "src/plan.py": 0.8}, {path: "x", "src/plan.py": "y"})[0] == "src/plan.py"
    )


@pytest.mark.parametrize("path", ["src/attest.py", "contest/a.py", "src/latest.go", "src/Contest.java", "inspect/a.py"])
def test_files_with_similar_names_do_not(path: str) -> None:
    assert not is_minor(path)


@pytest.mark.parametrize("path", ["src/__init__.py", "a/package-info.java", "a/doc.go"])
def test_files_that_gather_others_stand_back_unless_they_define_the_name_in_question(path: str) -> None:
    fused = {path: 0.9, "src/plan.py": 0.8}
    assert order("how is it saved", fused, {path: "x", "src/plan.py": "y"})[0] == "src/plan.py"
    assert order("find_plan", fused, {path: "def find_plan(day):", "src/plan.py": "def find_plan(day):"})[0] == path


def test_the_definition_of_a_qualified_name_is_that_of_its_class_module_or_folder() -> None:
    texts = {"a/glob.py": "def glob(path):", "a/pathlib.py": "def glob(self, pattern):"}
    fused, headings = {"a/glob.py": 0.9, "a/pathlib.py": 0.6}, {"a/pathlib.py": "Path.glob", "a/glob.py": "glob"}
    assert order("Path.glob", fused, texts, headings=headings)[0] == "a/pathlib.py"
    assert order("glob.glob", fused, texts, headings=headings)[0] == "a/glob.py"
    fused, texts = (
        {"plist.py": 0.9, "json/__init__.py": 0.6},
        dict.fromkeys(["plist.py", "json/__init__.py"], "def loads():"),
    )
    assert order("json.loads", fused, texts)[0] == "json/__init__.py"


def test_what_a_name_in_a_sentence_stands_for_rises() -> None:
    texts = {"a/use.py": "plan(1)", "b/plans.py": "x = 1", "c/store.py": "class PlanStore:"}
    fused, headings = {"a/use.py": 0.9, "b/plans.py": 0.7, "c/store.py": 0.6}, {"b/plans.py": "PlanStore.save"}
    assert order("What does PlanStore do?", fused, texts, headings=headings) == ["c/store.py", "b/plans.py", "a/use.py"]
    assert order("What happens?", fused, texts, headings=headings)[0] == "a/use.py"


@pytest.mark.parametrize(
    ("question", "path", "share"),
    [
        ("tax rules", "billing/TaxRules.java", 1.0),
        ("the configuration of the gateway", "gateway/config/load.go", 0.5),
        ("taxes", "a/tax.py", 1.0),
        ("is it on", "a/on.py", 0.0),
        ("storage of plans", "planner/storage.py", 0.5),
    ],
)
def test_words_of_the_question_in_the_path(question: str, path: str, share: float) -> None:
    assert PathWords.of(path).share(question_words(question)) == pytest.approx(share)


def test_a_file_with_the_words_of_the_question_in_its_path_rises() -> None:
    texts = {"a/other.py": "x", "billing/TaxRules.java": "y"}
    assert order("tax rules", {"a/other.py": 0.9, "billing/TaxRules.java": 0.6}, texts)[0] == "billing/TaxRules.java"


def test_tests_stand_back_unless_they_are_named() -> None:
    fused, texts = {"tests/plan.py": 0.9, "src/plan.py": 0.8}, {"tests/plan.py": "x", "src/plan.py": "y"}
    assert order("how is it saved", fused, texts)[0] == "src/plan.py"
    assert order("how do the tests save it", fused, texts)[0] == "tests/plan.py"


def test_the_best_passage_of_a_file_gains_by_the_others_and_these_lose() -> None:
    scores = by_file([1.0, 0.9, 0.8], ["a", "b", "b"], 1.0)
    assert scores == pytest.approx([1.0 + 0.2 * 1.0 / 1.7, 0.9 + 0.2, 0.8 * 0.7])


def test_other_kinds_of_content_keep_their_place() -> None:
    """The best code keeps its score, and what is no code every score."""
    known = KnownCode()
    known.add({"x.py": passage("a/x.py", "Plan()"), "plan.py": passage("a/plan.py", "class Plan:")})
    refs = [ChunkRef("x.py", "x", 0, CODE), ChunkRef("plan.py", "plan", 0, CODE), ChunkRef("said", "said", 0, CHAT)]
    candidates = columns([Candidate(ref, 0.5, 1.0, 0.5) for ref in refs])
    scores = ranked_code("Plan", np.array([0.8, 0.4, 0.9]), known.features("Plan", candidates))
    assert scores[1] == pytest.approx(0.8)
    assert scores[0] < 0.8
    assert scores[2] == 0.9
    assert order("Plan", {"b": 0.9, "a": 0.8}, {"a": "class Plan:"}, kind=CHAT) == ["b", "a"]


def test_a_test_is_named_as_a_thing_and_not_as_a_verb() -> None:
    fused, texts = {"tests/plan.py": 0.9, "src/plan.py": 0.8}, {"tests/plan.py": "x", "src/plan.py": "y"}
    for question in ("which test covers it", "is there a test for it", "the integration test of it"):
        assert order(question, fused, texts)[0] == "tests/plan.py"
    for question in ("how do I test whether it is saved", "what does the test client do", "a sample rate of it"):
        assert order(question, fused, texts)[0] == "src/plan.py"


def test_a_folder_above_all_files_says_nothing() -> None:
    fused = {"/home/demo/repo/tests/plan.py": 0.9, "/home/demo/repo/src/plan.py": 0.8}
    ranked = order("how is it saved", fused, dict.fromkeys(fused, "x"))
    assert ranked[0] == "/home/demo/repo/src/plan.py"
    other = {"/home/demo/repo/plan.py": 0.9, "/home/main/repo/plan.py": 0.8}
    assert order("how is it saved", other, dict.fromkeys(other, "x"))[0] == "/home/main/repo/plan.py"


async def test_the_definition_comes_before_documentation_that_mentions_the_name() -> None:
    harness = ChainHarness()
    await harness.add("guide", "What does AsyncClient do? AsyncClient sends requests, and AsyncClient retries.")
    await harness.add("client", "class AsyncClient:\n    limit = 9\n", kind=CODE)
    for number in range(3):
        await harness.add(f"other-{number}", f"def helper_{number}(): return {number}", kind=CODE)
    answer = await harness.chain.search(Query("What does AsyncClient do?", min_score=0.0))
    assert [result.passage.document_id for result in answer.results][:2] == ["client", "guide"]
