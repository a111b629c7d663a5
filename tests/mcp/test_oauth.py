"""MCP behind an authorisation server: tokens are checked, and the SDK's client gets from a 401 to the tools."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from mcp import Client
from rag_context.api.operations import Access
from rag_context.cli.serve import server_options
from rag_context.domain.callers import Bounds
from rag_context.errors import ConfigurationError
from rag_context.server.options import Caller, HashedKey, ServerOptions, TrustedIssuer, hash_key
from rag_context.server.requests import RequestRejectedError
from rag_context.server.tokens import KEPT_S, LEAST_S, AccessTokens
from rag_context.settings import Settings, load_settings
from rag_context.testing import FrozenClock
from tests.server.server_thread import Running, running
from tests.server.stub_service import StubService
from tests.servers.authorization import KEY_ID, Authorization, authorization_server, new_key
from tests.servers.process import HOST, free_port

GRANTED = ("memory:read", "memory:write")
CALLBACK = "http://localhost:9/callback"
ASKED: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
HEADERS = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def authorization(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authorization]:
    with authorization_server(tmp_path_factory.mktemp("authorization"), *GRANTED) as server:
        yield server


@pytest.fixture(scope="module")
def issuer(authorization: Authorization) -> TrustedIssuer:
    return TrustedIssuer(authorization.issuer, f"http://{HOST}:{free_port()}/mcp")


@pytest.fixture(scope="module")
def server(issuer: TrustedIssuer) -> Iterator[Running]:
    port = int(urlsplit(issuer.resource).port or 0)
    keys = (HashedKey.parse("robot", hash_key("a-key"), Access.READ),)
    with running(StubService(), ServerOptions(port=port, api_keys=keys, issuer=issuer)) as started:
        yield started


class Storage:
    """What a client keeps of a server's authorisation."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def test_the_client_of_the_sdk_finds_the_authorisation_server_and_gets_in(
    server: Running, issuer: TrustedIssuer
) -> None:
    answered: dict[str, list[str]] = {}
    asked: dict[str, list[str]] = {}

    async def visit(address: str) -> None:
        """What a browser does, for a user who agrees."""
        asked.update(parse_qs(urlsplit(address).query))
        async with httpx2.AsyncClient(trust_env=False) as browser:
            reply = await browser.get(address)
        answered.update(parse_qs(urlsplit(reply.headers["location"]).query))

    async def called_back() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=answered["code"][0], state=answered["state"][0], iss=answered["iss"][0])

    storage = Storage()
    metadata = OAuthClientMetadata(client_name="a test", redirect_uris=[AnyUrl(CALLBACK)])
    authorised = OAuthClientProvider(issuer.resource, metadata, storage, visit, called_back)
    async with (
        httpx2.AsyncClient(auth=authorised, trust_env=False) as http,
        Client(streamable_http_client(issuer.resource, http_client=http)) as client,
    ):
        offered = {tool.name for tool in (await client.list_tools()).tools}
    assert "rag_context_delete" in offered  # it may write
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["resource"] == [issuer.resource]
    assert asked["scope"] == ["memory:read memory:write"]  # what the 401 names, and not `memory:admin` too
    assert storage.tokens is not None
    assert jwt.decode(storage.tokens.access_token, options={"verify_signature": False})["aud"] == issuer.resource


def test_a_401_says_where_tokens_come_from(server: Running, issuer: TrustedIssuer) -> None:
    with server.client(**HEADERS) as client:
        rejected = client.post("/mcp", json=ASKED)
        challenge = rejected.headers["www-authenticate"]
        where = challenge.partition('resource_metadata="')[2].partition('"')[0]
        metadata = client.get(where).json()
        assert client.get("/.well-known/oauth-protected-resource").json() == metadata
    assert rejected.status_code == 401
    assert challenge.endswith('scope="memory:read memory:write"')
    assert metadata["resource"] == issuer.resource
    assert metadata["authorization_servers"] == [issuer.issuer]
    assert metadata["scopes_supported"] == ["memory:read", "memory:add", "memory:write", "memory:admin"]


def test_any_page_may_read_whose_tokens_count_and_nothing_else(server: Running, issuer: TrustedIssuer) -> None:
    origin = {"Origin": "https://inspector.example"}
    preflight = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "mcp-protocol-version"}
    with server.client() as client:
        for path in (issuer.metadata_path, "/.well-known/oauth-protected-resource"):
            answers = [client.get(path, headers=origin), client.options(path, headers={**origin, **preflight})]
            assert [each.status_code for each in answers] == [200, 204]
            assert {each.headers["access-control-allow-origin"] for each in answers} == {"*"}
        elsewhere = client.post("/mcp", json=ASKED, headers=origin)
        assert elsewhere.status_code == 403
        assert "access-control-allow-origin" not in elsewhere.headers


