"""An authorisation server as a process: that of MCP's SDK, with discovery, registration, PKCE and `iss` (RFC 9207).

It lets everyone in.

python -m tests.servers.authorization PORT KEY_FILE SCOPE...
"""

import json
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from mcp.server.auth.provider import AuthorizationCode, AuthorizationParams, construct_redirect_uri
from mcp.server.auth.routes import build_metadata, create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.servers.process import HOST, ServerProcess, free_port

KEY_ID = "first"


class Provider:
    """Gives every client a code, and the scopes of the server."""

    def __init__(self, issuer: str, key: Any, scopes: list[str]) -> None:
        self._issuer = issuer
        self._key = key
        self._scopes = scopes
        self._clients: dict[str, OAuthClientInformationFull] = {}
        self._codes: dict[str, AuthorizationCode] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self._clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self._clients[str(client_info.client_id)] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = AuthorizationCode(
            code=secrets.token_urlsafe(24),
            scopes=self._scopes,
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self._codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state, iss=self._issuer)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self._codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self._codes[authorization_code.code]
        claims = {"sub": "ana", "aud": authorization_code.resource, "scope": " ".join(authorization_code.scopes)}
        return OAuthToken(access_token=signed(self._key, self._issuer, **claims), expires_in=60)


def signed(key: Any, issuer: str, **claims: object) -> str:
    """A token of this issuer."""
    return jwt.encode(
        {"iss": issuer, "exp": time.time() + 60, **claims}, key, algorithm="RS256", headers={"kid": KEY_ID}
    )


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Authorization:
    """The server, as tests know it."""

    def __init__(self, process: ServerProcess, key: rsa.RSAPrivateKey) -> None:
        self.process = process
        self.key = key
        self.issuer = f"http://{HOST}:{process.port}"

    def token(self, **claims: object) -> str:
        return signed(self.key, self.issuer, **claims)


@contextmanager
def authorization_server(folder: Path, *scopes: str) -> Iterator[Authorization]:
    key, file, port = new_key(), folder / "key.pem", free_port()
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    command = [sys.executable, "-m", "tests.servers.authorization", str(port), str(file), *scopes]

    def is_ready() -> bool:
        try:
            return httpx2.get(f"http://{HOST}:{port}/jwks", trust_env=False).is_success
        except httpx2.HTTPError:
            return False

    process = ServerProcess(command, port, folder / "authorization.log", is_ready)
    process.start()
    try:
        yield Authorization(process, key)
    finally:
        process.kill()


def main() -> None:
    port, file, *scopes = sys.argv[1:]
    issuer = f"http://{HOST}:{port}"
    key = load_pem_private_key(Path(file).read_bytes(), None)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))  # type: ignore[arg-type]
    registration = ClientRegistrationOptions(enabled=True)
    stated = build_metadata(AnyHttpUrl(issuer), None, registration, RevocationOptions()).model_dump(
        mode="json", exclude_none=True
    )

    async def metadata(request: Request) -> JSONResponse:
        own = {"issuer": issuer, "jwks_uri": f"{issuer}/jwks", "authorization_response_iss_parameter_supported": True}
        return JSONResponse({**stated, **own})

    async def keys(request: Request) -> JSONResponse:
        return JSONResponse({"keys": [{**public, "kid": KEY_ID, "alg": "RS256", "use": "sig"}]})

    provider: Any = Provider(issuer, key, scopes)
    routes = create_auth_routes(provider, AnyHttpUrl(issuer), client_registration_options=registration)
    own = [Route("/.well-known/oauth-authorization-server", metadata), Route("/jwks", keys)]
    uvicorn.run(Starlette(routes=[*own, *routes]), host=HOST, port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
