"""What does the operations of project documents."""

from typing import TypeVar

from rag_context.api.failure import ErrorCode
from rag_context.api.operations import projects as operations
from rag_context.api.wire import WireRequest, WireResponse
from rag_context.errors import BackendError, BackendUnavailableError
from rag_context.server.failures import component_sentence, retry_after
from rag_context.server.messages import RequestRejectedError
from rag_context.server.registry import Answer, Call, Work, WorkByName, does
from rag_context.service.projects import ProjectService

Request = TypeVar("Request", bound=WireRequest)


def project_work(projects: ProjectService) -> WorkByName:
    """What does the operations of project documents."""
    return dict(
        (
            does(
                operations.ACTIVATE_PROJECT,
                lambda request, call: projects.activate(
                    request, call.on_progress, caller=call.caller, may_write=call.may_write
                ),
            ),
            does(
                operations.RAG_QUERY,
                lambda request, call: projects.query(request, caller=call.caller, request_id=call.request_id),
            ),
            does(
                operations.SEMANTIC_SEARCH,
                lambda request, call: projects.search(request, caller=call.caller, request_id=call.request_id),
            ),
            does(operations.READ_DOCUMENT, lambda request, call: projects.read(request, caller=call.caller)),
            does(operations.INDEX_DOCUMENT, lambda request, call: projects.index_document(request, caller=call.caller)),
            does(operations.LIST_DOC_TYPES, lambda request, call: projects.list_doc_types(request, caller=call.caller)),
            does(
                operations.UPDATE_PROMOTION_LEVEL,
                lambda request, call: projects.update_promotion_level(request, caller=call.caller),
            ),
            does(
                operations.DELETE_DOCUMENTS,
                lambda request, call: projects.delete_documents(request, caller=call.caller),
            ),
            does(operations.LIST_PROJECTS, lambda _request, _call: projects.list_projects()),
            does(
                operations.SEARCH_EXTERNAL_DOCS,
                lambda request, call: projects.search_external(request, caller=call.caller, request_id=call.request_id),
            ),
            does(
                operations.RAG_QUERY_EXTERNAL,
                lambda request, call: projects.query_external(request, caller=call.caller, request_id=call.request_id),
            ),
        )
    )


def told_of_projects(work: Work[Request]) -> Work[Request]:
    """The same, with failures of backends told in the codes of these tools."""

    async def run(request: Request, call: Call) -> WireResponse | Answer:
        try:
            return await work(request, call)
        except BackendError as error:
            raise _rejection(error) from error

    return run


def _rejection(error: BackendError) -> RequestRejectedError:
    code = ErrorCode.EMBEDDING_SERVICE_ERROR if error.component.startswith("embed") else ErrorCode.DATABASE_ERROR
    wait = error.retry_after_s if isinstance(error, BackendUnavailableError) else None
    return RequestRejectedError(503, code, component_sentence(error.component), retry_after=retry_after(wait))
