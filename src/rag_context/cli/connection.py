"""Where a command's work is done: by the running server of the data directory, or else in this process.

A server is found through the file it keeps beside the index, and believed only when it answers with the
instance that the file names.
"""

import ssl
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import httpx2

from rag_context.api.delete import DeleteRequest
from rag_context.api.discovery import read_announcement
from rag_context.api.index import BulkLine, BulkReceipt
from rag_context.api.listing import MAX_LISTED, ListRequest, ListResponse
from rag_context.api.operations import Operation
from rag_context.api.operations.memory import DELETE, LIST
from rag_context.api.operations.operation import Request, Response
from rag_context.api.wire import VersionsRequest, VersionsResponse, WireRequest
from rag_context.errors import (
    BackendDataError,
    BackendError,
    BackendUnavailableError,
    ConfigurationError,
    InvalidInputError,
    RagContextError,
)
from rag_context.files.sending import OnReceipt, Target
from rag_context.settings import Loaded, Settings

_COMPONENT = "server"
_FIND_TIMEOUT = httpx2.Timeout(2.0)
_TIMEOUT = httpx2.Timeout(60.0, connect=5.0)
_BULK_TIMEOUT = httpx2.Timeout(300.0, connect=5.0)
_BUSY = (429, 503)
_NO_ENTRY = (401, 403)


class Connection(Target, Protocol):
    """The use cases of the command line. All raise `RagContextError` only."""

    @property
    def place(self) -> str:
        """Where the work is done, for people."""
        ...

    async def run(self, operation: Operation[Request, Response], request: Request) -> Response:
        """Run any operation."""
        ...


class Remote:
    """The data directory's server does the work."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url
        self.place = f"the server at {url}"

    async def run(self, operation: Operation[Request, Response], request: Request) -> Response:
        """Have the server run any operation."""
        return await self._ask(operation.path, _json(request), operation.response)

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
                    on_receipt(received, self._parsed(text.encode(), BulkReceipt))
                    received += 1
        except httpx2.HTTPError as error:
            raise self._gone() from error
        if received < len(lines):
            raise self._gone()

    async def missing(self, versions: Mapping[str, str]) -> Collection[str]:
        """Ask the server which of these versions it does not have."""
        body = _json(VersionsRequest(versions=dict(versions)))
        return (await self._ask("/bulk/versions", body, VersionsResponse)).missing

    async def remove(self, document_id: str) -> None:
        """Have the server delete a document."""
        await self.run(DELETE, DeleteRequest(document_id=document_id))

    async def sources(self, prefix: str) -> AsyncIterator[tuple[str, str]]:
        """Have the server list what came from below a prefix."""
        request: ListRequest | None = first_page(prefix)
        while request is not None:
            page = await self.run(LIST, request)
            for each in page.documents:
                yield each.source, each.document_id
            request = next_page(request, page)

    async def _ask(self, path: str, body: bytes, model: type[Response]) -> Response:
        try:
            reply = await self._client.post(path, content=body, headers={"Content-Type": "application/json"})
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
    # A server announces plain HTTP. Without a context of its own the client would read all authorities it could trust.
    nobody_trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    async with httpx2.AsyncClient(timeout=_TIMEOUT, trust_env=False, verify=nobody_trusted) as client:
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


def first_page(prefix: str) -> ListRequest:
    """Asks for the first documents whose source begins like this."""
    return ListRequest(source=f"{prefix}*", limit=MAX_LISTED)


def next_page(request: ListRequest, page: ListResponse) -> ListRequest | None:
    """Asks for those behind a page; None where it was the last one."""
    return request.model_copy(update={"cursor": page.next_cursor}) if page.next_cursor is not None else None


def _json(model: WireRequest) -> bytes:
    return model.model_dump_json(by_alias=True, exclude_none=True).encode()


def _sentence(reply: httpx2.Response) -> str:
    """The server's own words, without the full stop."""
    try:
        body = reply.json()
    except ValueError:
        body = None
    text = body.get("error") if isinstance(body, dict) else None
    return (text if isinstance(text, str) else f"HTTP {reply.status_code}").rstrip(".")
