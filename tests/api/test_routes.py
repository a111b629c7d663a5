"""Each address of collections and providers runs an operation, with the operation's own fields."""

from typing import Any, cast

import pytest

from rag_context.api.operations.routes import OPERATIONS, ROUTES, Route
from rag_context.api.toolsets import Toolset
from rag_context.client.async_collections import AsyncCollections
from rag_context.client.call import Answer, Call


def _fields(route: Route[Any]) -> list[str]:
    in_path = [step.strip("{}") for step in route.steps if step.startswith("{")]
    body = [] if route.body is None else list(route.body.model_fields)
    return [*in_path, *route.query.model_fields, *body]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation_id)
def test_path_query_and_body_of_a_route_hold_each_field_of_its_operation_once(route: Route[Any]) -> None:
    omitted = [name.partition(".")[2] for name in route.operation.omitted if name.startswith("rest.")]
    assert sorted([*_fields(route), *omitted]) == sorted(route.operation.request.model_fields)


def test_each_operation_on_collections_has_one_address_or_says_why_not() -> None:
    on_collections = [each for each in OPERATIONS.values() if each.toolset is Toolset.COLLECTIONS]
    addressed = [route.operation.name for route in ROUTES]
    assert {each.name for each in on_collections if not each.omitted.get("rest")} <= set(addressed)
    assert len(addressed) == len(set(addressed))


async def test_the_client_has_a_method_for_each_route() -> None:
    called: list[tuple[str, str]] = []

    async def send(call: Call[Answer], request_id: str | None) -> Answer:
        assert request_id is None
        called.append((call.method, call.path.partition("?")[0]))
        return cast("Answer", None)

    name, document_id = "handbook", "retention-1"
    collections = AsyncCollections(send)
    await collections.list()
    await collections.create(name)
    await collections.get(name)
    await collections.drop(name)
    await collections.merge_metadata(name, {})
    await collections.documents(name)
    await collections.add(name, [])
    await collections.delete_where(name, {})
    await collections.delete(name, document_id)
    await collections.empty(name)
    await collections.merge_document_metadata(name, document_id, {})
    await collections.values(name, "section_id")
    await collections.query(name, text="logs")
    await collections.providers()
    await collections.provider("embedded")
    await collections.test("embedded")
    assert called == [
        (route.method, route.path.format(name="embedded" if route.tag == "providers" else name, id=document_id))
        for route in ROUTES
    ]
