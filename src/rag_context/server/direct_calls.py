"""The calls of a client, performed in this process: with the handlers and checks of a server, and without HTTP."""

from urllib.parse import parse_qsl, unquote

from starlette.types import Message

from rag_context.api import handlers, index, parsing, wire
from rag_context.client.batch import Batch
from rag_context.client.call import Answer, Call
from rag_context.client.errors import ClientError
from rag_context.client.replies import failed
from rag_context.errors import FieldError
from rag_context.logs import REQUEST_ID
from rag_context.memory.service import Service
from rag_context.server import bulk, collection_routes, failures, requests, tools
from rag_context.settings import Settings

_TOOLS, _VERSIONS = "/tools/", "/bulk/versions"


class DirectCalls:
    def __init__(self, service: Service, settings: Settings) -> None:
        vocabulary = wire.Vocabulary.extended(settings.vocabulary.content_types, settings.vocabulary.categories)
        self._service = service
        self._tools = tools.build_tools(service, vocabulary)
        self._line = index.BulkLine.with_vocabulary(vocabulary)
        self._concurrency = settings.indexing.concurrency
        self._collections = (
            None
            if service.collections is None
            else collection_routes.CollectionHandlers(
                service.collections, service.handlers(), settings.server.max_collection_body_bytes
            )
        )

    async def send(self, call: Call[Answer], request_id: str) -> Answer:
        token = REQUEST_ID.set(request_id)
        try:
            response = await self._perform(call, request_id)
        except Exception as error:
            raise _client_error(error, request_id) from error
        finally:
            REQUEST_ID.reset(token)  # the caller's own task goes on
        if call.answer is not None and isinstance(response, call.answer):
            return response
        return call.read(response.to_json())

    async def send_batch(self, batch: Batch, request_id: str) -> None:
        """Index the documents that have no receipt yet. Raises: ClientError."""
        content = batch.begin()
        run = bulk.BulkRun(
            service=self._service,
            model=self._line,
            line_bytes=len(content) + 1,
            concurrency=self._concurrency,
            request_id=request_id,
        )

        async def receive() -> Message:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Message) -> None:
            batch.take(message.get("body", b""))

        token = REQUEST_ID.set(request_id)
        try:
            await run.run(receive, send)
        finally:
            REQUEST_ID.reset(token)

    async def aclose(self) -> None:
        """Nothing is open: who opened the service closes it."""

    async def _perform(self, call: Call[Answer], request_id: str) -> wire.WireResponse:
        context = handlers.CallContext(request_id)
        path, _, query = call.path.partition("?")
        if path.startswith(_TOOLS):
            name = unquote(path.removeprefix(_TOOLS))
            tool = self._tools.get(name)
            if tool is None:
                raise requests.RequestRejectedError(404, f"Tool {name} not found")
            return await tool.run(parsing.read_json(tool.request, call.body or b"{}"), context)
        if path == _VERSIONS:
            return await self._service.missing(parsing.read_json(index.VersionsRequest, call.body or b"{}"))
        if self._collections is None:
            raise requests.RequestRejectedError(404, "Not found")
        route, names = collection_routes.matched(call.method, path.encode())
        fields = collection_routes.read_query(route, names, dict(parse_qsl(query, keep_blank_values=True)))
        return await self._collections.perform(route, names, fields, call.body, context)


def _client_error(error: Exception, request_id: str) -> ClientError:
    failure = failures.failure_of(error, request_id)
    details = failure.body.details if isinstance(failure.body, parsing.ErrorResponse) else None
    return failed(
        failure.status,
        request_id,
        message=failure.body.error,
        code=failure.body.code,
        details=[FieldError(detail.field, detail.message) for detail in details or ()],
        retry_after_s=failure.retry_after_s,
    )
