"""What a reader gets: pieces of a section as one passage, and nothing twice."""

from dataclasses import replace

import pytest

from rag_context.domain.documents import CHAT, CODE, DECISION, DOCUMENTATION, Chunk, Metadata, Span
from rag_context.domain.search import ChunkRef, Passage
from rag_context.search.joining import Joining, in_order_of_text
from rag_context.search.query import Query, Result
from rag_context.search.ranking import Candidate, Ranked
from rag_context.search.rules import JOINED_CHARS
from tests.search.harness import ChainHarness
from tests.stores.builders import NOON

TEXT = "First the pool is opened.\nThen each call takes a connection.\nAt last the pool is closed.\n"
CUTS = (0, 26, 61, len(TEXT))
FAQ = (
    "The client waits five seconds for a connection and then gives up with an error that names the pool. A pool that "
    "is too small for the calls of a program is the usual reason, and a call which never gives its own back."
)


def piece(number: int, *, document: str = "a", heading: str = "Pool", kind: str = DOCUMENTATION) -> Result:
    start, end = CUTS[number], CUTS[number + 1]
    return result(
        f"{document}{number}", TEXT[start:end], Span(start, end, number + 1, number + 1, heading), document, kind
    )


def result(name: str, text: str, span: Span, document: str, kind: str = DOCUMENTATION) -> Result:
    chunk = Chunk(name, document, 0, text, span, occurred_at=NOON)
    shown = {"title": "T", "content_type": kind, "session_id": "s", "source": document}
    passage = Passage(chunk, document, timestamp=NOON, metadata=Metadata(), **shown)
    return Result(passage, Ranked(Candidate(ChunkRef(name, document, 0, kind), 0.5, 1.0, 0.5), 1.0, 0.5), 1, 1)


def alone(name: str, text: str, kind: str = DOCUMENTATION) -> Result:
    return result(name, text, Span(0, len(text), 1, 1), name, kind)


def joined(results: list[Result]) -> list[Result]:
    joining = Joining()
    joining.add(results)
    return joining.results


def ids(results: list[Result]) -> list[str]:
    return [each.passage.chunk.id for each in joined(results)]


def test_neighbouring_pieces_are_one_passage_in_the_place_of_the_better() -> None:
    best, other = joined([piece(1), alone("b", "Other."), piece(0)])
    chunk = best.passage.chunk
    assert (chunk.id, chunk.text) == ("a1", TEXT[:61])
    assert (chunk.span.start, chunk.span.end, chunk.span.start_line, chunk.span.end_line) == (0, 61, 1, 2)
    assert other.passage.chunk.id == "b"


def test_a_piece_between_two_joins_all_three() -> None:
    (only,) = joined([piece(0), piece(2), piece(1)])
    assert (only.passage.chunk.id, only.passage.chunk.text) == ("a0", TEXT)


def closed(results: list[Result], between: Result) -> list[Result]:
    joining = Joining()
    joining.add(results)
    joining.close([between.passage])
    return joining.results


def test_what_stands_between_two_pieces_joins_them_in_the_place_of_the_better() -> None:
    whole, other = closed([piece(2), alone("b", "Other."), piece(0)], piece(1))
    assert (whole.passage.chunk.id, whole.passage.chunk.text) == ("a2", TEXT)
    assert other.passage.chunk.id == "b"


@pytest.mark.parametrize(
    "results",
    [[piece(0)], [piece(0), piece(1), piece(2)], [piece(0), piece(2, document="b")], [piece(0, document="b")]],
)
def test_it_is_not_shown_beside_one_piece_or_where_it_is_shown_already(results: list[Result]) -> None:
    assert closed(results, piece(1)) == joined(results)


