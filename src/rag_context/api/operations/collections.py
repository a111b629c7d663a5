"""The operations of collections and of their providers, those that read first.

The last ones have an address and are no tools: a model deletes one document, or all of them, with
`collection_delete_documents`; providers and their configurations are the business of people.
"""

from functools import partial

from rag_context.api import collection_operations
from rag_context.api import collections as wire
from rag_context.api.operations import Access, Operation, Reach
from rag_context.api.toolsets import Toolset

_NAME = "handbook"
_FILTER = (
    'where compares metadata: {"doc_type": "code"}, or with $and, $or, $not, $eq, $ne, $gt, $gte, $lt, $lte, $in, '
    "$nin, $exists, $contains."
)

_reading = partial(Operation, reach=Reach.COLLECTIONS, names_one=True, toolset=Toolset.COLLECTIONS)
_changing = partial(
    Operation,
    reach=Reach.COLLECTIONS,
    access=Access.WRITE,
    read_only=False,
    destructive=True,
    names_one=True,
    toolset=Toolset.COLLECTIONS,
)

CONVERSE = _reading(
    name="rag_context_converse",
    title="Search collections in a conversation",
    description=(
        "Find documents in named collections for the user's last message. From the second message on, give "
        "currentTopic: the topic of the conversation so far, with its names spelt out. It replaces the message as "
        "the query, because words such as it and that refer to earlier messages. Only collections whose texts "
        "this server embeds can be searched; the others are in omitted. Scores are cosines, the nearest first. To "
        "search the agents' own memory, use rag_context_search instead."
    ),
    request=collection_operations.ConverseRequest,
    response=collection_operations.ConverseResponse,
    omitted={
        "cli": "a person asks with `collections query`",
        "rest": "it is about several collections, and no address is above them",
    },
    example={
        "userMessage": "Does it integrate with OpenShift AI?",
        "currentTopic": "InstructLab and OpenShift AI integration",
        "collections": ["handbook"],
    },
)

COLLECTION_QUERY = _reading(
    name="collection_query",
    title="Search a collection",
    description=(
        "Find documents in a named collection. mode vector is vector search (the server embeds text, or give an "
        "embedding), text is keyword search, hybrid is both. " + _FILTER
    ),
    request=collection_operations.QueryCollectionRequest,
    response=wire.QueryResponse,
    command="collections query",
    example={"name": _NAME, "text": "How long are logs kept?", "mode": "hybrid", "top_k": 3},
)

COLLECTION_LIST = _reading(
    name="collection_list",
    title="List collections",
    description=(
        "List the named collections of a connection, with their number of documents. Those with read_only belong "
        "to other programs: they can be read and queried, not written to."
    ),
    request=collection_operations.ListCollectionsRequest,
    response=wire.CollectionsResponse,
    command="collections list",
    example={},
)

COLLECTION_GET = _reading(
    name="collection_get",
    title="Describe a collection",
    description="Describe a collection: its metadata, its labels, the dimension and model of its vectors.",
    request=collection_operations.GetCollectionRequest,
    response=wire.CollectionResponse,
    command="collections show",
    example={"name": _NAME},
)

COLLECTION_DOCUMENTS = _reading(
    name="collection_documents",
    title="List documents of a collection",
    description=(
        "List documents by id, those that match a filter or those of the given ids, a page at a time. " + _FILTER
    ),
    request=collection_operations.ListDocumentsRequest,
    response=wire.DocumentsResponse,
    command="collections documents",
    omitted={"cli.include": "--embeddings says it"},
    example={"name": _NAME, "where": {"section_id": "retention"}, "limit": 10},
)

COLLECTION_VALUES = _reading(
    name="collection_values",
    title="List the values of a metadata field",
    description="List the distinct values of a metadata field of a collection's documents, to find possible filters.",
    request=collection_operations.ListValuesRequest,
    response=wire.ValuesResponse,
    command="collections values",
    example={"name": _NAME, "field": "section_id"},
)

COLLECTION_CREATE = Operation(
    name="collection_create",
    title="Create a collection",
    description=(
        "Create an empty named collection. With embedding_provider rag-context the server embeds the texts of its "
        "documents itself; otherwise each document needs an embedding."
    ),
    request=collection_operations.NewCollectionRequest,
    response=wire.CreatedCollectionResponse,
    reach=Reach.COLLECTIONS,
    access=Access.WRITE,
    read_only=False,
    names_one=True,
    toolset=Toolset.COLLECTIONS,
    command="collections create",
    example={"name": _NAME, "embedding_provider": "rag-context"},
)

