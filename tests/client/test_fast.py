"""What `search_fast` remembers, and what it does not."""

import pytest

from rag_context.api.search import SearchResponse, SearchResult
from rag_context.client import Client
from rag_context.client.repeats import CAPACITY, FastAnswers
from rag_context.server.options import ServerOptions
from rag_context.testing import FrozenClock
from tests.server.server_thread import running
from tests.server.stub_service import WARNINGS, WHEN, StubService


def answer(level: int = 1, warning: str | None = None) -> SearchResponse:
    result = SearchResult(content="text", score=0.5, source="talk", timestamp=WHEN, occurred_at=WHEN, metadata={})
    return SearchResponse(
        results=[result],
        latency=1.0,
        fallback=level > 1,
        fallback_level=level,
        circuit_breaker_open=False,
        total_indexed=1,
        request_id="r",
        legs={},
        warning=warning,
    )


def test_an_answer_is_forgotten_after_five_minutes() -> None:
    clock = FrozenClock()
    fast = FastAnswers(clock)
    fast.put("q", "g", answer(), fast.writes)
    clock.advance(299.9)
    assert fast.get("q", "g") is not None
    clock.advance(0.2)
    assert fast.get("q", "g") is None


def test_questions_about_different_games_are_different_questions() -> None:
    fast = FastAnswers()
    fast.put("q", "g", answer(), fast.writes)
    assert fast.get("q", None) is None
    assert fast.get("q", "h") is None


def test_what_a_caller_does_to_an_answer_stays_with_the_caller() -> None:
    fast = FastAnswers()
    given = answer()
    fast.put("q", None, given, fast.writes)
    given.results.clear()
    got = fast.get("q", None)
    assert got is not None
    assert len(got.results) == 1
    got.results.clear()
    again = fast.get("q", None)
    assert again is not None
    assert len(again.results) == 1


def test_an_answer_that_a_write_overtook_is_not_cached() -> None:
    fast = FastAnswers()
    writes = fast.writes
    fast.clear()
    fast.put("q", None, answer(), writes)
    assert fast.get("q", None) is None
    fast.put("q", None, answer(), fast.writes)
    assert fast.get("q", None) is not None


def test_only_so_many_are_remembered() -> None:
    fast = FastAnswers()
    for n in range(CAPACITY + 1):
        fast.put(f"q{n}", None, answer(), fast.writes)
    assert fast.get("q0", None) is None
    assert fast.get(f"q{CAPACITY}", None) is not None


@pytest.mark.parametrize("level", [2, 3, 4])
def test_a_degraded_answer_is_given_without_an_error_and_not_cached(level: int) -> None:
    stub = StubService(level=level)
    with running(stub, ServerOptions(port=0)) as http_server, Client(http_server.url, api_key="") as client:
        for _ in range(2):
            found = client.search_fast("q", agent="scout")
            assert (found.fallback_level, found.warning) == (level, WARNINGS[level])
        assert len(stub.searches) == 2
        assert (stub.searches[0].limit, stub.searches[0].agent) == (3, "scout")


def test_an_answer_without_one_of_its_retrievers_is_not_cached() -> None:
    fast = FastAnswers()
    fast.put("q", None, answer(1, "Text search unavailable"), fast.writes)
    assert fast.get("q", None) is None
