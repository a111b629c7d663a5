"""The operations of the agents' memory."""

from functools import partial

from rag_context.api import changes, maintenance, stored_documents
from rag_context.api.index import IndexFilesRequest, IndexFilesResponse, IndexRequest, IndexResponse
from rag_context.api.maintenance import InjectionsRequest, InjectionsResponse
from rag_context.api.operations import Access, Operation, Reach, search
from rag_context.api.search import FetchRequest, FetchResponse, FindRequest, FindResponse
from rag_context.api.toolsets import Toolset

_changing = partial(Operation, access=Access.WRITE, read_only=False)
_on_documents = partial(Operation, reach=Reach.DOCUMENTS)
_changing_documents = partial(Operation, access=Access.WRITE, read_only=False, reach=Reach.DOCUMENTS)
_maintaining = partial(Operation, toolset=Toolset.OPERATIONS)
_repairing = partial(Operation, access=Access.WRITE, read_only=False, toolset=Toolset.OPERATIONS)
_AN_ID = "7c9e6679-7425-50de-944b-e07fc1f90ae7"
_ANOTHER_ID = "0f8fad5b-d9cb-569f-a165-70867728950e"

SEARCH = search.SEARCH

INDEX = _on_documents(
    access=Access.ADD,
    read_only=False,
    name="rag_context_index",
    title="Store context",
    description=(
        "Store a chat, decision, piece of code or document so that later searches find it. Code replaces the "
        "earlier version of the same source; documentation and a decision replace the earlier one with the same "
        "source and sessionId; a chat replaces nothing. Secrets are masked."
    ),
    request=IndexRequest,
    response=IndexResponse,
    may_conflict=True,
    destructive=True,
    is_large=True,
    omitted={"cli": "the command `index` reads files and streams, and sends them by /bulk"},
    method="index",
    example={
        "content": "We retry a failed payment three times, then tell the customer.",
        "contentType": "decision",
        "sessionId": "payments",
        "source": "docs/decisions/payment-retries.md",
        "metadata": {"category": "architecture", "tags": ["payments", "retries"]},
    },
)

CORRECT = _changing_documents(
    name="rag_context_correct",
    title="Correct context",
    description=(
        "Replace a document that is wrong or outdated: the new text is found from now on, the old one is hidden."
    ),
    request=changes.CorrectRequest,
    response=changes.CorrectResponse,
    may_conflict=True,
    names_one=True,
    idempotent=False,
    is_large=True,
    omitted={f"cli.{name}": "the page changes it" for name in ("tags", "pinned")},
    method="correct",
    example={
        "documentId": _AN_ID,
        "content": "We retry a failed payment five times, then tell the customer.",
        "reason": "three were too few",
    },
)

HISTORY = _on_documents(
    name="rag_context_history",
    title="History of a document",
    description=(
        "List the versions that corrections have made of a document, oldest first: when, why, and which one took "
        "whose place."
    ),
    request=changes.HistoryRequest,
    response=changes.HistoryResponse,
    names_one=True,
    toolset=Toolset.OPERATIONS,
    method="history",
    example={"documentId": _AN_ID},
)

LOG = _maintaining(
    name="rag_context_log",
    title="Log of changes",
    description=(
        "List what was changed in the memory, newest first: when, by whom, what and why, and whether it can be undone "
        "with rag_context_undo."
    ),
    request=changes.LogRequest,
    response=changes.LogResponse,
    method="log",
    example={"limit": 10},
)

UNDO = _repairing(
    name="rag_context_undo",
    title="Undo a change",
    description="Undo a change by its number in rag_context_log; undoing it is a change that can be undone too.",
    request=changes.UndoRequest,
    response=changes.UndoResponse,
    may_conflict=True,
    destructive=True,
    idempotent=False,
    names_one=True,
    method="undo",
    example={"id": 12},
)

FORGET = _changing_documents(
    name="rag_context_forget",
    title="Forget context",
    description=(
        "Forget documents: they are not found any more, and indexing them again stores nothing. Name exactly one of "
        "documentId, source, sessionId, agent, tag and contains; call it with dryRun first and check the list. It can "
        "be undone for 30 days, unless purge is set."
    ),
    request=changes.ForgetRequest,
    response=changes.ForgetResponse,
    may_conflict=True,
    destructive=True,
    toolset=Toolset.OPERATIONS,
    omitted={"cli.confirm": "the command asks, or is called with --yes"},
    method="forget",
    example={"tag": "draft", "dryRun": True},
)

REVIEW = _maintaining(
    name="rag_context_review",
    title="Review the memory",
    description=(
        "List what in the memory probably needs a decision: statements that a later one contradicts, near-duplicates, "
        "references that are stale, what was never found in a year, what expires soon. Each has the calls that decide. "
        "Nothing happens by itself: let the user decide."
    ),
    request=changes.ReviewRequest,
    response=changes.ReviewResponse,
    command="review",
    example={"limit": 5},
)

DECIDE = _repairing(
    name="rag_context_decide",
    title="Decide about a suggestion",
    description="Take the user's decision about a suggestion of rag_context_review: merge, keep or pin.",
    request=changes.DecideRequest,
    response=changes.DecideResponse,
    may_conflict=True,
    names_one=True,
    idempotent=False,
    omitted={"cli": "the command `review` asks"},
    example={"kind": "duplicate", "documentIds": [_AN_ID, _ANOTHER_ID], "decision": "merge"},
)