def test_a_token_with_too_few_scopes_learns_which_is_missing(
    server: Running, authorization: Authorization, issuer: TrustedIssuer
) -> None:
    token = authorization.token(aud=issuer.resource, sub="ana", scope="memory:read")
    called = {**ASKED, "method": "tools/call", "params": {"name": "rag_context_delete", "arguments": {}}}
    called["params"]["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    version = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "rag_context_delete"}
    with server.client(**HEADERS, Authorization=f"Bearer {token}") as client:
        rejected = client.post("/tools/rag_context_delete", json={"documentId": "x"})
        result = client.post("/mcp", json=called, headers=version).json()["result"]
    challenge = rejected.headers["www-authenticate"]
    assert rejected.status_code == 403
    assert challenge.endswith('error="insufficient_scope", scope="memory:write"')
    assert challenge.startswith(f'Bearer resource_metadata="http://{HOST}')
    assert (result["isError"], result["_meta"]["mcp/www_authenticate"]) == (True, [challenge])


def test_who_bears_a_token_is_no_owner_of_a_key_and_no_other_bearer(
    authorization: Authorization, issuer: TrustedIssuer
) -> None:
    """A name decides whose documents a key that may add replaces, and whose MCP sessions it uses."""
    with pytest.raises(ConfigurationError, match="begin with token:"):
        HashedKey.parse("token:ana", hash_key("a-key"))
    callers = [asyncio.run(caller_of(authorization, issuer, sub=f"{'x' * 80}{end}")) for end in ("a", "b", "a\u200b")]
    assert len({each.name for each in callers}) == 3
    assert asyncio.run(caller_of(authorization, issuer, sub="robot")).name != "robot"


async def caller_of(authorization: Authorization, issuer: TrustedIssuer, **claims: object) -> Caller:
    token = authorization.token(aud=issuer.resource, **{"scope": "memory:add", **claims})
    caller = await AccessTokens(issuer).caller_of(token.encode())
    assert caller is not None
    return caller


async def test_a_group_means_its_parts_and_one_that_is_not_there_nothing(
    authorization: Authorization, issuer: TrustedIssuer
) -> None:
    groups = {"shop": Bounds(projects=("shop",), tags=("sales",)), "ops": Bounds(projects=("infra",))}
    issuer = replace(issuer, groups=groups)
    of = [
        (await caller_of(authorization, issuer, scope=f"memory:read {scopes}")).bounds
        for scopes in ("group:shop group:ops project:wiki", "group:nowhere", "")
    ]
    assert of == [Bounds(projects=("wiki", "shop", "infra"), tags=("sales",)), Bounds(), None]
    bounding = replace(issuer, is_bounding=True)
    assert (await caller_of(authorization, bounding, scope="memory:read")).bounds == Bounds()


def test_a_key_counts_beside_tokens(server: Running) -> None:
    with server.client(**HEADERS, Authorization="Bearer a-key") as client:
        assert client.get("/tools").status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"aud": "http://elsewhere/mcp"},
        {"iss": "http://elsewhere"},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"aud": None},
    ],
    ids=str,
)
def test_a_token_that_is_not_for_here_is_rejected(
    server: Running, authorization: Authorization, issuer: TrustedIssuer, wrong: dict[str, object]
) -> None:
    claims = {"iss": issuer.issuer, "exp": time.time() + 60, "aud": issuer.resource, "scope": "memory:read", **wrong}
    token = jwt.encode(
        {name: value for name, value in claims.items() if value is not None},
        authorization.key,
        algorithm="RS256",
        headers={"kid": KEY_ID},
    )
    with server.client(**HEADERS, Authorization=f"Bearer {token}") as client:
        rejected = client.post("/mcp", json=ASKED)
    assert rejected.status_code == 401
    assert 'error="invalid_token"' in rejected.headers["www-authenticate"]


