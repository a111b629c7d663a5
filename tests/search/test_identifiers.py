"""What holds a rare identifier of the question comes first (R-6)."""

import pytest

from rag_context.domain.ranking_rules import Rule
from rag_context.search.chain import SearchChain
from rag_context.search.identifiers import identifiers_in
from rag_context.search.query import Query
from tests.search.harness import ChainHarness


@pytest.mark.parametrize(
    ("question", "identifiers"),
    [
        ("which service has the key QZX0059?", ["qzx0059"]),
        ("What does ERR-4107 mean in v1.2.3?", ["err-4107", "v1.2.3"]),
        ("Where is save_plan called, and queue::push?", ["save_plan", "queue::push"]),
        ("who uses json.loads", ["json.loads"]),
        ("commit 3f9a2c1", ["3f9a2c1"]),
        ("What says `connection reset`?", ["connection reset"]),
        ('Who wrote "exit(3)" and "a title"?', ["exit(3)"]),
        ("Did it end at 10am on the 3rd, after 20km and 15min?", []),
        ("What happened on 2025-03-08 at 18:12?", []),
        ("Is the state-of-the-art AsyncClient any good, and/or fast?", []),
        ("Write to ada@example.com.", []),
    ],
)
def test_identifiers_are_what_is_no_word(question: str, identifiers: list[str]) -> None:
    assert sorted(identifiers_in(question)) == sorted(identifiers)


SENTENCE = "Which service of the payments team has the key QZX00{} in the table of keys and their owners?"


async def filled(copies: int) -> ChainHarness:
    """Services of one shape, of which so many have the key in a text that is far from the question."""
    harness = ChainHarness()
    for number in range(12):
        await harness.add(f"like-{number}", SENTENCE.format(60 + number))
    for number in range(copies):
        await harness.add(
            f"holds-{number}",
            f"Rotated last week on the second shelf by another team, like all others: QZX0059, copy {number}.",
        )
    return harness


async def first(harness: ChainHarness, *without: Rule) -> list[str]:
    chain = SearchChain(harness.sources, harness.breaker, deadline_s=5.0, without=without)
    answer = await chain.search(Query(SENTENCE.format(59), limit=3))
    return [result.passage.document_id for result in answer.results]


async def test_the_only_document_with_the_identifier_comes_first() -> None:
    harness = await filled(1)
    assert (await first(harness))[0] == "holds-0"
    assert (await first(harness, Rule.IDENTIFIER))[0] != "holds-0"


async def test_an_identifier_of_many_documents_changes_nothing() -> None:
    harness = await filled(4)
    assert await first(harness) == await first(harness, Rule.IDENTIFIER)
