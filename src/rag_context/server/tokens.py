"""Access tokens of an authorisation server, beside API keys: this server is a resource server of OAuth 2.1.

A token is a JWT (RFC 9068), checked by the keys that its issuer publishes: signature, issuer, audience, expiry. Its
scopes say what its bearer may do, and to which parts of the memory it is bound: `memory:read project:wiki`. Clients
find the authorisation server through the metadata of RFC 9728.
"""

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import jwt

from rag_context.api.operations import Access
from rag_context.domain.callers import Bounds
from rag_context.server.options import ISSUED, SCOPES, Caller, TrustedIssuer
from rag_context.server.requests import RequestRejectedError

logger = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures whose keys are public; a secret that both sides know would let this server make tokens."""

LEEWAY_S = 10.0
KEPT_S = 3600.0
"""Keys are read again after that, so that one that was withdrawn is not trusted for longer."""
LEAST_S = 10.0
"""Between two readings, whatever keys tokens name: anyone can name one that does not exist."""
TIMEOUT_S = 5.0
MOST_BYTES = 1 << 20

_SUBJECT_CHARS = 64
_BOUND = {"project": "projects", "collection": "collections", "agent": "agents", "tag": "tags"}


class _Keys:
    def __init__(self, issuer: TrustedIssuer, clock: Callable[[], float]) -> None:
        self.issuer = issuer
        self.clock = clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_at = float("-inf")
        self._tried_at = float("-inf")
        self._reading = asyncio.Lock()

    async def named(self, name: str) -> jwt.PyJWK | None:
        """A key; None where the issuer has none of that name. Raises: RequestRejectedError (it does not say)."""
        if name not in self._keys or self.clock() - self._read_at > KEPT_S:
            async with self._reading:
                if self.clock() - self._tried_at >= LEAST_S:
                    await self._read()
        if self.clock() - self._read_at > KEPT_S:
            sentence = "The authorisation server does not say its keys: tokens cannot be checked now"
            raise RequestRejectedError(503, sentence, retry_after_s=round(LEAST_S))
        return self._keys.get(name)

    async def _read(self) -> None:
        self._tried_at = self.clock()
        try:
            async with httpx2.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
                found = await _json(client, self.issuer.jwks_url or await self._published(client))
            listed = jwt.PyJWKSet.from_dict(found).keys
        except (httpx2.HTTPError, jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
            # Those that were read less than an hour ago count.
            logger.warning("the keys of %s cannot be read: %s", self.issuer.issuer, error)
            return
        self._keys = {key.key_id: key for key in listed if key.key_id is not None}
        self._read_at = self.clock()

    async def _published(self, client: httpx2.AsyncClient) -> str:
        """The address of the keys, from the issuer's metadata (RFC 8414, else OpenID Connect)."""
        issuer = self.issuer.issuer.rstrip("/")
        scheme, _, rest = issuer.partition("://")
        host, slash, path = rest.partition("/")
        well_known = f"{scheme}://{host}/.well-known/oauth-authorization-server{slash}{path}"
        for address in (well_known, f"{issuer}/.well-known/openid-configuration"):
            try:
                metadata = await _json(client, address)
            except (httpx2.HTTPError, ValueError):
                continue
            # Metadata of another issuer would let that one's keys sign for this one.
            if str(metadata.get("issuer", "")).rstrip("/") == issuer and "jwks_uri" in metadata:
                return str(metadata["jwks_uri"])
        raise ValueError("the issuer publishes no metadata with jwks_uri")


async def _json(client: httpx2.AsyncClient, address: str) -> dict[str, Any]:
    async with client.stream("GET", address) as response:
        response.raise_for_status()
        body = b""
        async for part in response.aiter_bytes():
            body += part
            if len(body) > MOST_BYTES:
                raise ValueError("too large")
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError("no object")  # noqa: TRY004  (a reply, not an argument)
    return found


class AccessTokens:
    def __init__(self, issuer: TrustedIssuer, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._keys = _Keys(issuer, clock)

    async def caller_of(self, token: bytes) -> Caller | None:
        """Who bears a token; None where it is not valid.

        Raises: RequestRejectedError (its keys cannot be read now, or its scopes allow nothing here).
        """
        try:
            key = await self._keys.named(str(jwt.get_unverified_header(token).get("kid", "")))
            if key is None or key.algorithm_name not in ALGORITHMS:
                return None
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._issuer.resource,
                issuer=self._issuer.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError:
            return None
        return self._caller(claims)

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        stated = claims.get("scope", claims.get("scp", ()))
        scopes = stated.split() if isinstance(stated, str) else list(map(str, stated))
        access = max((SCOPES[scope] for scope in scopes if scope in SCOPES), key=list(Access).index, default=None)
        if access is None:
            raise RequestRejectedError(
                403,
                f"The token has none of the scopes {', '.join(SCOPES)}",
                www_authenticate=self._issuer.missing_scope(Access.READ),
            )
        parts = [(kind, name) for kind, colon, name in (scope.partition(":") for scope in scopes) if colon]
        bound = {field: tuple(name for kind, name in parts if kind == of) for of, field in _BOUND.items()}
        groups, bounds = tuple(name for kind, name in parts if kind == "group"), None
        if any(bound.values()) or groups or self._issuer.is_bounding:
            bounds = Bounds(**bound).joined(self._issuer.groups.get(name, Bounds()) for name in groups)
        name = _name(str(claims.get("sub") or claims.get("client_id") or ""))
        return Caller(name, access, bounds, self._issuer)


def _name(subject: str) -> str:
    """The bearer's name in logs, of sessions and of what they add: no API key has it, and no other subject."""
    if subject.isprintable() and len(subject) <= _SUBJECT_CHARS:
        return f"{ISSUED}{subject}"
    digest = hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{ISSUED}{''.join(filter(str.isprintable, subject))[:_SUBJECT_CHARS]}#{digest}"