COLLECTION_ADD = _changing(
    name="collection_add",
    title="Store documents in a collection",
    description="Store documents, all of them or none; a known id is replaced. Each has a text, and any metadata.",
    request=collection_operations.AddDocumentsRequest,
    response=wire.AddedDocumentsResponse,
    command="collections add",
    omitted={"cli.documents": "the argument FILE has them"},
    example={"name": _NAME, "documents": [{"id": "retention-1", "text": "Logs are kept for 31 days."}]},
)

COLLECTION_UPDATE_DOCUMENT = _changing(
    name="collection_update_document",
    title="Change a document's metadata",
    description="Replace the metadata of one document, or set some keys of it with merge; its text and vector stay.",
    request=collection_operations.UpdateDocumentRequest,
    response=wire.UpdatedDocumentResponse,
    command="collections update",
    example={"name": _NAME, "id": "retention-1", "metadata": {"reviewed": True}, "merge": True},
)

COLLECTION_SET_METADATA = _changing(
    name="collection_set_metadata",
    title="Change a collection's metadata",
    description="Replace the metadata of a collection, or set some keys of it with merge.",
    request=collection_operations.SetMetadataRequest,
    response=wire.MetadataResponse,
    command="collections metadata",
    example={"name": _NAME, "metadata": {"owner": "docs"}, "merge": True},
)

COLLECTION_DELETE_DOCUMENTS = _changing(
    name="collection_delete_documents",
    title="Delete documents of a collection",
    description=(
        "Remove documents by ids, by a filter, or every one; name exactly one of the three. A filter that matches "
        "many needs confirm: call with dry_run first, and check the result. This cannot be undone. " + _FILTER
    ),
    request=collection_operations.DeleteCollectionDocumentsRequest,
    response=wire.DeletedMatchingResponse,
    command="collections remove",
    omitted={
        "cli.every": "`collections empty` does it",
        "cli.confirm": "--yes says it",
        "rest.ids": "each document has an address",
        "rest.every": "all documents have an address",
    },
    example={"name": _NAME, "where": {"section_id": "retention"}, "dry_run": True},
)

COLLECTION_DELETE = _changing(
    name="collection_delete",
    title="Delete a collection",
    description="Remove a collection with all documents in it. This cannot be undone.",
    request=collection_operations.DeleteCollectionRequest,
    response=wire.DroppedCollectionResponse,
    command="collections delete",
    example={"name": _NAME},
)

COLLECTION_DELETE_DOCUMENT = _changing(
    name="collection_delete_document",
    is_tool=False,
    title="Delete a document",
    description="Remove one document of a collection. This cannot be undone.",
    request=collection_operations.DeleteDocumentRequest,
    response=wire.DeletedDocumentResponse,
    omitted={"cli": "`collections remove` does it, for one or more"},
    example={"name": _NAME, "id": "retention-1"},
)

COLLECTION_EMPTY = _changing(
    name="collection_empty",
    is_tool=False,
    title="Delete all documents",
    description="All of them or none; the collection itself, its metadata and its dimension stay.",
    request=collection_operations.EmptyCollectionRequest,
    response=wire.EmptiedCollectionResponse,
    command="collections empty",
    example={"name": _NAME},
)

PROVIDER_LIST = _reading(
    name="provider_list",
    is_tool=False,
    title="List the providers",
    description="List the providers of collections, also those that are not installed.",
    request=collection_operations.NoFields,
    response=collection_operations.ProvidersResponse,
    reach=Reach.EVERYTHING,
    command="collections providers",
    example={},
)

PROVIDER_GET = _reading(
    name="provider_get",
    is_tool=False,
    title="Describe a provider",
    description="Describe a provider: what it can do, its configuration, and the connections to it.",
    request=collection_operations.ProviderRequest,
    response=collection_operations.ProviderResponse,
    reach=Reach.EVERYTHING,
    omitted={"cli": "`collections providers --json` has all of them"},
    example={"name": "embedded"},
)

PROVIDER_TEST = Operation(
    name="provider_test",
    is_tool=False,
    title="Try a configuration",
    description=(
        "Open the provider with a configuration, or use an existing connection, and report its health: 200 also "
        "where it is not healthy."
    ),
    request=collection_operations.TestProviderRequest,
    response=collection_operations.ProviderHealthResponse,
    access=Access.ADMIN,
    read_only=False,
    names_one=True,
    omitted={"cli": "`collections list --connection ID` shows whether a connection works"},
    example={"name": "embedded", "configuration": {}},
)
