"""`POST /providers/{name}/test`: what is reported of a provider, and what is rejected."""

from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint
from typing import Any

import httpx2
import pytest

from rag_context.collections.registry import GROUP, ProviderRegistry
from tests.collections.memory_collections import MemoryCollections

from .asgi_client import asgi_client
from .fake_plugins import GOOD, Erratic
from .services import service_over

PLUGINS = {"erratic": "ERRATIC", "in-folders": "IN_FOLDERS"}


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    found = [EntryPoint(name, f"tests.collections.fake_plugins:{value}", GROUP) for name, value in PLUGINS.items()]
    registry = ProviderRegistry([(GOOD, None)], lambda: found)
    providers = {"default": MemoryCollections(), "odd": Erratic()}
    async with asgi_client(service_over(providers, registry=registry, kind="good")) as client:
        yield client


async def tried(client: httpx2.AsyncClient, name: str, **body: Any) -> httpx2.Response:
    return await client.post(f"/providers/{name}/test", json=body)


async def test_a_configuration_or_a_connection_is_tried(client: httpx2.AsyncClient) -> None:
    """V-1."""
    for body in ({"configuration": {"place": "here"}}, {"connection": "default"}):
        reply = await tried(client, "good", **body)
        assert (reply.status_code, reply.json()["status"]) == (200, "healthy")


async def test_both_at_once_are_rejected(client: httpx2.AsyncClient) -> None:
    reply = await tried(client, "good", configuration={"plaice": "here"}, connection="default")
    assert (reply.status_code, reply.json()["error"]) == (400, "Name configuration or connection, not both")


async def test_what_is_wrong_with_a_configuration_is_named_as_in_the_request(client: httpx2.AsyncClient) -> None:
    reply = await tried(client, "good", configuration={"limit": "many"})
    assert reply.status_code == 400
    assert {detail["field"] for detail in reply.json()["details"]} == {"configuration.place", "configuration.limit"}


@pytest.mark.parametrize("field", ["place", "index"])
async def test_a_path_on_the_disk_is_not_accepted_from_outside(client: httpx2.AsyncClient, field: str) -> None:
    """X-2: the folder is neither created nor checked."""
    reply = await tried(client, "in-folders", configuration={field: "/"})
    assert (reply.status_code, [detail["field"] for detail in reply.json()["details"]]) == (
        400,
        [f"configuration.{field}"],
    )
    assert "is a path on the server's disk" in reply.json()["error"]


async def test_a_provider_that_breaks_its_promise_is_reported_not_raised(client: httpx2.AsyncClient) -> None:
    """V-1: a broken plug-in is reported, never fatal."""
    for name, body in (("erratic", {}), ("good", {"connection": "odd"})):
        reply = await tried(client, name, **body)
        assert (reply.status_code, reply.json()["status"], reply.json()["error"]) == (
            200,
            "unavailable",
            "It failed: KeyError: 'size'.",
        )
