"""Requests the version of each configured backend, and whose the vectors there are. Nothing is changed there."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import httpx2

from rag_context.errors import BackendError, BackendRejectedError, BackendUnavailableError
from rag_context.settings import Settings, StoreSettings, mask_url
from rag_context.settings.values import hosts_of

TIMEOUT_S = 10.0
OLDEST_POSTGRES, OLDEST_PGVECTOR = 16, (0, 8)
_UNAUTHORIZED = (401, 403)
Request: TypeAlias = Callable[[str, StoreSettings], Awaitable[str]]
"""Returns the version of the backend at an address. Raises: BackendError."""

_DRIVERS = {
    "PostgreSQL": "asyncpg",
    "MongoDB": "pymongo",
    "Redis": "redis.asyncio",
    "Qdrant": "rag_context.stores.qdrant",
    "Chroma": "rag_context.stores.chroma",
}


@dataclass(frozen=True, slots=True)
class Probe:
    """One backend on a server: the product's name, the setting of its address, and that without secrets."""

    name: str
    key: str
    address: str
    version: Callable[[], Awaitable[str]]
    """Raises: BackendError."""


def probes(settings: Settings) -> Iterator[Probe]:
    stores = settings.stores
    backends: tuple[tuple[str, str, bool, Request], ...] = (
        ("PostgreSQL", "postgres_url", stores.documents == "postgres", _postgres),
        ("Qdrant", "qdrant_url", stores.vectors == "qdrant", _qdrant),
        ("Chroma", "chroma_url", stores.vectors == "chroma" and not stores.chroma_dir, _chroma),
        ("MongoDB", "mongodb_uri", stores.documents == "mongodb", lambda url, _: mongodb_version(url, TIMEOUT_S / 2)),
        ("Redis", "redis_url", stores.cache == "redis", _redis),
    )
    for name, key, is_selected, request in backends:
        url = getattr(stores, key)
        if is_selected and url is not None:
            yield Probe(name, f"stores.{key}", mask_url(url), _bounded(name, request, url, stores))


def _bounded(name: str, request: Request, url: str, stores: StoreSettings) -> Callable[[], Awaitable[str]]:
    async def version() -> str:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await request(url, stores)
        except TimeoutError as error:
            raise BackendUnavailableError(name, f"it did not answer within {TIMEOUT_S:.0f} s") from error
        except OSError as error:
            raise BackendUnavailableError(name, "it cannot be reached") from error

    return version


async def _qdrant(url: str, stores: StoreSettings) -> str:
    key = stores.qdrant_api_key.get_secret_value() if stores.qdrant_api_key is not None else None
    headers = {} if key is None else {"api-key": key}
    for node in hosts_of(url):
        version = await _get("Qdrant", node.rstrip("/") + "/", headers)
        await _get("Qdrant", node.rstrip("/") + "/collections", headers)  # which needs the key, not so the version
    from rag_context.stores.qdrant import CollectionPlan, open_qdrant  # noqa: PLC0415  (an extra)

    async with open_qdrant(url, CollectionPlan(stores.qdrant_collection), api_key=key) as vectors:
        await vectors.require_own()
    return str(version.get("version", "of an unknown version")) if isinstance(version, dict) else str(version)


async def _chroma(url: str, stores: StoreSettings) -> str:
    from rag_context.stores.chroma import open_chroma  # noqa: PLC0415  (an extra)

    version = str(await _get("Chroma", url.rstrip("/") + "/api/v2/version", {}))
    async with open_chroma(url, stores.chroma_collection) as vectors:
        await vectors.require_own()
    return version


async def _get(name: str, url: str, headers: dict[str, str]) -> Any:
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=TIMEOUT_S) as client:
            reply = await client.get(url, headers=headers)
            if reply.status_code in _UNAUTHORIZED:
                raise BackendRejectedError(name, "it rejects the key")
            reply.raise_for_status()
            return reply.json()
    except httpx2.HTTPStatusError as error:
        raise BackendRejectedError(name, f"it answers HTTP {error.response.status_code}") from error
    except httpx2.HTTPError as error:
        raise BackendUnavailableError(name, "it cannot be reached") from error
    except ValueError as error:
        raise BackendRejectedError(name, "what answers there is another program") from error


async def mongodb_version(url: str, timeout_s: float) -> str:
    """The version of the MongoDB at an address. Raises: BackendError."""
    from pymongo import AsyncMongoClient  # noqa: PLC0415  (an extra)
    from pymongo.errors import InvalidURI, OperationFailure, PyMongoError  # noqa: PLC0415

    try:
        async with AsyncMongoClient[Any](url, serverSelectionTimeoutMS=int(timeout_s * 1000)) as client:
            return str((await client.admin.command("buildInfo"))["version"])
    except (InvalidURI, ValueError) as error:
        raise BackendRejectedError("MongoDB", "its address is not valid") from error
    except OperationFailure as error:
        raise BackendRejectedError("MongoDB", "it rejects the user or the password") from error
    except PyMongoError as error:
        raise BackendUnavailableError("MongoDB", "it cannot be reached") from error


async def _postgres(url: str, _stores: StoreSettings) -> str:
    import asyncpg  # noqa: PLC0415  (an extra)

    try:
        connection = await asyncpg.connect(url, timeout=TIMEOUT_S)
    except asyncpg.PostgresError as error:
        raise BackendRejectedError("PostgreSQL", f"it rejects the connection ({type(error).__name__})") from error
    try:
        version = str(await connection.fetchval("SHOW server_version")).split()[0]
        vector = await connection.fetchval("SELECT default_version FROM pg_available_extensions WHERE name = 'vector'")
    finally:
        await connection.close()
    if int(version.partition(".")[0]) < OLDEST_POSTGRES:
        raise BackendRejectedError("PostgreSQL", f"its version {version} is too old; {OLDEST_POSTGRES} is the oldest")
    if vector is None or tuple(int(part) for part in re.findall(r"\d+", vector)[:2]) < OLDEST_PGVECTOR:
        raise BackendRejectedError("PostgreSQL", f"it needs pgvector 0.8 or newer, and has {vector or 'none'}")
    return f"{version} with pgvector {vector}"


async def _redis(url: str, _stores: StoreSettings) -> str:
    from redis.asyncio import Redis  # noqa: PLC0415  (an extra)
    from redis.exceptions import AuthenticationError, RedisError  # noqa: PLC0415

    client = Redis.from_url(url, socket_connect_timeout=TIMEOUT_S, socket_timeout=TIMEOUT_S)
    try:
        return str((await client.info("server"))["redis_version"])
    except AuthenticationError as error:
        raise BackendRejectedError("Redis", "it rejects the password") from error
    except RedisError as error:
        raise BackendUnavailableError("Redis", "it cannot be reached") from error
    finally:
        await client.aclose()


async def answers_of_all(settings: Settings) -> list[tuple[Probe, str | BackendError]]:
    """The version of each backend, or why it is not known; all at once."""
    selected = list(probes(settings))
    for probe in selected:
        if probe.name in _DRIVERS:  # takes seconds on a busy machine: not on the loop, where others' time would pass
            await asyncio.to_thread(import_module, _DRIVERS[probe.name])
    answers = await asyncio.gather(*(each.version() for each in selected), return_exceptions=True)
    found: list[tuple[Probe, str | BackendError]] = []
    for probe, answer in zip(selected, answers, strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, BackendError):
            raise answer
        found.append((probe, answer))
    return found