def test_a_signature_of_another_kind_or_key_is_rejected(
    server: Running, authorization: Authorization, issuer: TrustedIssuer
) -> None:
    claims = {"iss": issuer.issuer, "exp": time.time() + 60, "aud": issuer.resource, "scope": "memory:admin"}
    public = authorization.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = {"kid": KEY_ID}
    tokens = {
        "another key": jwt.encode(claims, new_key(), algorithm="RS256", headers=head),
        "an unknown key": jwt.encode(claims, new_key(), algorithm="RS256", headers={"kid": "other"}),
        "no signature": jwt.encode(claims, "", algorithm="none", headers=head),
        "the public key as a secret": hmac_signed(claims, public, head),
    }
    for what, token in tokens.items():
        with server.client(**HEADERS, Authorization=f"Bearer {token}") as client:
            assert client.post("/mcp", json=ASKED).status_code in {401, 429}, what


def hmac_signed(claims: dict[str, Any], secret: bytes, head: dict[str, str]) -> str:
    """As an attacker would; the library rejects a public key as a secret."""
    import base64
    import hashlib
    import hmac
    import json

    def encoded(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    text = encoded({"alg": "HS256", "typ": "JWT", **head}) + b"." + encoded(claims)
    mark = base64.urlsafe_b64encode(hmac.new(secret, text, hashlib.sha256).digest()).rstrip(b"=")
    return (text + b"." + mark).decode()


@pytest.mark.parametrize(
    ("scope", "access", "bounds"),
    [
        ("memory:read", Access.READ, None),
        ("openid memory:write memory:read", Access.WRITE, None),
        ("memory:read project:wiki tag:a tag:b", Access.READ, Bounds(projects=("wiki",), tags=("a", "b"))),
        (["memory:admin", "collection:team:notes"], Access.ADMIN, Bounds(collections=("team:notes",))),
    ],
)
async def test_scopes_say_what_a_token_may_do_and_with_what(
    authorization: Authorization, issuer: TrustedIssuer, scope: object, access: Access, bounds: Bounds | None
) -> None:
    token = authorization.token(aud=issuer.resource, sub="ana", scope=scope)
    assert await AccessTokens(issuer).caller_of(token.encode()) == Caller("token:ana", access, bounds)


async def test_a_token_without_a_scope_of_the_memory_is_of_no_use(
    authorization: Authorization, issuer: TrustedIssuer
) -> None:
    token = authorization.token(aud=issuer.resource, scope="openid profile")
    with pytest.raises(RequestRejectedError, match="none of the scopes") as raised:
        await AccessTokens(issuer).caller_of(token.encode())
    assert raised.value.status == 403
    assert any(b"insufficient_scope" in value for _, value in raised.value.headers)


async def test_keys_that_were_read_count_for_an_hour_without_their_issuer(tmp_path: Path) -> None:
    clock = FrozenClock()
    resource = "http://here/mcp"
    with authorization_server(tmp_path) as gone:
        tokens = AccessTokens(TrustedIssuer(gone.issuer, resource), clock)
        token = gone.token(aud=resource, scope="memory:read").encode()
        assert await tokens.caller_of(token) is not None
    clock.advance(LEAST_S)
    assert await tokens.caller_of(token) is not None
    clock.advance(KEPT_S)
    for _ in range(2):  # the second time the issuer is not called, and the token is not called invalid
        with pytest.raises(RequestRejectedError, match="does not say its keys") as raised:
            await tokens.caller_of(token)
        assert raised.value.status == 503


async def test_unknown_keys_do_not_make_this_server_ask_again_and_again(authorization: Authorization) -> None:
    clock = FrozenClock()
    tokens = AccessTokens(TrustedIssuer(authorization.issuer, "http://here/mcp"), clock)
    unknown = jwt.encode({"iss": authorization.issuer}, new_key(), algorithm="RS256", headers={"kid": "x"}).encode()
    assert await tokens.caller_of(unknown) is None
    authorization.process.freeze()
    try:
        assert await tokens.caller_of(unknown) is None  # without a question
    finally:
        authorization.process.thaw()


def test_a_server_with_tokens_alone_may_be_reached_from_elsewhere(tmp_path: Path) -> None:
    ServerOptions(host="0.0.0.0", issuer=TrustedIssuer("http://issuer", "http://here/mcp")).check()
    with pytest.raises(ConfigurationError, match="Refusing to listen"):
        ServerOptions(host="0.0.0.0").check()
    (tmp_path / "rag-context.toml").write_text('[oauth]\nissuer = "https://issuer.example"\n')
    half = load_settings(flags={}, cwd=tmp_path).settings
    with pytest.raises(ConfigurationError, match=r"need both oauth\.issuer"):
        server_options(half)
    assert server_options(Settings()).issuer is None
