"""Documents as resources: `rag-context://documents/{id}`."""

from urllib.parse import quote, unquote

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from rag_context.api.get import GetRequest
from rag_context.api.listing import ListedDocument, ListRequest
from rag_context.api.reading import read_fields
from rag_context.domain.documents import CODE, DOCUMENTATION
from rag_context.errors import InvalidInputError, NotFoundError
from rag_context.server.registry import Service

PREFIX = "rag-context://documents/"
TEMPLATE = types.ResourceTemplate(
    name="document",
    title="Document",
    uri_template=f"{PREFIX}{{id}}",
    description="A document of the shared memory by the documentId that searches and lists give.",
    mime_type="text/plain",
)
PAGE = 50
_NOT_FOUND_BEFORE_2026 = -32002
_MIME = {DOCUMENTATION: "text/markdown", CODE: "text/plain"}


async def documents(service: Service, cursor: str | None) -> types.ListResourcesResult:
    """A page of the newest documents.

    Raises:
        MCPError: The cursor is none of ours.
        BackendError: The memory could not be asked.
    """
    try:
        page = await service.listing(read_fields(ListRequest, {"limit": PAGE, "cursor": cursor}))
    except InvalidInputError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
    return types.ListResourcesResult(
        resources=[_resource(document) for document in page.documents], next_cursor=page.next_cursor
    )


async def document(service: Service, uri: str, protocol_version: str) -> types.ReadResourceResult:
    """One document's text.

    Raises:
        MCPError: There is no such resource.
        BackendError: The memory could not be asked.
    """
    missing = types.INVALID_PARAMS if protocol_version in MODERN_PROTOCOL_VERSIONS else _NOT_FOUND_BEFORE_2026
    not_found = MCPError(missing, f"Resource not found: {uri[:512]}", {"uri": uri[:512]})
    if not uri.startswith(PREFIX):
        raise not_found
    try:
        request = read_fields(GetRequest, {"documentId": unquote(uri.removeprefix(PREFIX), errors="strict")})
        found = await service.get(request)
    except (InvalidInputError, NotFoundError, UnicodeDecodeError):
        raise not_found from None
    contents = types.TextResourceContents(uri=uri, mime_type=_mime(found.content_type), text=found.content)
    return types.ReadResourceResult(contents=[contents])


def _resource(listed: ListedDocument) -> types.Resource:
    return types.Resource(
        uri=PREFIX + quote(listed.document_id, safe=""),
        name=listed.title or listed.source,
        description=f"{listed.content_type} from {listed.source}, session {listed.session_id}",
        mime_type=_mime(listed.content_type),
        annotations=types.Annotations(last_modified=listed.timestamp.isoformat()),
    )


def _mime(content_type: str) -> str:
    return _MIME.get(content_type, "text/plain")
