"""Options of the HTTP server: address, keys and limits."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rag_context.api.operations import Access
from rag_context.api.wire import Vocabulary
from rag_context.domain.callers import Bounds
from rag_context.errors import ConfigurationError
from rag_context.settings import is_loopback

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
SCOPES = {f"memory:{access.value}": access for access in Access}
"""What a token allows its bearer to do."""
_USUAL_SCOPES = "memory:read memory:write"
METADATA = "/.well-known/oauth-protected-resource"
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


ISSUED = "token:"
"""Begins the name of who bears an access token. No API key has such a name: their owners are others."""


@dataclass(frozen=True, slots=True)
class HashedKey:
    """A named key, known by its SHA-256 only."""

    name: str
    digest: bytes = field(repr=False)
    access: Access = Access.WRITE
    bounds: Bounds | None = None

    @classmethod
    def parse(cls, name: str, hashed: str, access: Access = Access.WRITE, bounds: Bounds | None = None) -> "HashedKey":
        """Read `sha256:<64 hex digits>`.

        Raises: ConfigurationError (`hashed` is of another form, and is never shown, or nothing may have this name).
        """
        if name.startswith(ISSUED):
            raise ConfigurationError(f"API key {name!r}: names that begin with {ISSUED} are those of bearers of tokens")
        match = _DIGEST.fullmatch(hashed.strip().lower())
        if match is None:
            raise ConfigurationError(f"API key {name!r} must be stored as sha256:<64 hex digits>, not as it is")
        return cls(name, bytes.fromhex(match[1]), access, bounds)


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """Whose access tokens count, and for which resource: the address of `/mcp` as clients know it."""

    issuer: str
    resource: str
    jwks_url: str | None = None
    """Where its public keys are; None: where its metadata say."""
    groups: Mapping[str, Bounds] = field(default_factory=dict, hash=False)
    """What a scope `group:NAME` of a token means."""
    is_bounding: bool = False
    """Whether a token without a scope that binds it sees nothing, and not everything."""

    @property
    def metadata_path(self) -> str:
        """Where this server says whose tokens count (RFC 9728)."""
        _, slash, path = self.resource.partition("://")[2].rstrip("/").partition("/")
        return f"{METADATA}{slash}{path}"

    @property
    def challenge(self) -> str:
        """What a reply without a valid token says: where clients get one, and with which scopes.

        Without them, clients request all that there are, `memory:admin` too.
        """
        scheme, _, rest = self.resource.partition("://")
        where = f"{scheme}://{rest.partition('/')[0]}{self.metadata_path}"
        return f'Bearer resource_metadata="{where}", scope="{_USUAL_SCOPES}"'

    def missing_scope(self, access: Access) -> str:
        """What a reply to a token with too few scopes says: which one is missing."""
        where = self.challenge.partition(", scope=")[0]
        return f'{where}, error="insufficient_scope", scope="memory:{access.value}"'

    def metadata(self) -> dict[str, Any]:
        return {
            "resource": self.resource,
            "authorization_servers": [self.issuer],
            "scopes_supported": list(SCOPES),
            "bearer_methods_supported": ["header"],
            "resource_name": "rag-context",
        }


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    access: Access
    bounds: Bounds | None = None
    """What there is for its key; None: everything."""
    issuer: TrustedIssuer | None = field(default=None, compare=False)
    """Whose token it bears."""


ANYONE = Caller("anyone", Access.ADMIN)
"""Every caller of a server without keys."""


def hash_key(key: str) -> str:
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def identify(presented: bytes, keys: Iterable[HashedKey]) -> Caller | None:
    """The owner of a presented key; every key is compared, in constant time."""
    digest = hashlib.sha256(presented).digest()
    caller = None
    for key in keys:
        if hmac.compare_digest(digest, key.digest):
            caller = Caller(key.name, key.access, key.bounds)
    return caller


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Settings of the HTTP server. Sizes in bytes, times in seconds."""

    host: str = "127.0.0.1"
    port: int = 3000
    allowed_hosts: tuple[str, ...] = ()
    """Further names this server answers to; `*.example.com` for all below, `*` for any."""
    cors_origins: frozenset[str] = frozenset()
    """Web pages of these origins may call the API, `https://app.example.com`."""
    api_keys: tuple[HashedKey, ...] = ()
    issuer: TrustedIssuer | None = None
    """Access tokens of this authorisation server count beside keys."""
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    instance_id: str = ""
    secret: str = field(default="", repr=False)
    """Proves to who found this server through its file that it wrote the file."""
    sessions_file: Path | None = None
    """Where the workers of one server keep MCP sessions; None: this process alone has them, in memory."""
    body_bytes: int = 1024 * 1024
    index_body_bytes: int = 2 * 1024 * 1024
    collection_body_bytes: int = 64 * 1024 * 1024
    bulk_line_bytes: int = 16 * 1024 * 1024
    bulk_concurrency: int = 8
    body_timeout_s: float = 30.0
    head_timeout_s: float = 10.0
    head_bytes: int = 64 * 1024
    keep_alive_s: int = 75
    grace_s: int = 8
    """How long running requests may take to end once the server has to stop."""
    max_connections: int = 1000
    max_requests: int = 256
    """Requests in progress at once; more are answered 503."""
    rate_per_s: float = 0.0
    """Requests a second per key (per address without keys), after as many as in two seconds, or 50; 0: no limit."""

    def check(self) -> None:
        """Reject options that open the server to the network without a key. Raises: ConfigurationError."""
        if not is_loopback(self.host) and not self.api_keys and self.issuer is None:
            raise ConfigurationError(
                f"Refusing to listen on {self.host} without an API key, for other machines can reach it: make one with "
                "`rag-context key NAME`, set RAG_CONTEXT_API_KEY, or listen on 127.0.0.1"
            )
