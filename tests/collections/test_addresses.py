"""Which addresses a caller may have providers tried on."""

import pytest
from pydantic import BaseModel, SecretStr

from rag_context.collections.collection_service import AllowedAddresses
from rag_context.collections.registry import ProviderRegistry, guessed_addresses
from rag_context.settings import Settings
from rag_context.wiring.collection_providers import provider_registry


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("http://qdrant.local:6333", True),
        ("http://QDRANT.local.:6333/path", True),
        ("http://user:key@qdrant.local:6333", True),
        ("http://qdrant.local:6334", False),
        ("http://qdrant.local", False),
        ("http://listed:1", True),
        ("listed:9", True),
        ("http://with-port:80", True),
        ("http://with-port:81", False),
        ("http://listed@evil", False),
        ("http://listed.evil", False),
        ("http://evil\\\\@listed", False),
        ("http://evil\\n@listed", False),
        ("http://[::1", False),
        ("http://listed:99999", False),
        ("", False),
    ],
)
def test_an_address_is_tried_only_where_the_configuration_names_it(address: str, allowed: bool) -> None:
    """X-3."""
    known = AllowedAddresses(("listed", "with-port:80"), ("http://qdrant.local:6333",))
    assert known.forbidden([address]) == ([] if allowed else [address])


def test_a_star_allows_all() -> None:
    assert AllowedAddresses(("*",)).forbidden(["http://anything"]) == []


class _Inner(BaseModel):
    host: str = "inner"


class _Configuration(BaseModel):
    """Of a plug-in that says nothing of its addresses."""

    place: str = "somewhere"
    node_url: str = "plain"
    endpoints: list[str] = ["a:1", "https://b"]
    dsn: SecretStr = SecretStr("postgres://c")
    inner: _Inner = _Inner()
    port: int = 7


def test_what_looks_like_an_address_counts_as_one() -> None:
    """X-3: rather too much than too little."""
    assert guessed_addresses(_Configuration()) == ["plain", "a:1", "https://b", "postgres://c", "inner"]


@pytest.mark.parametrize(
    ("kind", "configuration", "addresses"),
    [
        ("embedded", {}, []),
        ("qdrant", {}, ["http://localhost:6333"]),
        ("qdrant", {"url": "http://q", "transport": "grpc"}, ["http://q:6333", "q:6334"]),
        ("qdrant", {"url": "http://u:k@a,b:1/x"}, ["http://u:k@a:6333", "http://u:k@b:1/x"]),
        ("qdrant", {"url": "http://a,b:1", "transport": "grpc"}, ["http://a:6333", "http://b:1", "a:6334", "b:6334"]),
        ("chroma", {}, ["http://localhost:8000"]),
        ("chroma", {"url": "https://c:1"}, ["https://c:1"]),
    ],
)
def test_the_built_in_kinds_name_where_they_connect_to(
    kind: str, configuration: dict[str, object], addresses: list[str]
) -> None:
    """X-3: defaults included."""
    registry: ProviderRegistry = provider_registry(Settings())
    registered = registry.get(kind)
    assert registered is not None
    assert list(registered.addresses(registered.validated(configuration))) == addresses
