"""Kinds of provider: found, described, checked and opened, whatever plug-ins do."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from rag_context.collections.registry import GROUP, ProviderRegistry, probe
from rag_context.domain.clauses import EVERYTHING
from rag_context.domain.documents import Status
from rag_context.errors import BackendRejectedError, ConfigurationError, FieldError, InvalidInputError
from rag_context.ports.provider import Collection, Provider
from rag_context.settings import Settings
from rag_context.settings.installation import install_command
from rag_context.wiring.collection_providers import provider_registry
from tests.collections.fake_plugins import GOOD, OPENED, Configuration
from tests.servers.process import free_port

HERE = "tests.collections.fake_plugins"
SECRET = "k3y-of-nobody"


def registry(**plugins: str) -> ProviderRegistry:
    """A built-in kind `qdrant`, one with a missing requirement, and plug-ins: name = what the entry point leads to."""
    found = [EntryPoint(name.rstrip("_"), value, GROUP) for name, value in plugins.items()]
    return ProviderRegistry(
        [
            (replace(GOOD, name="qdrant", title="Qdrant"), None),
            (replace(GOOD, name="lacking"), f"Its client is not installed: run `{install_command('lacking')}`."),
        ],
        lambda: found,
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


def test_the_built_in_kinds_are_listed_with_their_capabilities_and_options(settings: Settings) -> None:
    kinds = {kind.name: kind for kind in provider_registry(settings) if kind.distribution is None}
    assert list(kinds) == ["chroma", "embedded", "postgres", "qdrant"]
    for kind in kinds.values():
        assert kind.available
        assert kind.capabilities.collections
        assert kind.capabilities.search
        assert kind.capabilities.metadata_filtering
        Draft202012Validator.check_schema(kind.connection_schema())
        assert kind.connection_schema()["additionalProperties"] is False
    assert kinds["embedded"].connection_schema()["properties"] == {}
    properties = kinds["qdrant"].connection_schema()["properties"]
    assert properties["api_key"]["anyOf"][0]["writeOnly"]
    assert all("description" in described for described in properties.values())


def test_a_plug_in_is_found_by_its_entry_point() -> None:
    kind = registry(good=f"{HERE}:GOOD").get("good")
    assert kind is not None
    assert (kind.title, kind.available, kind.capabilities.embeddings) == ("A good one", True, True)
    assert kind.distribution == "an unknown distribution"
    assert kind.connection_schema()["required"] == ["place"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_module_anywhere:KIND", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        (f"{HERE}:NOTHING", "AttributeError: module '.*fake_plugins' has no attribute 'NOTHING'"),
        (f"{HERE}:NUMBER", "It is not a ProviderKind, but of type int"),
        (f"{HERE}:SHOUTING", "Its name is 'SHOUTING'; it must equal the name of its entry point"),
        (f"{HERE}:GOOD", "Its name is 'good'"),
        (f"{HERE}:SCHEMALESS", "Its name is 'schemaless'"),
        ("this is no reference", "It cannot be loaded: "),
    ],
)
def test_a_broken_plug_in_is_listed_with_its_reason_and_affects_no_other(value: str, reason: str) -> None:
    both = registry(broken=value, good=f"{HERE}:GOOD")
    broken = both.get("broken")
    assert broken is not None
    assert not broken.available
    assert broken.reason is not None
    with pytest.raises(BackendRejectedError, match=reason):
        broken.validated({})
    assert "\n" not in broken.reason
    assert (broken.connection_schema(), broken.capabilities.collections) == ({}, False)
    assert [kind.name for kind in both if kind.available] == ["good", "qdrant"]


def test_a_configuration_that_cannot_be_described_makes_a_plug_in_broken() -> None:
    broken = registry(schemaless=f"{HERE}:SCHEMALESS").get("schemaless")
    assert broken is not None
    assert broken.reason is not None
    assert broken.reason.startswith("Its configuration cannot be described: ")


@pytest.mark.parametrize("name", ["bland", "untitled"])
def test_what_cannot_be_listed_makes_a_plug_in_broken(name: str) -> None:
    broken = registry(**{name: f"{HERE}:{name.upper()}"}).get(name)
    assert broken is not None
    assert broken.reason == "Its title must be a text, and its capabilities a Capabilities."


def test_of_two_with_one_name_the_built_in_one_wins_with_a_warning() -> None:
    found = [kind for kind in registry(qdrant=f"{HERE}:QDRANT") if kind.name == "qdrant"]
    assert [(kind.title, kind.available) for kind in found] == [("Qdrant", True), ("Not Qdrant", False)]
    assert found[1].reason == "The name belongs to the provider that is built in."
    winner = registry(qdrant=f"{HERE}:QDRANT").get("qdrant")
    assert winner is not None
    assert winner.title == "Qdrant"


def test_of_two_plug_ins_with_one_name_the_first_that_works_wins() -> None:
    points = [
        EntryPoint("good", "no_such_module_anywhere:KIND", GROUP),
        EntryPoint("good", f"{HERE}:GOOD", GROUP),
        EntryPoint("good", f"{HERE}:ELSEWHERE", GROUP),
    ]
    found = [kind for kind in ProviderRegistry([], lambda: points) if kind.name == "good"]
    assert [kind.available for kind in found] == [True, False, False]
    assert sum("belongs to" in (kind.reason or "") for kind in found) == 1


def test_plug_ins_are_not_imported_for_what_is_built_in() -> None:
    def entry_points() -> Iterable[EntryPoint]:
        raise AssertionError("nobody asked for a plug-in")

    kind = ProviderRegistry([(GOOD, None)], entry_points).get("good")
    assert kind is not None


def test_a_kind_with_a_missing_requirement_says_how_to_install_it_and_cannot_be_used() -> None:
    kind = registry().get("lacking")
    assert kind is not None
    assert not kind.available
    assert kind.connection_schema()
    with pytest.raises(BackendRejectedError, match=re.escape(install_command("lacking"))):
        kind.validated({"place": "x"})


def test_all_that_is_wrong_with_a_configuration_is_reported_at_once_and_no_value_repeated(settings: Settings) -> None:
    kind = provider_registry(settings).get("qdrant")
    assert kind is not None
    wrong = {"url": f"ftp://user:{SECRET}@host", "api_key": "", "prefix": "Ä.b", "grpc_port": 0, "collection": SECRET}
    with pytest.raises(InvalidInputError) as caught:
        kind.validated(wrong)
    assert {detail.field for detail in caught.value.details} == set(wrong)
    assert FieldError("url", "must be an http:// or https:// address") in caught.value.details
    assert FieldError("api_key", "must be a text that is not empty") in caught.value.details
    for detail in caught.value.details:
        assert detail.message in str(caught.value)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.details)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("name", "configuration", "said"),
    [
        ("chroma", {"url": "http://localhost:8000", "folder": "x"}, "url and folder exclude each other"),
        ("embedded", {"data_dir": "x"}, "data_dir is unknown; known are: none"),
        ("qdrant", {"timeout_s": float("inf")}, "timeout_s"),
        ("qdrant", {"url": "http://[::1"}, "url must be an http:// or https:// address"),
        ("chroma", {"url": "http://host:port"}, "url must be an http:// or https:// address"),
        ("qdrant", {"grpc_port": True}, "grpc_port is a boolean"),
    ],
)
def test_what_cannot_work_is_rejected(
    settings: Settings, name: str, configuration: dict[str, object], said: str
) -> None:
    kind = provider_registry(settings).get(name)
    assert kind is not None
    with pytest.raises(InvalidInputError, match=said):
        kind.validated(configuration)


def test_a_plug_in_that_ignores_what_it_does_not_know_still_rejects_misspelt_keys() -> None:
    kind = registry(good=f"{HERE}:GOOD").get("good")
    assert kind is not None
    with pytest.raises(InvalidInputError) as caught:
        kind.validated({"plaice": "x", "limit": "many"})
    assert {detail.field: detail.message for detail in caught.value.details} == {
        "plaice": "is unknown; known are: place, limit, key",
        "place": "is required",
        "limit": "must be a valid integer, unable to parse string as an integer",
    }
    assert isinstance(kind.validated({"place": "x"}), Configuration)


async def test_a_provider_is_opened_and_closed_through_its_kind() -> None:
    kind = registry(good=f"{HERE}:GOOD").get("good")
    assert kind is not None
    OPENED.clear()
    async with kind.open(kind.validated({"place": "here"})) as provider:
        await provider.create(Collection("a"))
        assert (await provider.entries("a", EVERYTHING, limit=1)).total == 0
        assert OPENED == ["open here"]
    assert OPENED == ["open here", "close here"]


async def test_a_plug_ins_failure_to_open_is_a_backend_error() -> None:
    kind = registry(good=f"{HERE}:GOOD").get("good")
    assert kind is not None
    with pytest.raises(BackendRejectedError, match="'good' cannot be opened: ValueError: the place exploded"):
        async with kind.open(kind.validated({"place": "explodes"})):
            raise AssertionError
    with pytest.raises(ConfigurationError, match="no such place"):
        async with kind.open(kind.validated({"place": "impossible"})):
            raise AssertionError


async def test_what_goes_wrong_inside_the_block_is_not_the_providers() -> None:
    kind = registry(good=f"{HERE}:GOOD").get("good")
    assert kind is not None
    with pytest.raises(ZeroDivisionError):
        async with kind.open(kind.validated({"place": "here"})):
            raise ZeroDivisionError


async def test_a_probe_reports_how_a_provider_is_and_never_fails(settings: Settings) -> None:
    kinds = provider_registry(settings)
    embedded, qdrant, chroma = kinds.get("embedded"), kinds.get("qdrant"), kinds.get("chroma")
    assert embedded is not None
    assert qdrant is not None
    assert chroma is not None
    health = await probe(embedded, embedded.validated({}))
    assert (health.status, health.error) == (Status.HEALTHY, None)
    url = f"http://user:{SECRET}@127.0.0.1:{free_port()}"
    for kind in (qdrant, chroma):
        health = await probe(kind, kind.validated({"url": url}))
        assert health.status is Status.UNAVAILABLE
        assert health.error is not None
        assert SECRET not in health.error
        assert health.collections is None
    good = registry(good=f"{HERE}:GOOD").get("good")
    assert good is not None
    exploded = await probe(good, good.validated({"place": "explodes"}))
    assert exploded.error is not None
    assert "exploded" in exploded.error
    erratic = registry(erratic=f"{HERE}:ERRATIC").get("erratic")
    assert erratic is not None
    failed = await probe(erratic, erratic.validated({}))
    assert (failed.status, failed.error) == (Status.UNAVAILABLE, "It failed: KeyError: 'size'.")


async def test_a_probe_ends_in_time() -> None:
    @asynccontextmanager
    async def hanging(_: Configuration) -> AsyncIterator[Provider]:
        await asyncio.Event().wait()
        raise AssertionError
        yield

    kind = ProviderRegistry([(replace(GOOD, open=hanging), None)], list).get("good")
    assert kind is not None
    health = await probe(kind, kind.validated({"place": "x"}), timeout_s=0.01)
    assert (health.status, health.error) == (Status.UNAVAILABLE, "It did not answer within 0.01 s.")