GET = _on_documents(
    name="rag_context_get",
    title="Read a document",
    description=(
        "Read one document in full by its documentId, which rag_context_search and rag_context_list return: when"
        " a passage is right but not enough."
    ),
    request=stored_documents.GetRequest,
    response=stored_documents.GetResponse,
    names_one=True,
    method="get",
    example={"documentId": _AN_ID},
)

LIST = _on_documents(
    name="rag_context_list",
    title="List documents",
    description=(
        "List stored documents, newest first, without the texts: those of a session, or those since a time. To "
        "find a document by its content, use rag_context_search."
    ),
    request=stored_documents.ListRequest,
    response=stored_documents.ListResponse,
    omitted={"cli.facets": "`rag-context status` counts"},
    method="list",
    example={"sessionId": "payments", "limit": 10},
)

SIMILAR = _on_documents(
    name="rag_context_similar",
    title="Find similar documents",
    description=(
        "Find the documents that are most similar to a stored one: related decisions, an earlier instance of the"
        " same problem, near-duplicates. Each has its nearest passage and a score from 0 to 1. method says "
        "whether vectors (vector) or only keywords (text) were compared."
    ),
    request=stored_documents.SimilarRequest,
    response=stored_documents.SimilarResponse,
    names_one=True,
    toolset=Toolset.OPERATIONS,
    method="similar",
    example={"documentId": _AN_ID, "limit": 3},
)

INDEX_FILES = _changing(
    name="rag_context_index_files",
    title="Index files",
    description=(
        "Index a file or all of a folder on this machine, such as a repository or notes, so that later "
        "searches find it. Call it again to bring it up to date: only what changed is read. Ignore files are "
        "respected; lock files, vendored and generated files are skipped and named in leftOut."
    ),
    request=IndexFilesRequest,
    response=IndexFilesResponse,
    destructive=True,
    omitted={"cli": "see the command `index`"},
    example={"path": "~/src/my-project"},
)

DELETE = _changing_documents(
    name="rag_context_delete",
    title="Delete context",
    description=(
        "Remove documents for good: one by documentId, all of a source, or all of a session; name exactly one. "
        "Call it with dryRun first and check the result."
    ),
    request=stored_documents.DeleteRequest,
    response=stored_documents.DeleteResponse,
    destructive=True,
    omitted={"cli.confirm": "the command asks, or is called with --yes"},
    method="delete",
    example={"source": "docs/decisions/payment-retries.md", "dryRun": True},
)

REINDEX = _repairing(
    name="rag_context_reindex",
    title="Re-embed the index",
    description=(
        "Re-embed the whole index after a change of the embedding model, and report the progress. Nothing is "
        "lost: the old vectors answer until the new ones are complete. It runs in the background, once, and "
        "survives a restart; call it again, or with statusOnly, for the progress. If the vectors are already the "
        "model's it does nothing, unless force is set. Call it only if the user asks for it, or if "
        "rag_context_health reports another model."
    ),
    request=maintenance.ReindexRequest,
    response=maintenance.ReindexResponse,
    omitted={"cli": "the command `reindex` works on the data directory itself and shows its progress"},
    method="reindex",
    example={"statusOnly": True},
)

HEALTH = _maintaining(
    name="rag_context_health",
    title="Check health",
    description=(
        "Report whether searching and indexing work now: the state of the vector store, the embedder and the "
        "document store, and the number of indexed and of pending documents. Use it when answers look incomplete."
    ),
    request=maintenance.HealthRequest,
    response=maintenance.HealthResponse,
    in_url=True,
    method="health",
    example={},
)

STATS = _maintaining(
    name="rag_context_stats",
    title="Usage statistics",
    description=(
        "Statistics of the searches of the last hour, day, week or month: number, latency, cache hit rate, share"
        " of fallback levels, and agents."
    ),
    request=maintenance.StatsRequest,
    response=maintenance.StatsResponse,
    in_url=True,
    omitted={"cli.include": "the page lists searches"},
    method="stats",
    example={"timeRange": "24h"},
)

FIND = _on_documents(
    name="search",
    title="Search",
    description="Search the memory that agents share: earlier chats, decisions, code and documentation.",
    request=FindRequest,
    response=FindResponse,
    toolset=Toolset.SEARCH_FETCH,
    omitted={"cli": "see the command `search`"},
    example={"query": "mongodb retry logic"},
)

FETCH = _on_documents(
    name="fetch",
    title="Fetch",
    description="Read one document in full by an id that search returned.",
    request=FetchRequest,
    response=FetchResponse,
    names_one=True,
    toolset=Toolset.SEARCH_FETCH,
    omitted={"cli": "see the command `get`"},
    example={"id": _AN_ID},
)

INJECTIONS = _maintaining(
    name="rag_context_injections",
    title="What was shown unasked",
    description=(
        "List what the memory has shown to agents unasked (by hooks of their clients), and what it withheld: when, in "
        "which session, at which moment, why, and how many tokens it cost. Newest first."
    ),
    request=InjectionsRequest,
    response=InjectionsResponse,
    omitted={"cli": "`rag-context log --injected` shows it"},
    example={"limit": 20},
)

CLEAR_QUERIES = _repairing(
    name="rag_context_clear_queries",
    title="Clear recorded queries",
    description=(
        "Delete the records of searches for good: the queries, the statistics made of them, the records of errors, "
        "and those of what agents were shown unasked; with before only the older ones. Documents stay. Call it only if "
        "the user asks for it."
    ),
    request=maintenance.ClearQueriesRequest,
    response=maintenance.ClearQueriesResponse,
    destructive=True,
    command="clear-queries",
    example={"before": "2026-01-31T00:00:00Z"},
)
