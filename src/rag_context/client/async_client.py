"""The client for coroutines."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from rag_context.api import changes, stored_documents
from rag_context.api.index import BulkReceipt, IndexResponse
from rag_context.api.maintenance import HealthResponse, ReindexResponse, StatsResponse, TimeRange
from rag_context.api.operations import Operation, Response, memory
from rag_context.api.search import DEFAULT_LIMIT, MAX_LIMIT, SearchResponse
from rag_context.api.verbs import Kind, kept, recalled, remembered
from rag_context.client import address, async_collections, async_http, parameters, repeats
from rag_context.client.batch import AsyncDocuments, Batch, async_each
from rag_context.client.call import BULK, Answer, Call, call_of, request_id_of, tool_call
from rag_context.domain.documents import Json

TIMEOUT_S = 30.0


class AsyncClient:
    """The memory of a server, or of this process. For one event loop.

    Args:
        base_url: the server's address; else the setting `client.url` (`RAG_CONTEXT_URL`), else the running server of
            the data directory, else the one at this machine's configured port.
        api_key: the key to send; else that of the settings.
        data_dir: the data directory of the server; takes the place of the setting `client.url`.
        timeout_s: how long to wait for an answer, and for the rest of it.
        retries: when a failed call is tried again.
        transport: how calls reach the memory, where not over HTTP; the arguments above are not used then.
        clock: monotonic seconds, for what `search_fast` remembers.

    Raises: ConfigurationError (the settings cannot be read, or address, key or time-out cannot be used).
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        data_dir: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        retries: repeats.Retries = repeats.Retries(),  # noqa: B008  (frozen)
        transport: async_http.AsyncTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport or async_http.AsyncHttp(address.address_of(base_url, api_key, data_dir), timeout_s)
        self._retries = retries
        self._fast = repeats.FastAnswers(clock)
        self._activation: str | None = None
        self.collections = async_collections.AsyncCollections(self._send)
        """Collections and their providers."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.aclose()

    async def search(
        self, query: str, *, request_id: str | None = None, **options: Unpack[parameters.SearchOptions]
    ) -> SearchResponse:
        """Ask for the passages that answer a question; a degraded server answers too, and says so."""
        return await self._run(memory.SEARCH, {"query": query, **options}, request_id)

    async def search_fast(
        self, query: str, game: str | None = None, agent: str | None = None, *, request_id: str | None = None
    ) -> SearchResponse:
        """Ask for at most 3 passages; an answer of level 1 is remembered for five minutes, or until a write."""
        answer = self._fast.get(query, game)
        if answer is None:
            writes = self._fast.writes  # before the search: what is written meanwhile may change its answer
            answer = await self.search(query, limit=repeats.FAST_LIMIT, game=game, agent=agent, request_id=request_id)
            self._fast.put(query, game, answer, writes)
        return answer

    async def index(
        self,
        content: str,
        *,
        content_type: str,
        session_id: str,
        source: str,
        request_id: str | None = None,
        **options: Unpack[parameters.IndexOptions],
    ) -> IndexResponse:
        """Keep a document. The same text again changes nothing."""
        fields = parameters.index_fields(content, content_type, session_id, source, options)
        return await self._run(memory.INDEX, fields, request_id)

    async def remember(
        self,
        text: str,
        *,
        kind: Kind = "decision",
        tags: Sequence[str] = (),
        workspace: str | None = None,
        request_id: str | None = None,
    ) -> BulkReceipt:
        """Keep the owner's own words. The same words again change nothing.

        Args:
            text: what to keep, so that it can be understood without its context.
            kind: what it is; an instruction is shown with all answers that it may apply to.
            tags: tags to filter by later.
            workspace: the tag of the project that it belongs to, `project:NAME-HASH`; None: it is general.
            request_id: see `search`.

        Raises: InvalidInputError (it cannot be kept).
        """
        batch = Batch(1)
        batch.add(remembered(text, kind, tags, workspace))
        await self._send_batch(batch, request_id_of(request_id))
        return kept(next(batch.receipts()))

    async def recall(
        self,
        query: str,
        *,
        workspace: str | None = None,
        request_id: str | None = None,
        **options: Unpack[parameters.SearchOptions],
    ) -> SearchResponse:
        """Ask for the passages of one project and the general ones; without `workspace` those of all projects."""
        if workspace is None:
            return await self.search(query, request_id=request_id, **options)
        wider: parameters.SearchOptions = {**options, "limit": MAX_LIMIT}
        narrower: parameters.SearchOptions = {**options, "tags": [*(options.get("tags") or ()), workspace]}
        everything = await self.search(query, request_id=request_id, **wider)
        own = await self.search(query, request_id=request_id, **narrower)
        return recalled(everything, own, workspace, options.get("limit", DEFAULT_LIMIT))

    async def bulk(self, documents: AsyncDocuments, *, request_id: str | None = None) -> AsyncIterator[BulkReceipt]:
        """Keep many documents; a receipt for each, in their order, as soon as its batch is done.

        Documents are read no further ahead than one batch. One that is wrong gets a receipt that says so.
        """
        used = request_id_of(request_id)
        async for batch in _batches(documents):
            await self._send_batch(batch, used)
            for receipt in batch.receipts():
                yield receipt

    async def get(self, document_id: str, **call: Unpack[parameters.TenantCall]) -> stored_documents.GetResponse:
        """All of one document. Raises: NotFoundError."""
        return await self._run(memory.GET, {"document_id": document_id, **call})

    async def list(
        self,
        *,
        limit: int = 20,
        cursor: str | None = None,
        facets: bool = False,
        request_id: str | None = None,
        **filters: Unpack[parameters.Filters],
    ) -> stored_documents.ListResponse:
        """One page of documents, newest first, and with `facets` how many have which value of a field.

        `cursor` is the `next_cursor` of the page before.
        """
        return await self._run(memory.LIST, {"limit": limit, "cursor": cursor, "facets": facets, **filters}, request_id)

    async def list_all(
        self, *, request_id: str | None = None, **filters: Unpack[parameters.Filters]
    ) -> AsyncIterator[stored_documents.ListedDocument]:
        """All documents, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self.list(limit=stored_documents.MAX_LISTED, cursor=cursor, request_id=request_id, **filters)
            for document in page.documents:
                yield document
            cursor = page.next_cursor
            if cursor is None:
                return

    async def similar(
        self, document_id: str, *, limit: int = 5, **call: Unpack[parameters.TenantCall]
    ) -> stored_documents.SimilarResponse:
        """The documents most like one. Raises: NotFoundError."""
        return await self._run(memory.SIMILAR, {"document_id": document_id, "limit": limit, **call})

    async def delete(
        self,
        *,
        document_id: str | None = None,
        source: str | None = None,
        session_id: str | None = None,
        dry_run: bool = False,
        confirm: bool = False,
        **call: Unpack[parameters.TenantCall],
    ) -> stored_documents.DeleteResponse:
        """Remove the documents that exactly one of the first three names, or say which would; many need `confirm`."""
        named = {"document_id": document_id, "source": source, "session_id": session_id}
        return await self._run(memory.DELETE, {**named, "dry_run": dry_run, "confirm": confirm, **call})

    async def correct(
        self,
        content: str,
        *,
        document_id: str | None = None,
        source: str | None = None,
        reason: str | None = None,
        tags: Sequence[str] | None = None,
        pinned: bool | None = None,
        agent: str | None = None,
        **call: Unpack[parameters.TenantCall],
    ) -> changes.CorrectResponse:
        """Store the right version of the document that one of the first two names; the wrong one is hidden."""
        named = {"document_id": document_id, "source": source, "reason": reason, "agent": agent}
        kept = {"tags": None if tags is None else list(tags), "pinned": pinned}
        return await self._run(memory.CORRECT, {"content": content, **named, **kept, **call})

    async def history(self, document_id: str, **call: Unpack[parameters.TenantCall]) -> changes.HistoryResponse:
        """The versions that corrections have made of a document, oldest first."""
        return await self._run(memory.HISTORY, {"document_id": document_id, **call})

    async def log(
        self, *, limit: int = changes.DEFAULT_ENTRIES, before: int | None = None, **call: Unpack[parameters.TenantCall]
    ) -> changes.LogResponse:
        """What was changed, newest first; the changes before one of them."""
        return await self._run(memory.LOG, {"limit": limit, "before": before, **call})

    async def undo(self, id: int, **call: Unpack[parameters.TenantCall]) -> changes.UndoResponse:  # noqa: A002
        """Undo a change of the log; the undoing can be undone too."""
        return await self._run(memory.UNDO, {"id": id, **call})

    async def forget(
        self,
        *,
        dry_run: bool = False,
        purge: bool = False,
        confirm: bool = False,
        clear_queries: bool = False,
        reason: str | None = None,
        request_id: str | None = None,
        **options: Unpack[parameters.ForgetOptions],
    ) -> changes.ForgetResponse:
        """Forget the documents that exactly one of the options names, or say which; `purge` removes them for good."""
        flags = {"dry_run": dry_run, "purge": purge, "confirm": confirm, "clear_queries": clear_queries}
        return await self._run(memory.FORGET, {**flags, "reason": reason, **options}, request_id)

    async def reindex(
        self, *, force: bool = False, status_only: bool = False, wait: bool = False, request_id: str | None = None
    ) -> ReindexResponse:
        """Re-embed the index in the background, or report the progress; `wait` answers when it is done.

        With `wait` the answer may take five minutes: give the client a `timeout_s` that is as long.
        """
        fields = {"force": force, "status_only": status_only, "wait": wait}
        return await self._run(memory.REINDEX, fields, request_id)

    async def health(self, *, request_id: str | None = None) -> HealthResponse:
        """How the system is."""
        return await self._run(memory.HEALTH, {}, request_id)

    async def stats(
        self,
        time_range: timedelta | TimeRange = "24h",
        *,
        include: Literal["recent"] | None = None,
        request_id: str | None = None,
    ) -> StatsResponse:
        """What the searches of a span add up to; a timedelta is rounded up to 1h, 24h or 7d, and else is 30d."""
        named = parameters.time_range_of(time_range) if isinstance(time_range, timedelta) else time_range
        return await self._run(memory.STATS, {"time_range": named, "include": include}, request_id)

    async def call(self, tool: str, /, *, request_id: str | None = None, **arguments: object) -> dict[str, Json]:
        """Run any tool by its name, with arguments and answer as they are on the wire.

        The project that `activate_project` activated last is this client's, also where others share its key.
        """
        arguments = dict(parameters.in_project(tool, arguments, self._activation))
        answer = await self._send(tool_call(tool, arguments), request_id)
        self._activation = parameters.activation_of(tool, answer) or self._activation
        return answer

    async def _run(
        self, operation: Operation[Any, Response], fields: Mapping[str, Any], request_id: str | None = None
    ) -> Response:
        stated = {name: value for name, value in fields.items() if name != "request_id"}
        return await self._send(call_of(operation, stated), fields.get("request_id", request_id))

    async def _send(self, call: Call[Answer], request_id: str | None) -> Answer:
        used = request_id_of(request_id)
        try:
            return await self._retries.call(lambda: self._transport.send(call, used), call.repeatable, self._pause)
        finally:  # also after a failure: the server may have done it all the same
            if call.writes:
                self._fast.clear()

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _send_batch(self, batch: Batch, request_id: str) -> None:
        try:
            await self._retries.call(
                lambda: self._transport.send_batch(batch, request_id), BULK.repeatable, self._pause
            )
        finally:
            self._fast.clear()


async def _batches(documents: AsyncDocuments) -> AsyncIterator[Batch]:
    """Documents in batches; the input is read no further than the batches that were taken."""
    batch = Batch(1)
    async for document in async_each(documents):
        batch.add(document)
        if batch.is_full:
            yield batch
            batch = Batch(batch.first + len(batch.sources))
    if batch.sources:
        yield batch
