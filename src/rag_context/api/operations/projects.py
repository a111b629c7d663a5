"""The operations of project documents: a team's Markdown files, per project and branch."""

from functools import partial

from rag_context.api import operations, project_queries, toolsets
from rag_context.api import projects as wire

_BY_FOLDER = "a command works on the project of its folder, or on the one that it names"
_WHOSE = "Works on the project that you activated, unless project names another."

_reading = partial(operations.Operation, needs_project=True, toolset=toolsets.Toolset.PROJECTS)
_asking = partial(_reading, reach=operations.Reach.PROJECT)
_changing = partial(_reading, access=operations.Access.WRITE, read_only=False)

ACTIVATE_PROJECT = _reading(
    name="activate_project",
    title="Work on a project",
    description=(
        "Activate a project: read its configuration, bring the index up to date with its files, and follow them "
        "from now on. Call it once before the other project tools; they then work on this project. config_path "
        "is .rag-context/config.json of the repository, on the machine that this server runs on. Pass the "
        "returned activation to the other tools if your client has no session. Reports the number of documents "
        "of each type, and errors of single files."
    ),
    request=wire.ActivateProjectRequest,
    response=wire.ActivateProjectResponse,
    read_only=False,
    command="project activate",
    omitted={"cli.config_path": "the argument PATH may be a folder of the project too"},
    example={"config_path": "/home/me/my-app/.rag-context/config.json"},
)

RAG_QUERY = _asking(
    name="rag_query",
    title="Ask the project's documents",
    description=(
        "Get the context that answers a question from the project's documents: the critical documents first, "
        "then documents by relevance, then those that they link to, each under its own heading with its path. "
        "Answer from it and name the paths. max_tokens limits it: a document that does not fit is included as an "
        "excerpt with its line numbers, and read_document returns the rest. answer is filled only if a chat "
        f"model is configured. For a list without texts use semantic_search. {_WHOSE}"
    ),
    request=project_queries.RagQueryRequest,
    response=project_queries.RagQueryResponse,
    command="project query",
    omitted={"cli.activation": _BY_FOLDER},
    example={"query": "Why do database connections run out?", "max_sources": 3, "max_tokens": 4000},
)

SEMANTIC_SEARCH = _asking(
    name="semantic_search",
    title="Find project documents",
    description=(
        "List the project's documents that are relevant to a question, best first, without their texts: path, "
        "title, summary, type, date, promotion level, a relevance from 0 to 1, and the matching passage with its "
        f"heading and lines. Use it for an overview; use rag_query for the texts. {_WHOSE}"
    ),
    request=project_queries.SemanticSearchRequest,
    response=project_queries.SemanticSearchResponse,
    command="project search",
    omitted={"cli.activation": _BY_FOLDER},
    example={"query": "connection pool", "doc_types": ["problem"], "limit": 5},
)

READ_DOCUMENT = _asking(
    name="read_document",
    title="Read a project document",
    description=(
        "Read one document of the project, or some of its lines: a document that rag_query returned as an "
        "excerpt, or one that a search result names by path and lines. A reply has at most some 40 000 "
        f"characters; if truncated is true, read on from end_line + 1. {_WHOSE}"
    ),
    request=wire.ReadDocumentRequest,
    response=wire.ReadDocumentResponse,
    names_one=True,
    command="project read",
    omitted={"cli.activation": _BY_FOLDER},
    example={"path": "problems/pool-exhaustion.md", "start_line": 1, "end_line": 80},
)

INDEX_DOCUMENT = _changing(
    name="index_document",
    title="Index a project document",
    description=(
        "Index one file of the project now, and report errors in its front matter. Files are followed anyway: "
        "call it only to be sure that the next question finds a file just written. path is relative to the docs "
        f"folder or the repository. {_WHOSE}"
    ),
    request=wire.IndexDocumentRequest,
    response=wire.IndexDocumentResponse,
    names_one=True,
    omitted={"cli": "`project activate` indexes what changed"},
    example={"path": "problems/pool-exhaustion.md"},
)

LIST_DOC_TYPES = _asking(
    name="list_doc_types",
    title="List document types",
    description=(
        "List the project's doc types: name, purpose, folder, the JSON Schema of the front matter, and the "
        f"number of documents. Read it before you write a document, or restrict a question by doc_types. {_WHOSE}"
    ),
    request=wire.ListDocTypesRequest,
    response=wire.ListDocTypesResponse,
    command="project status",
    omitted={"cli.activation": _BY_FOLDER},
    example={},
)

UPDATE_PROMOTION_LEVEL = _changing(
    name="update_promotion_level",
    title="Promote a document",
    description=(
        "Set the promotion level of a document: standard, important (ranked a little higher) or critical (at the"
        " beginning of every answer). Writes promotion_level into the file's front matter and leaves the rest of"
        f" the file unchanged; the index follows at once. Call it only if the user asks for it. {_WHOSE}"
    ),
    request=wire.UpdatePromotionLevelRequest,
    response=wire.UpdatePromotionLevelResponse,
    destructive=True,
    names_one=True,
    command="project promote",
    omitted={"cli.activation": _BY_FOLDER},
    example={"document_path": "problems/pool-exhaustion.md", "promotion_level": "critical"},
)

DELETE_DOCUMENTS = _changing(
    name="delete_documents",
    title="Forget a project",
    description=(
        "Remove all documents of a project from the index, or of one of its branches or repositories. The files "
        "stay, and are no longer followed; activate_project indexes them again. Call it with dry_run first and "
        "check the number of documents."
    ),
    request=wire.DeleteDocumentsRequest,
    response=wire.DeleteDocumentsResponse,
    destructive=True,
    names_one=True,
    command="project forget",
    omitted={"cli.activation": _BY_FOLDER},
    example={"project_name": "my-app", "branch_name": "old-branch", "dry_run": True},
)

LIST_PROJECTS = _asking(
    name="list_projects",
    title="List projects",
    description=(
        "List the stored projects: name, branch and path hash, number of documents, last use, path of the files "
        "and whether they still exist. delete_documents removes one."
    ),
    request=wire.ListProjectsRequest,
    response=wire.ListProjectsResponse,
    command="project list",
    example={},
    needs_project=False,
)

SEARCH_EXTERNAL_DOCS = _asking(
    name="search_external_docs",
    title="Find external documents",
    description=(
        "The same as semantic_search for the external documents in the project's configuration, which are "
        f"separate from the project's own and never written to. {_WHOSE}"
    ),
    request=project_queries.SearchExternalDocsRequest,
    response=project_queries.SearchExternalDocsResponse,
    omitted={"cli": "external documents are searched by agents; people have the files"},
    example={"query": "connection string options", "limit": 5},
)

RAG_QUERY_EXTERNAL = _asking(
    name="rag_query_external",
    title="Ask external documents",
    description=(
        "The same as rag_query for the external documents in the project's configuration: whole documents by "
        f"relevance and those that they link to. {_WHOSE}"
    ),
    request=project_queries.RagQueryExternalRequest,
    response=project_queries.RagQueryExternalResponse,
    omitted={"cli": "external documents are searched by agents; people have the files"},
    example={"query": "connection string options", "max_sources": 3},
)
