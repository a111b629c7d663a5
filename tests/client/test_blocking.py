"""The client for threads runs the methods of the one for coroutines."""

import inspect

import pytest

from rag_context.client import AsyncClient, Client
from rag_context.client.async_collections import AsyncCollections
from rag_context.client.blocking_client import Collections

from .scripted_server import reply, scripted

PAGE = {
    "documents": [
        {
            "documentId": "1", "title": "t", "contentType": "chat", "sessionId": "s", "source": "talk", "metadata": {},
            "timestamp": "2026-01-31T12:00:00Z", "occurredAt": "2026-01-31T12:00:00Z", "status": "indexed",
        }
    ],
    "nextCursor": "more",
}  # fmt: skip


@pytest.mark.parametrize(("kind", "other"), [(AsyncClient, Client), (AsyncCollections, Collections)])
def test_both_clients_have_the_same_methods_with_the_same_parameters(kind: type, other: type) -> None:
    parameters = [
        {
            name: [str(parameter) for parameter in inspect.signature(method).parameters.values() if name != "bulk"]
            for name, method in inspect.getmembers(one, inspect.isfunction)
            if not name.startswith("_")
        }
        for one in (kind, other)
    ]
    assert parameters[0] == parameters[1]
    assert len(parameters[0]) > 10
    assert not any(map(inspect.iscoroutinefunction, vars(other).values()))


def test_a_list_that_is_not_read_to_its_end_reads_no_further_page() -> None:
    with scripted([reply(200, PAGE)]) as server, Client(server.url, api_key="") as client:
        listed = client.list_all()
        assert next(listed).document_id == "1"
        listed.close()  # type: ignore[attr-defined]  # a generator
        assert len(server.requests) == 1


async def test_a_client_that_an_event_loop_waits_for_needs_none() -> None:
    with scripted([reply(200, PAGE)]) as server, Client(server.url, api_key="") as client:
        assert client.list().next_cursor == "more"
