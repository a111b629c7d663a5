"""The client for threads, and for programs without an event loop: that for coroutines, over HTTP that blocks.

No coroutine of `AsyncClient` waits by itself for anything but its transport and the pauses between tries. Where both
block, each runs to its end in one step, so that no event loop is needed and every method is declared once.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import httpx2

from rag_context.api.index import BulkReceipt
from rag_context.client import address, async_http, batch, repeats
from rag_context.client.async_client import TIMEOUT_S, AsyncClient
from rag_context.client.async_collections import AsyncCollections

Answer = TypeVar("Answer")
Given = ParamSpec("Given")


def _ended(work: Coroutine[Any, Any, Answer]) -> Answer:
    """What a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        answer: Answer = ended.value
        return answer
    work.close()
    raise AssertionError("a call of the blocking client waited")


def _one_by_one(items: AsyncIterator[Answer]) -> Iterator[Answer]:
    async def next_item() -> Answer:
        return await anext(items)

    try:
        while True:
            try:
                item = _ended(next_item())
            except StopAsyncIteration:
                return
            yield item
    finally:
        if isinstance(items, AsyncGenerator):
            _ended(_close(items))


async def _close(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


def _method(
    method: Callable[Concatenate[Any, Given], Coroutine[Any, Any, Answer]],
) -> Callable[Concatenate[Any, Given], Answer]:
    @wraps(method)
    def run(self: Any, /, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        return _ended(method(self._awaited, *args, **kwargs))

    return run


def _stream(
    method: Callable[Concatenate[Any, Given], AsyncIterator[Answer]],
) -> Callable[Concatenate[Any, Given], Iterator[Answer]]:
    @wraps(method)
    def run(self: Any, /, *args: Given.args, **kwargs: Given.kwargs) -> Iterator[Answer]:
        return _one_by_one(method(self._awaited, *args, **kwargs))

    return run


class _Unawaited(AsyncClient):
    """A client of whose coroutines none waits."""

    async def _pause(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  (no event loop runs here)


class Collections:
    def __init__(self, collections: AsyncCollections) -> None:
        self._awaited = collections

    def on(self, connection: str) -> "Collections":
        return Collections(self._awaited.on(connection))

    list = _method(AsyncCollections.list)
    get = _method(AsyncCollections.get)
    create = _method(AsyncCollections.create)
    drop = _method(AsyncCollections.drop)
    replace_metadata = _method(AsyncCollections.replace_metadata)
    merge_metadata = _method(AsyncCollections.merge_metadata)
    add = _method(AsyncCollections.add)
    documents = _method(AsyncCollections.documents)
    delete = _method(AsyncCollections.delete)
    delete_where = _method(AsyncCollections.delete_where)
    replace_document_metadata = _method(AsyncCollections.replace_document_metadata)
    merge_document_metadata = _method(AsyncCollections.merge_document_metadata)
    empty = _method(AsyncCollections.empty)
    values = _method(AsyncCollections.values)
    query = _method(AsyncCollections.query)
    providers = _method(AsyncCollections.providers)
    provider = _method(AsyncCollections.provider)
    test = _method(AsyncCollections.test)


class Client:
    """The memory of a server, as `AsyncClient` without coroutines.

    Threads may share one, and a forked process goes on with connections of its own. Arguments, and what is raised, are
    those of `AsyncClient`.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        data_dir: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        retries: repeats.Retries = repeats.Retries(),  # noqa: B008  (frozen)
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        http = async_http.AsyncHttp(address.address_of(base_url, api_key, data_dir), timeout_s, BlockingTransport)
        self._awaited = _Unawaited(transport=http, retries=retries, clock=clock)
        self.collections = Collections(self._awaited.collections)
        """Collections and their providers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def bulk(self, documents: batch.Documents, *, request_id: str | None = None) -> Iterator[BulkReceipt]:
        """Keep many documents; a receipt for each, in their order, as soon as its batch is done.

        Documents are read no further ahead than one batch. One that is wrong gets a receipt that says so.
        """
        return _one_by_one(self._awaited.bulk(documents, request_id=request_id))

    close = _method(AsyncClient.close)
    search = _method(AsyncClient.search)
    search_fast = _method(AsyncClient.search_fast)
    index = _method(AsyncClient.index)
    remember = _method(AsyncClient.remember)
    recall = _method(AsyncClient.recall)
    get = _method(AsyncClient.get)
    list = _method(AsyncClient.list)
    list_all = _stream(AsyncClient.list_all)
    similar = _method(AsyncClient.similar)
    delete = _method(AsyncClient.delete)
    correct = _method(AsyncClient.correct)
    history = _method(AsyncClient.history)
    log = _method(AsyncClient.log)
    undo = _method(AsyncClient.undo)
    forget = _method(AsyncClient.forget)
    reindex = _method(AsyncClient.reindex)
    health = _method(AsyncClient.health)
    stats = _method(AsyncClient.stats)
    call = _method(AsyncClient.call)


class BlockingTransport(httpx2.AsyncBaseTransport):
    """The transport of `httpx2.Client`, whose calls may come from several threads."""

    def __init__(self) -> None:
        self._transport = httpx2.HTTPTransport(trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = self._transport.handle_request(request)
        stream = _Body(cast("httpx2.SyncByteStream", response.stream))
        return httpx2.Response(
            response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )

    async def aclose(self) -> None:
        self._transport.close()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts: Iterator[bytes] = iter(self._stream)
        for part in parts:
            yield part

    async def aclose(self) -> None:
        self._stream.close()
