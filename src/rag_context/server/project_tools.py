"""The tools of project documents: a team's knowledge base of Markdown files, per project and branch."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from rag_context.api.failure import ErrorCode
from rag_context.api.project_tenants import (
    ActivateProjectRequest,
    ActivateProjectResponse,
    DeleteDocumentsRequest,
    DeleteDocumentsResponse,
    ListProjectsRequest,
    ListProjectsResponse,
)
from rag_context.api.projects import (
    IndexDocumentRequest,
    IndexDocumentResponse,
    ListDocTypesRequest,
    ListDocTypesResponse,
    RagQueryExternalRequest,
    RagQueryExternalResponse,
    RagQueryRequest,
    RagQueryResponse,
    ReadDocumentRequest,
    ReadDocumentResponse,
    SearchExternalDocsRequest,
    SearchExternalDocsResponse,
    SemanticSearchRequest,
    SemanticSearchResponse,
    UpdatePromotionLevelRequest,
    UpdatePromotionLevelResponse,
)
from rag_context.api.wire import WireRequest, WireResponse
from rag_context.errors import BackendError, BackendUnavailableError
from rag_context.server.failures import component_sentence, retry_after
from rag_context.server.messages import RefusalError
from rag_context.server.options import Access
from rag_context.server.registry import Answer, Call, Tool, Toolset
from rag_context.service.projects import ProjectService

Request = TypeVar("Request", bound=WireRequest)

_WHOSE = "Works on the project that you activated, unless project names another."


def build_project_tools(projects: ProjectService) -> list[Tool[Any]]:
    """The tools of project documents, most needed first."""
    return [
        _activate_tool(projects),
        _query_tool(projects),
        _search_tool(projects),
        _read_tool(projects),
        _index_tool(projects),
        _types_tool(projects),
        _promote_tool(projects),
        _delete_tool(projects),
        _list_tool(projects),
        _search_external_tool(projects),
        _query_external_tool(projects),
    ]


def _running(
    work: Callable[[Request, Call], Awaitable[WireResponse]],
) -> Callable[[Request, Call], Awaitable[Answer]]:
    """What a tool runs: the work, with failures of backends told in the codes of these tools."""

    async def run(request: Request, call: Call) -> Answer:
        try:
            return Answer(await work(request, call))
        except BackendError as error:
            raise _refusal(error) from error

    return run


def _refusal(error: BackendError) -> RefusalError:
    code = ErrorCode.EMBEDDING_SERVICE_ERROR if error.component.startswith("embed") else ErrorCode.DATABASE_ERROR
    wait = error.retry_after_s if isinstance(error, BackendUnavailableError) else None
    return RefusalError(503, code, component_sentence(error.component), retry_after=retry_after(wait))


def _activate_tool(projects: ProjectService) -> Tool[ActivateProjectRequest]:
    return Tool(
        name="activate_project",
        title="Work on a project",
        description=(
            "Activate a project: read its configuration, bring the index up to date with its files, and follow them "
            "from now on. Call it once before the other project tools; they then work on this project. config_path is "
            ".rag-context/config.json of the repository, on the machine that this server runs on. Pass the returned "
            "activation to the other tools if your client has no session. Reports the number of documents of each "
            "type, and errors of single files."
        ),
        request=ActivateProjectRequest,
        response=ActivateProjectResponse,
        run=_running(
            lambda request, call: projects.activate(
                request, call.on_progress, caller=call.caller, may_write=call.may_write
            )
        ),
        access=Access.READ,
        read_only=False,
        needs_project=True,
        toolset=Toolset.PROJECTS,
        example={"config_path": "/home/me/my-app/.rag-context/config.json"},
    )


def _query_tool(projects: ProjectService) -> Tool[RagQueryRequest]:
    return Tool(
        name="rag_query",
        title="Ask the project's documents",
        description=(
            "Get the context that answers a question from the project's documents: the critical documents first, "
            "then documents by relevance, then those that they link to, each under its own heading with its path. "
            "Answer from it and name the paths. max_tokens limits it: a document that does not fit is included as an "
            "excerpt with its line numbers, and read_document returns the rest. answer is filled only if a chat "
            f"model is configured. For a list without texts use semantic_search. {_WHOSE}"
        ),
        request=RagQueryRequest,
        response=RagQueryResponse,
        run=_running(lambda request, call: projects.query(request, caller=call.caller, request_id=call.request_id)),
        access=Access.READ,
        read_only=True,
        needs_project=True,
        toolset=Toolset.PROJECTS,
        example={"query": "Why do database connections run out?", "max_sources": 3, "max_tokens": 4000},
    )


def _search_tool(projects: ProjectService) -> Tool[SemanticSearchRequest]:
    return Tool(
        name="semantic_search",
        title="Find project documents",
        description=(
            "List the project's documents that are relevant to a question, best first, without their texts: path, "
            "title, summary, type, date, promotion level, a relevance from 0 to 1, and the matching passage with its "
            f"heading and lines. Use it for an overview; use rag_query for the texts. {_WHOSE}"
        ),
        request=SemanticSearchRequest,
        response=SemanticSearchResponse,
        run=_running(lambda request, call: projects.search(request, caller=call.caller, request_id=call.request_id)),
        access=Access.READ,
        read_only=True,
        needs_project=True,
        toolset=Toolset.PROJECTS,
        example={"query": "connection pool", "doc_types": ["problem"], "limit": 5},
    )


def _read_tool(projects: ProjectService) -> Tool[ReadDocumentRequest]:
    return Tool(
        name="read_document",
        title="Read a project document",
        description=(
            "Read one document of the project, or some of its lines: a document that rag_query returned as an "
            "excerpt, or one that a search result names by path and lines. A reply has at most some 40 000 "
            f"characters; if truncated is true, read on from end_line + 1. {_WHOSE}"
        ),
        request=ReadDocumentRequest,
        response=ReadDocumentResponse,
        run=_running(lambda request, call: projects.read(request, caller=call.caller)),
        access=Access.READ,
        read_only=True,
        names_one=True,
        needs_project=True,
        toolset=Toolset.PROJECTS,
        example={"path": "problems/pool-exhaustion.md", "start_line": 1, "end_line": 80},
    )


def _index_tool(projects: ProjectService) -> Tool[IndexDocumentRequest]:
    return Tool(
        name="index_document",
        title="Index a project document",
        description=(
            "Index one file of the project now, and report errors in its front matter. Files are followed anyway: "
            "call it only to be sure that the next question finds a file just written. path is relative to the docs "
            f"folder or the repository. {_WHOSE}"
        ),
        request=IndexDocumentRequest,
        response=IndexDocumentResponse,
        run=_running(lambda request, call: projects.index_document(request, caller=call.caller)),
        access=Access.WRITE,
        read_only=False,
        names_one=True,
        needs_project=True,
        toolset=Toolset.PROJECTS,
        example={"path": "problems/pool-exhaustion.md"},
    )


def _types_tool(projects: ProjectService) -> Tool[ListDocTypesRequest]:
    return Tool(
        name="list_doc_types",
        title="List document types",
        description=(
            "List the project's doc types: name, purpose, folder, the JSON Schema of the front matter, and the "
            f"number of documents. Read it before you write a document, or restrict a question by doc_types. {_WHOSE}"
        ),
        request=ListDocTypesRequest,
        response=ListDocTypesResponse,
        run=_running(lambda request, call: projects.list_doc_types(request, caller=call.caller)),
        access=Access.READ,
        read_only=True,
        needs_project=True,
        toolset=Toolset.PROJECTS,
        example={},
    )


def _promote_tool(projects: ProjectService) -> Tool[UpdatePromotionLevelRequest]:
    return Tool(
        name="update_promotion_level",
        title="Promote a document",
        description=(
            "Set the promotion level of a document: standard, important (ranked a little higher) or critical (at the "
            "beginning of every answer). Writes promotion_level into the file's front matter and leaves the rest of "
            f"the file unchanged; the index follows at once. Call it only if the user asks for it. {_WHOSE}"
        ),
        request=UpdatePromotionLevelRequest,
        response=UpdatePromotionLevelResponse,
        run=_running(lambda request, call: projects.update_promotion_level(request, caller=call.caller)),
        access=Access.WRITE,
        read_only=False,
        destructive=True,
        names_one=True,
        needs_project=True,
        toolset=Toolset.PROJECTS,
        example={"document_path": "problems/pool-exhaustion.md", "promotion_level": "critical"},
    )


def _delete_tool(projects: ProjectService) -> Tool[DeleteDocumentsRequest]:
    return Tool(
        name="delete_documents",
        title="Forget a project",
        description=(
            "Remove all documents of a project from the index, or of one of its branches or repositories. The files "
            "stay, and are no longer followed; activate_project indexes them again. Call it with dry_run first and "
            "check the number of documents."
        ),
        request=DeleteDocumentsRequest,
        response=DeleteDocumentsResponse,
        run=_running(lambda request, call: projects.delete_documents(request, caller=call.caller)),
        access=Access.WRITE,
        read_only=False,
        names_one=True,
        destructive=True,
        needs_project=True,
        toolset=Toolset.PROJECTS,
        example={"project_name": "my-app", "branch_name": "old-branch", "dry_run": True},
    )


def _list_tool(projects: ProjectService) -> Tool[ListProjectsRequest]:
    return Tool(
        name="list_projects",
        title="List projects",
        description=(
            "List the stored projects: name, branch and path hash, number of documents, last use, path of the files "
            "and whether they still exist. delete_documents removes one."
        ),
        request=ListProjectsRequest,
        response=ListProjectsResponse,
        run=_running(lambda _request, _call: projects.list_projects()),
        access=Access.READ,
        read_only=True,
        toolset=Toolset.PROJECTS,
        example={},
    )


def _search_external_tool(projects: ProjectService) -> Tool[SearchExternalDocsRequest]:
    return Tool(
        name="search_external_docs",
        title="Find external documents",
        description=(
            "The same as semantic_search for the external documents in the project's configuration, which are "
            f"separate from the project's own and never written to. {_WHOSE}"
        ),
        request=SearchExternalDocsRequest,
        response=SearchExternalDocsResponse,
        run=_running(
            lambda request, call: projects.search_external(request, caller=call.caller, request_id=call.request_id)
        ),
        access=Access.READ,
        read_only=True,
        needs_project=True,
        toolset=Toolset.PROJECTS,
        example={"query": "connection string options", "limit": 5},
    )


def _query_external_tool(projects: ProjectService) -> Tool[RagQueryExternalRequest]:
    return Tool(
        name="rag_query_external",
        title="Ask external documents",
        description=(
            "The same as rag_query for the external documents in the project's configuration: whole documents by "
            f"relevance and those that they link to. {_WHOSE}"
        ),
        request=RagQueryExternalRequest,
        response=RagQueryExternalResponse,
        run=_running(
            lambda request, call: projects.query_external(request, caller=call.caller, request_id=call.request_id)
        ),
        access=Access.READ,
        read_only=True,
        needs_project=True,
        toolset=Toolset.PROJECTS,
        example={"query": "connection string options", "max_sources": 3},
    )
