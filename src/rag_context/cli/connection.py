"""Where a command's work is done: by the running server of the data directory, or else in this process.

A server is found through the file it keeps beside the index, and believed only when it answers with the
instance that the file names.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import httpx2

from rag_context.contract.health import HealthResponse
from rag_context.contract.index import BulkLine, BulkReceipt
from rag_context.contract.search import SearchRequest, SearchResponse
from rag_context.contract.stats import StatsRequest, StatsResponse
from rag_context.contract.wire import WireResponse
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    InvalidInputError,
    RagContextError,
)
from rag_context.server.discovery import read_announcement
from rag_context.settings import Loaded, Settings

SERVER_BATCH = 32
"""Documents in one request to a server."""

_COMPONENT = "server"
_FIND_TIMEOUT = httpx2.Timeout(2.0)
_TIMEOUT = httpx2.Timeout(60.0, connect=5.0)
_BULK_TIMEOUT = httpx2.Timeout(300.0, connect=5.0)
_BUSY = (429, 503)
_NO_ENTRY = (401, 403)

Response = TypeVar("Response", bound=WireResponse)
OnReceipt = Callable[[BulkReceipt], None]


class Connection(Protocol):
    """The use cases of the command line. All raise `RagContextError` only."""

    @property
    def place(self) -> str:
        """Where the work is done, for people."""
        ...

    @property
    def batch(self) -> int:
        """How many documents to hand over at once."""
        ...

    async def search(self, request: SearchRequest) -> SearchResponse: ...

    async def bulk(self, lines: Sequence[BulkLine], on_receipt: OnReceipt) -> None:
        """Keep documents; `on_receipt` hears of each one, in order, as soon as it is safe."""
        ...

    async def health(self) -> HealthResponse: ...

    async def stats(self, request: StatsRequest) -> StatsResponse: ...


class Remote:
    """The data directory's server does the work."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url
        self.place = f"the server at {url}"
        self.batch = SERVER_BATCH

    async def search(self, request: SearchRequest) -> SearchResponse:
        """Ask the server."""
        return await self._tool("rag_context_search", _json(request), SearchResponse)

    async def health(self) -> HealthResponse:
        """Ask the server how it is."""
        return await self._tool("rag_context_health", b"{}", HealthResponse)

    async def stats(self, request: StatsRequest) -> StatsResponse:
        """Ask the server for its statistics."""
        return await self._tool("rag_context_stats", _json(request), StatsResponse)

    async def bulk(self, lines: Sequence[BulkLine], on_receipt: OnReceipt) -> None:
        """Send the documents in one request; receipts count as they arrive, also if the rest never does."""
        body = b"".join(_json(line) + b"\n" for line in lines)
        headers = {"Content-Type": "application/x-ndjson"}
        received = 0
        try:
            async with self._client.stream(
                "POST", "/bulk", content=body, headers=headers, timeout=_BULK_TIMEOUT
            ) as reply:
                if not reply.is_success:
                    await reply.aread()
                    raise self._refused(reply)
                async for text in reply.aiter_lines():
                    receipt = self._parsed(text.encode(), BulkReceipt)
                    on_receipt(receipt.model_copy(update={"source": receipt.source or lines[received].source}))
                    received += 1
        except httpx2.HTTPError as error:
            raise self._gone() from error
        if received < len(lines):
            raise self._gone()

    async def _tool(self, name: str, body: bytes, model: type[Response]) -> Response:
        try:
            reply = await self._client.post(
                f"/tools/{name}", content=body, headers={"Content-Type": "application/json"}
            )
        except httpx2.HTTPError as error:
            raise self._gone() from error
        if not reply.is_success:
            raise self._refused(reply)
        return self._parsed(reply.content, model)

    def _parsed(self, body: bytes, model: type[Response]) -> Response:
        try:
            return model.model_validate_json(body)
        except ValueError as error:
            raise BackendDataError(
                _COMPONENT, f"The server at {self._url} answered something else than expected: is it another version?"
            ) from error

    def _gone(self) -> BackendUnavailableError:
        return BackendUnavailableError(_COMPONENT, f"The server at {self._url} went away.")

    def _refused(self, reply: httpx2.Response) -> RagContextError:
        sentence = _sentence(reply)
        if reply.status_code in _NO_ENTRY:
            return ConfigurationError(
                f"The server at {self._url} refused: {sentence}. Set RAG_CONTEXT_API_KEY to a key it knows."
            )
        if reply.status_code in _BUSY:
            return BackendUnavailableError(_COMPONENT, f"The server at {self._url} could not: {sentence}. Try again.")
        if reply.status_code < 500:
            return InvalidInputError(sentence)
        return BackendError(_COMPONENT, f"The server at {self._url} failed: {sentence}.")


@asynccontextmanager
async def open_connection(loaded: Loaded) -> AsyncIterator[Connection]:
    """The running server of the data directory, or the directory itself.

    Raises:
        ConfigurationError: The directory cannot be opened with these settings.
    """
    settings = loaded.settings
    async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client:
        url = await find_server(client, settings.data_dir)
        if url is not None:
            client.base_url = httpx2.URL(url)
            client.headers.update(key_header(settings))
            yield Remote(client, url)
            return
    # A command that leaves the work to a server starts faster without the model's and the stores' libraries.
    from rag_context.cli.in_process import open_in_process  # noqa: PLC0415

    async with open_in_process(loaded) as connection:
        yield connection


async def find_server(client: httpx2.AsyncClient, data_dir: Path) -> str | None:
    """The address of the server that runs on a data directory; None where there is none.

    The client must not carry a key yet: something else may listen there by now.
    """
    announcement = read_announcement(data_dir)
    if announcement is None:
        return None
    try:
        reply = await client.get(f"{announcement.url}/live", timeout=_FIND_TIMEOUT)
        body = reply.json()
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError):
        return None
    is_ours = isinstance(body, dict) and body.get("instance") == announcement.instance
    return announcement.url if is_ours else None


def key_header(settings: Settings) -> dict[str, str]:
    """The header by which a server of ours knows this command line; none where no key is set."""
    key = settings.server.api_key
    return {"Authorization": f"Bearer {key.get_secret_value()}"} if key is not None else {}


def _json(model: SearchRequest | StatsRequest | BulkLine) -> bytes:
    return model.model_dump_json(by_alias=True, exclude_none=True).encode()


def _sentence(reply: httpx2.Response) -> str:
    """The server's own words, without the full stop."""
    try:
        body = reply.json()
    except ValueError:
        body = None
    text = body.get("error") if isinstance(body, dict) else None
    return (text if isinstance(text, str) else f"HTTP {reply.status_code}").rstrip(".")
