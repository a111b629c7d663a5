"""Checks before a request is read: host and origin, API key, rate, size of the body. Pure ASGI, one concern a class."""

import asyncio
import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_context.api.operations.routes import OPERATIONS, ROUTES
from rag_context.server.failures import RequestIdMiddleware, retry_after
from rag_context.server.options import ANYONE, LOOPBACK_NAMES, METADATA, Caller, ServerOptions, identify
from rag_context.server.pages import PAGE_PREFIX
from rag_context.server.requests import ClientGoneError, HttpRequest, RequestRejectedError, http_request

if TYPE_CHECKING:
    from rag_context.server.tokens import AccessTokens

OPEN_PATHS = frozenset({"/", "/docs", "/live", "/ready", "/health"})
"""Served without a key. `/` and `/docs` are pages without data; `/health` says only whether all is well."""
DISCOVERY = "/.well-known/"
"""Where clients without a key look up other kinds of authentication. There are none, which only a 404 tells them."""
_WITHIN_BOUNDS = re.compile(
    rf"/|/docs|/live|/ready|/health|/mcp|/bulk|/openapi\.json|/(?:tools|collections|providers|v1)(?:/.*)?|{PAGE_PREFIX}[^/]*",
    re.DOTALL,
)
"""What a key with bounds may call: what keeps itself within them, or tells nothing of the memory."""
WHOLE = "This address is about the whole memory, and this API key is bound to parts of it"
_JWT = re.compile(rb"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
"""The form of an access token; API keys have another."""
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_WILDCARDS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104  (compared with, not bound to)
_METHODS = b"GET, POST, PUT, DELETE"
_EXPOSED = b"X-Request-ID, Retry-After, Mcp-Session-Id, WWW-Authenticate"
_MAX_BUCKETS = 10_000
WRONG_KEYS = 10
"""Wrong keys that an address may present at once."""
WRONG_KEYS_PER_S = 10 / 60
_NETWORK_BITS = 64
"""Of an IPv6 address; one customer has all the addresses behind them."""


class TokenBuckets:
    """A bucket of `burst` tokens for each name, filled up at `per_s`; the names not used for longest are forgotten."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, name: str) -> float:
        """Seconds until there is a token; 0 where there is one."""
        tokens = self._tokens(name, self._clock())
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_s

    def take(self, name: str) -> float:
        """Take a token if there is one; the same answer as `wait_s` before it."""
        now = self._clock()
        wait = self.wait_s(name)
        tokens = self._tokens(name, now)
        self._buckets[name] = (tokens if wait else tokens - 1, now)
        self._buckets.move_to_end(name)
        # Names come from outside, without limit. What is forgotten had the longest time to fill up, and a new bucket
        # is full.
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return wait

    def _tokens(self, name: str, now: float) -> float:
        tokens, at = self._buckets.get(name, (self._burst, now))
        return min(self._burst, tokens + (now - at) * self._per_s)


class HostOriginMiddleware:
    """Rejects a foreign Host (DNS rebinding) and a foreign Origin (another web page)."""

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self._app = app
        host = options.host.strip("[]").lower()
        allowed = {name.strip("[]").lower() for name in options.allowed_hosts}
        self._any = "*" in allowed
        self._suffixes = tuple(name[1:] for name in allowed if name.startswith("*."))
        self._names = LOOPBACK_NAMES | allowed | {host}
        # Bound to every address, the server is reached by any of them. A rebound name is never an address.
        self._addresses = host in _WILDCARDS
        self._origins = options.cors_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._check(http_request(scope))
        await self._app(scope, receive, send)

    def _check(self, request: HttpRequest) -> None:
        host = (request.header(b"host") or "").lower()
        if not self._knows(_hostname(host)):
            raise RequestRejectedError(
                403, "Host not allowed: add it to server.allowed_hosts if it is this server's name"
            )
        origin = request.header(b"origin")
        if origin is not None and origin not in self._origins and not _same_site(origin.lower(), host):
            raise RequestRejectedError(
                403, "Origin not allowed: this server answers its own pages and those of server.cors_origins only"
            )

    def _knows(self, name: str) -> bool:
        is_named = name in self._names or (self._any and bool(name)) or name.endswith(self._suffixes)
        return is_named or (self._addresses and _address(name) is not None)


class CrossOrigin:
    """Lets pages of other origins call (CORS): answers their preflights, and names the origin in each reply to them.

    Around all else, so that such a page can read errors too. Keys are headers that the page sends, never cookies. Any
    page may read whose tokens count, as clients of MCP in a browser do before they have one.
    """

    def __init__(self, app: ASGIApp, origins: frozenset[str], public: str | None) -> None:
        self._app = app
        self._origins = {origin.encode("latin-1") for origin in origins}
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        origin = headers.get(b"origin")
        is_public = self._public is not None and scope.get("path", "").startswith(self._public)
        if origin is None or not (is_public or origin in self._origins):
            await self._app(scope, receive, send)
            return
        allowed = [(b"access-control-allow-origin", b"*" if is_public else origin), (b"vary", b"Origin")]
        if is_public:
            scope = {**scope, "headers": [header for header in scope["headers"] if header[0] != b"origin"]}
        if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
            wanted = headers.get(b"access-control-request-headers", b"")
            allowed += [(b"access-control-allow-methods", _METHODS), (b"access-control-allow-headers", wanted)]
            allowed += [(b"access-control-max-age", b"600")]
            await send({"type": "http.response.start", "status": 204, "headers": allowed})
            await send({"type": "http.response.body", "body": b""})
            return
        allowed.append((b"access-control-expose-headers", _EXPOSED))

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *allowed]}
            await send(message)

        await self._app(scope, receive, named)


class AuthMiddleware:
    """Finds out who is calling; without a valid key only the open paths answer.

    Of an address that presented too many wrong keys further ones get 429. A key that is right always passes: clients
    behind one proxy have one address, and the mistakes or the attack of one of them must not lock out the others.
    """

    def __init__(self, app: ASGIApp, options: ServerOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._keys = options.api_keys
        self._tokens: AccessTokens | None = None
        self._challenge = "Bearer"
        if options.issuer is not None:
            from rag_context.server import tokens  # noqa: PLC0415  (loads the library of signatures)

            self._tokens = tokens.AccessTokens(options.issuer)
            self._challenge = options.issuer.challenge
        self._wrong = TokenBuckets(WRONG_KEYS_PER_S, WRONG_KEYS, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = http_request(scope)
            if not self._keys and self._tokens is None:
                request.caller = ANYONE
            else:
                await self._identify(request, scope["path"], _network(scope))
        await self._app(scope, receive, send)

    async def _identify(self, request: HttpRequest, path: str, network: str) -> None:
        key = request.header(b"x-api-key")
        if key is None:
            scheme, _, rest = (request.header(b"authorization") or "").partition(" ")
            key = rest.strip() if scheme.lower() == "bearer" else None
        presented = key.encode("latin-1") if key else None
        if presented is not None:
            request.caller = await self._caller(presented, network)
            if request.caller.bounds is not None and not _WITHIN_BOUNDS.fullmatch(path):
                raise RequestRejectedError(403, WHOLE)
        elif path not in OPEN_PATHS and not path.startswith((DISCOVERY, PAGE_PREFIX)):
            raise RequestRejectedError(
                401,
                "API key required: send Authorization: Bearer KEY or X-API-Key: KEY",
                www_authenticate=self._challenge,
            )

    async def _caller(self, presented: bytes, network: str) -> Caller:
        if self._tokens is not None and _JWT.fullmatch(presented):
            caller = await self._tokens.caller_of(presented)
        else:
            caller = identify(presented, self._keys)
        if caller is not None:
            return caller
        if wait := self._wrong.take(network):
            raise RequestRejectedError(
                429,
                f"Too many wrong API keys from this address: wait {retry_after(wait)} s",
                retry_after_s=retry_after(wait),
            )
        separator = " " if self._tokens is None else ", "
        raise RequestRejectedError(
            401,
            "API key not valid" if self._tokens is None else "API key or access token not valid",
            www_authenticate=f'{self._challenge}{separator}error="invalid_token"',
        )


class RateLimit:
    """A token bucket per key; per address where callers have none."""

    def __init__(self, app: ASGIApp, *, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._buckets = TokenBuckets(per_s, burst, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in {"/live", "/ready"}:
            caller = http_request(scope).caller
            has_key = caller is not None and caller is not ANYONE
            name = f"key {caller.name}" if caller and has_key else str((scope.get("client") or ("",))[0])
            if (wait := self._buckets.take(name)) > 0:
                raise RequestRejectedError(429, "Too many requests", retry_after_s=retry_after(wait))
        await self._app(scope, receive, send)


@dataclass(frozen=True)
class BodyLimit:
    """Bounds a body in size, by what is announced and by what arrives, and in time."""

    app: ASGIApp
    _: KW_ONLY
    default: int
    paths: Mapping[str, int | None]
    timeout_s: float
    patterns: Sequence[tuple[re.Pattern[str], int]] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = http_request(scope)
        path = scope["path"]
        if path in self.paths:
            limit = self.paths[path]
        else:
            limit = next((most for pattern, most in self.patterns if pattern.fullmatch(path)), self.default)
        announced = request.headers.get(b"content-length", b"").strip()
        if limit is not None and announced.isdigit() and int(announced[:20]) > limit:
            raise _too_large(limit)
        await self.app(scope, self._counting(receive, request, limit), send)

    def _counting(self, receive: Receive, request: HttpRequest, limit: int | None) -> Receive:
        received = 0
        deadline: float | None = None

        async def counted() -> Message:
            nonlocal received, deadline
            if request.body_read:
                return await receive()
            if received == 0:
                # Nearly every body comes in one piece. Where none comes, the timer of `GuardedProtocol` ends the wait.
                message = await receive()
            else:
                now = asyncio.get_running_loop().time()
                # A stream without a size limit may take its time as long as it moves.
                deadline = now + self.timeout_s if deadline is None or limit is None else deadline
                message = await _before(deadline, receive)
            if message["type"] != "http.request":
                raise ClientGoneError
            received += len(message.get("body", b"")) or 1  # an empty part too: after the first one the time runs
            request.body_read = not message.get("more_body", False)
            if limit is not None and received > max(limit, 1):
                raise _too_large(limit)
            return message

        return counted


async def _before(deadline: float, receive: Receive) -> Message:
    try:
        async with asyncio.timeout_at(deadline):
            return await receive()
    except TimeoutError:
        raise RequestRejectedError(408, "Request body took too long") from None


def _too_large(limit: int) -> RequestRejectedError:
    return RequestRejectedError(413, f"Request body too large (max {limit} bytes)")


def _network(scope: Scope) -> str:
    """Whom an address belongs to: an IPv4 address, the network of an IPv6 one, or what stands in its place."""
    host = str((scope.get("client") or ("",))[0])
    address = _address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _NETWORK_BITS), strict=False))
    return host


def _hostname(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _same_site(origin: str, host: str) -> bool:
    scheme, separator, authority = origin.partition("://")
    port = _DEFAULT_PORTS.get(scheme)
    return bool(separator) and port is not None and _full(authority, port) == _full(host, port)


def _full(authority: str, port: str) -> str:
    return authority if authority.rpartition(":")[2].isdigit() else f"{authority}:{port}"


def guarded(app: ASGIApp, options: ServerOptions) -> ASGIApp:
    """An application behind all that is checked before a request is read."""
    # What is added last is passed first: the id of a request, then host and origin, key, rate, and the body at last.
    app = BodyLimit(
        app,
        default=options.body_bytes,
        paths={
            **{each.path: options.index_body_bytes for each in OPERATIONS.values() if each.is_large},
            "/mcp": options.index_body_bytes,
            "/bulk": None,
        },
        timeout_s=options.body_timeout_s,
        patterns=tuple((each.pattern, options.collection_body_bytes) for each in ROUTES if each.is_large),
    )
    if options.rate_per_s > 0:
        app = RateLimit(app, per_s=options.rate_per_s, burst=max(50, round(2 * options.rate_per_s)))
    app = AuthMiddleware(app, options)
    app = HostOriginMiddleware(app, options)
    rejected = TokenBuckets(WRONG_KEYS_PER_S, WRONG_KEYS)
    app = RequestIdMiddleware(
        app, max_requests=options.max_requests, may_record=lambda scope: not rejected.take(_network(scope))
    )
    public = None if options.issuer is None else METADATA
    return CrossOrigin(app, options.cors_origins, public) if options.cors_origins or public else app
