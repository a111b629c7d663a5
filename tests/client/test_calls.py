"""The requests of the clients, before anything is sent."""

from datetime import timedelta

import pytest

from rag_context.api.operations import memory, routes
from rag_context.client.call import call_of, route_call, tool_call
from rag_context.client.parameters import index_fields, time_range_of
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
    assert time_range_of(span) == named


SEARCH = call_of(memory.SEARCH, {"query": "q"})
INDEX = call_of(memory.INDEX, index_fields("c", "chat", "s", "t", {}))


def test_only_given_options_are_sent() -> None:
    assert SEARCH.body == b'{"query":"q","limit":5,"mode":"hybrid","explain":false,"strict":false}'
    assert INDEX.body == b'{"content":"c","contentType":"chat","sessionId":"s","source":"t"}'


def test_whatever_may_be_done_twice_is_repeated() -> None:
    for call in (
        SEARCH,
        INDEX,
        call_of(memory.DELETE, {"document_id": "d"}),
        tool_call("any", {}),
        route_call(routes.ADD_DOCUMENTS, "c", body={"documents": []}),
        route_call(routes.EMPTY_COLLECTION, "c"),
        route_call(routes.PUT_METADATA, "c", query={"merge": True}, body={"metadata": {}}),
    ):
        assert call.repeatable


def test_what_would_fail_the_second_time_is_not() -> None:
    for call in (
        route_call(routes.CREATE_COLLECTION, body={"name": "c"}),
        route_call(routes.DELETE_COLLECTION, "c"),
        route_call(routes.DELETE_DOCUMENT, "c", "d"),
    ):
        assert not call.repeatable


def test_calls_that_write_are_those_of_operations_that_write() -> None:
    assert (INDEX.writes, tool_call("any", {}).writes) == (True, True)
    assert (SEARCH.writes, call_of(memory.GET, {"document_id": "d"}).writes) == (False, False)


def test_names_are_steps_of_an_address_whatever_is_in_them() -> None:
    call = route_call(routes.DELETE_DOCUMENT, "a/b c", "100 %?#")
    assert call.path == "/collections/a%2Fb%20c/documents/100%20%25%3F%23"
    query = {"limit": 5, "ids": None, "where": {"n": {"$gt": 1}}, "dry_run": False}
    listing = route_call(routes.LIST_DOCUMENTS, "ä", connection="crm", query=query)
    assert listing.path == (
        "/collections/%C3%A4/documents?connection=crm&limit=5&where=%7B%22n%22%3A%7B%22%24gt%22%3A1%7D%7D&dry_run=false"
    )
    with pytest.raises(InvalidInputError, match="cannot be part of a URL"):
        route_call(routes.LIST_VALUES, "c", query={"field": "\ud800"})
