"""All operations by name, in the order in which they are listed."""

from typing import Any

from rag_context.api.operations import Operation, collections, memory, projects

_LISTED: tuple[Operation[Any, Any], ...] = (
    memory.SEARCH,
    memory.INDEX,
    memory.GET,
    memory.LIST,
    memory.SIMILAR,
    memory.INDEX_FILES,
    collections.CONVERSE,
    collections.COLLECTION_QUERY,
    collections.COLLECTION_LIST,
    collections.COLLECTION_GET,
    collections.COLLECTION_DOCUMENTS,
    collections.COLLECTION_VALUES,
    collections.COLLECTION_CREATE,
    collections.COLLECTION_ADD,
    collections.COLLECTION_UPDATE_DOCUMENT,
    collections.COLLECTION_SET_METADATA,
    collections.COLLECTION_DELETE_DOCUMENTS,
    collections.COLLECTION_DELETE,
    memory.DELETE,
    memory.REINDEX,
    memory.HEALTH,
    memory.STATS,
    projects.ACTIVATE_PROJECT,
    projects.RAG_QUERY,
    projects.SEMANTIC_SEARCH,
    projects.READ_DOCUMENT,
    projects.INDEX_DOCUMENT,
    projects.LIST_DOC_TYPES,
    projects.UPDATE_PROMOTION_LEVEL,
    projects.DELETE_DOCUMENTS,
    projects.LIST_PROJECTS,
    projects.SEARCH_EXTERNAL_DOCS,
    projects.RAG_QUERY_EXTERNAL,
)

OPERATIONS = {operation.name: operation for operation in _LISTED}
"""By name, in the order in which they are listed."""
