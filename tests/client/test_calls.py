"""The requests of the clients, before anything is sent."""

from datetime import timedelta

import pytest

from rag_context.client import calls, collection_calls
from rag_context.errors import InvalidInputError


@pytest.mark.parametrize(
    ("span", "named"),
    [
        (timedelta(), "1h"),
        (timedelta(hours=1), "1h"),
        (timedelta(hours=1, microseconds=1), "24h"),
        (timedelta(hours=24), "24h"),
        (timedelta(hours=24, microseconds=1), "7d"),
        (timedelta(hours=168), "7d"),
        (timedelta(hours=168, microseconds=1), "30d"),
        (timedelta(days=4000), "30d"),
    ],
)
def test_a_span_becomes_the_shortest_time_range_that_covers_it(span: timedelta, named: str) -> None:
    assert calls.stats(span).body == f'{{"timeRange":"{named}"}}'.encode()


def test_only_given_options_are_sent() -> None:
    assert calls.search("q", {}).body == (b'{"query":"q","limit":5,"mode":"hybrid","explain":false,"strict":false}')
    assert calls.index("c", "chat", "s", "t", {}).body == (
        b'{"content":"c","contentType":"chat","sessionId":"s","source":"t"}'
    )


def test_whatever_may_be_done_twice_is_repeated() -> None:
    for call in (
        calls.search("q", {}),
        calls.index("c", "chat", "s", "t", {}),
        calls.delete("d", None, None, False, False, {}),
        calls.tool("any", {}),
        collection_calls.add("c", [], "default"),
        collection_calls.empty("c", "default"),
        collection_calls.put_metadata("c", {}, True, "default"),
    ):
        assert call.repeatable


def test_what_would_fail_the_second_time_is_not() -> None:
    for call in (
        collection_calls.create("c", None, None, None, "default"),
        collection_calls.drop("c", "default"),
        collection_calls.delete("c", "d", "default"),
    ):
        assert not call.repeatable


def test_names_are_steps_of_an_address_whatever_is_in_them() -> None:
    assert (
        collection_calls.delete("a/b c", "100 %?#", "default").path
        == "/collections/a%2Fb%20c/documents/100%20%25%3F%23"
    )
    call = collection_calls.documents("ä", {"n": {"$gt": 1}}, 5, 10, None, False, "crm")
    assert (
        call.path
        == "/collections/%C3%A4/documents?connection=crm&limit=5&offset=10&where=%7B%22n%22%3A%7B%22%24gt%22%3A1%7D%7D"
    )
    with pytest.raises(InvalidInputError, match="cannot be part of a URL"):
        collection_calls.values("c", "\ud800", "default")
