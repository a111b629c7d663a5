"""Each address of collections and providers runs an operation, with the operation's own fields."""

from typing import Any

import pytest

from rag_context.api.operations import Toolset
from rag_context.api.operations.routes import OPERATIONS, ROUTES, Route
from rag_context.client import collection_calls as calls
from rag_context.client.call import Call

CALLS: tuple[Call[Any], ...] = (
    calls.collections("default"),
    calls.create("handbook", {}, None, None, "default"),
    calls.collection("handbook", "default"),
    calls.drop("handbook", "default"),
    calls.put_metadata("handbook", {}, True, "default"),
    calls.documents("handbook", None, 10, 0, None, False, "default"),
    calls.add("handbook", [], "default"),
    calls.delete_where("handbook", {}, False, False, "default"),
    calls.delete("handbook", "retention-1", "default"),
    calls.empty("handbook", "default"),
    calls.update("handbook", "retention-1", {}, True, "default"),
    calls.values("handbook", "section_id", "default"),
    calls.query("handbook", "logs", None, None, 3, "text", None, "default"),
    calls.providers(),
    calls.provider("embedded"),
    calls.test("embedded", None, None),
)


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


def test_the_client_has_one_call_for_each_route() -> None:
    called = [(call.method, call.path.partition("?")[0]) for call in CALLS]
    declared = [
        (route.method, route.path.format(name="embedded" if route.tag == "providers" else "handbook", id="retention-1"))
        for route in ROUTES
    ]
    assert called == declared
