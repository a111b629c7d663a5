"""The search of the agents' memory: a command that only searches loads no other operation and its models."""

from rag_context.api.operations import Operation, Reach
from rag_context.api.search import SearchRequest, SearchResponse

SEARCH = Operation(
    reach=Reach.DOCUMENTS,
    name="rag_context_search",
    title="Search context",
    description=(
        "Search earlier chats, decisions, code and documentation for the passages that answer a question. Call "
        "it before you rely on memory: something may have been decided, tried or written before. Ask in plain "
        'words or with exact names and error codes; name a time if you know it ("last week", "in March"). A filter '
        "excludes documents: use one only if you mean it. rag_context_get returns the whole document of a passage."
    ),
    request=SearchRequest,
    response=SearchResponse,
    omitted={"cli.strict": "the exit status says that nothing could be searched"},
    method="search",
    example={"query": "mongodb retry logic", "limit": 3, "category": "architecture", "agent": "orchestrator"},
)