def test_it_is_not_shown_where_the_whole_is_too_long() -> None:
    third = "x" * (JOINED_CHARS // 3 + 1)
    first, second, last = (
        result(f"a{at}", third, Span(at * len(third), (at + 1) * len(third), 1, 1, "Pool"), "a") for at in range(3)
    )
    assert closed([first, last], second) == [first, last]


def test_what_pieces_of_code_repeat_stands_there_once() -> None:
    first = result("a0", TEXT[:40], Span(0, 40, 1, 2, "pool"), "a", CODE)
    (only,) = joined([first, result("a1", TEXT[26:], Span(26, len(TEXT), 2, 3, "pool"), "a", CODE)])
    assert only.passage.chunk.text == TEXT


@pytest.mark.parametrize(
    "others",
    [
        [piece(0), piece(2)],
        [piece(2, document="c"), piece(0)],
        [piece(0), piece(1, heading="Errors")],
        [piece(0), piece(1, document="b")],
        [piece(0, kind=CHAT), piece(1, kind=CHAT)],
    ],
)
def test_passages_with_a_gap_of_other_sections_and_messages_stay_apart(others: list[Result]) -> None:
    assert joined(others) == others


def test_below_the_best_pieces_of_a_section_that_stand_behind_each_other_are_in_the_order_of_the_text() -> None:
    def read(*results: Result) -> list[str]:
        return [each.passage.chunk.id for each in in_order_of_text(joined([*results]))]

    other, third = alone("b", "Other."), alone("c", "Third.")
    assert read(other, piece(2), piece(0), third) == ["b", "a0", "a2", "c"]
    assert read(piece(2), piece(0), other) == ["a2", "a0", "b"]
    assert read(other, piece(2), third, piece(0)) == ["b", "a2", "c", "a0"]
    assert read(other, piece(2, kind=CHAT), piece(0, kind=CHAT)) == ["b", "a2", "a0"]


def test_a_long_section_stays_in_pieces() -> None:
    half = "x" * (JOINED_CHARS // 2 + 1)
    span = Span(0, len(half), 1, 1, "Pool")
    first, second = (result(f"a{at}", half, replace(span, start=at, end=at + len(half)), "a") for at in (0, len(half)))
    assert joined([first, second]) == [first, second]


def test_a_passage_that_repeats_another_document_is_left_out() -> None:
    readme, page = f"[Pool](docs/pool.md): {FAQ}", f"[Pool](https://example.com/pool): {FAQ} "
    assert ids([alone("readme", readme), alone("page", page), alone("c", "Other.")]) == ["readme", "c"]


@pytest.mark.parametrize(("old", "new"), [("five", "5"), ("names the pool", "names the Proxy"), ("five", "30")])
def test_another_value_or_name_is_no_repetition(old: str, new: str) -> None:
    assert ids([alone("a", FAQ), alone("b", FAQ.replace(old, new))]) == ["a", "b"]


@pytest.mark.parametrize("kind", [CHAT, DECISION])
def test_equal_messages_and_decisions_are_all_returned(kind: str) -> None:
    assert ids([alone("a", FAQ, kind), alone("b", FAQ, kind)]) == ["a", "b"]


def test_a_sentence_in_two_documents_is_returned_of_both() -> None:
    assert ids([alone("a", FAQ[:100]), alone("b", FAQ[:100])]) == ["a", "b"]


def test_only_equal_code_is_left_out() -> None:
    changed = FAQ.replace("gives up", "gives way")
    assert ids([alone("a", FAQ, CODE), alone("b", changed, CODE), alone("c", FAQ, CODE)]) == ["a", "b"]


async def test_others_come_in_for_what_was_left_out(harness: ChainHarness) -> None:
    for name, text in (("a", f"retry: {FAQ}"), ("b", f"retry: {FAQ}"), ("c", "retry of calls")):
        await harness.add(name, text)
    answer = await harness.chain.search(Query("retry", limit=3, min_score=0.0))
    found = {each.passage.document_id for each in answer.results}
    assert len(answer.results) == 3
    assert len(found & {"a", "b"}) == 1
