"""What the operations of collections and of their providers take: query strings, all fields of a tool, and searching
within a conversation."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, model_validator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from rag_context.api import collections as models
from rag_context.api import wire
from rag_context.api.wire import Count, Milliseconds, PlainRequest, PlainResponse, UtcTime, about
from rag_context.domain.documents import Status

_DIGITS = 100


def _number(value: Any) -> Any:
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
        return int(value[:_DIGITS])
    return value


def _truth(value: Any) -> Any:
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _ids_of(text: str) -> list[str]:
    if not text.startswith("["):
        return [part.strip() for part in text.split(",") if part.strip()]
    found = json.loads(text)
    if not all(isinstance(id_, str) for id_ in found):
        raise ValueError("not ids")
    return list(found)


def _ids(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        found = _ids_of(value)
    except (ValueError, TypeError, RecursionError):
        found = []
    if not 0 < len(found) <= models.MAX_PAGE:
        raise PydanticCustomError(
            "sentence",
            "ids must be 1 to {most} ids with commas between them, or a JSON array of them",
            {"most": models.MAX_PAGE},
        )
    return found


def _field_path(field: str) -> str:
    if not all(field.split(".")):
        raise PydanticCustomError(
            "sentence", "field must name a metadata field, such as doc_type or author.name: no part of it is empty"
        )
    return field


class NoFields(wire.PlainRequest):
    """Nothing may stand in the query string."""


class ConnectionFields(wire.PlainRequest):
    """What may stand in every query string of a collection."""

    connection: Annotated[str, wire.about("Id of the collection's connection"), wire.Otherwise("default")] = "default"


class MetadataFields(ConnectionFields):
    """How metadata is put."""

    merge: Annotated[
        bool, wire.about("Set the given keys and keep the others, instead of replacing all"), BeforeValidator(_truth)
    ] = False


class DocumentsFields(ConnectionFields):
    """Which documents, and which part of them."""

    where: Annotated[str | None, wire.about("Only documents whose metadata matches this filter, as JSON")] = None
    limit: Annotated[
        int,
        wire.about(f"Maximum number of documents; more than {models.MAX_PAGE} are {models.MAX_PAGE}", ge=1),
        BeforeValidator(_number),
    ] = models.DEFAULT_PAGE
    offset: Annotated[int, wire.about("Number of matching documents to skip", ge=0), BeforeValidator(_number)] = 0
    ids: Annotated[
        list[str] | None,
        BeforeValidator(_ids),
        WithJsonSchema(
            {
                "type": "string",
                "description": f"Only these documents: up to {models.MAX_PAGE} ids with commas between them, or a "
                "JSON array",
            }
        ),
    ] = None
    include: Annotated[Literal["embeddings"] | None, wire.about("embeddings: return the documents' vectors too")] = None

    @model_validator(mode="after")
    def _check_one_way(self) -> Self:
        if self.ids is not None and (self.where is not None or self.offset):
            raise PydanticCustomError("exactly_one", "Name ids, or where and offset, not both")
        return self


class DeleteFields(ConnectionFields):
    """Which documents to delete, and how sure the caller is."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {"where": wire.Sentences("where required")}

    where: Annotated[str, wire.about("The documents whose metadata matches this filter, as JSON")]
    dry_run: Annotated[
        bool, wire.about("Only report what would be deleted, and delete nothing"), BeforeValidator(_truth)
    ] = False
    confirm: Annotated[
        bool,
        wire.about(f"Delete also more than {models.UNCONFIRMED} documents, or more than half of the collection"),
        BeforeValidator(_truth),
    ] = False


class ValuesFields(ConnectionFields):
    """Of which field."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {"field": wire.Sentences("field required")}

    field: Annotated[
        str,
        wire.about(
            "A metadata field; a.b is the field b of the object a",
            min_length=1,
            max_length=models.QUERY_CHARS,
            json_schema_extra={"pattern": r"^[^.]+(\.[^.]+)*$"},
        ),
        AfterValidator(_field_path),
    ]


def _document_id(id_: str) -> str:
    problem = wire.id_problem(id_)
    if problem:
        raise PydanticCustomError("sentence", "id {problem}", {"problem": problem})
    return id_


_NO_DOTS = {"not": {"enum": list(wire.DOTS)}}
CollectionName = Annotated[
    str,
    AfterValidator(models.named),
    WithJsonSchema({**models.NAME_SCHEMA, **_NO_DOTS, "description": "Name of the collection"}),
]
DocumentId = Annotated[
    str,
    AfterValidator(_document_id),
    WithJsonSchema({**models.ID_SCHEMA, **_NO_DOTS, "description": "Id of a document"}),
]
_DOCUMENTS = {**models.STORED_SCHEMA, "items": {**models.STORED_SCHEMA["items"], "required": ["text"]}}
_Where = Annotated[
    dict[str, JsonValue] | None,
    wire.about('Only documents whose metadata matches this filter, such as {"doc_type": "code"}'),
]
_Merge = Annotated[wire.Flag, wire.about("Set these keys and keep the others")]
_Ids = Annotated[list[DocumentId], Field(min_length=1, max_length=models.MAX_PAGE)]


class CollectionFields(ConnectionFields):
    """What every operation on one collection takes."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {"name": wire.Sentences("name required")}

    name: CollectionName


class ListCollectionsRequest(ConnectionFields):
    """Which connection's collections."""


class GetCollectionRequest(CollectionFields):
    """Which collection."""


class DeleteCollectionRequest(CollectionFields):
    """Which collection goes, with all that is in it."""


class NewCollectionRequest(models.CreateCollectionRequest, ConnectionFields):
    """A new collection, and where it shall live."""


class SetMetadataRequest(models.MetadataRequest, CollectionFields):
    """A collection's metadata."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {
        **models.MetadataRequest.sentences,
        **CollectionFields.sentences,
    }

    merge: _Merge = False


class AddDocumentsRequest(CollectionFields):
    """Documents to store."""

    documents: Annotated[list[Any], WithJsonSchema(_DOCUMENTS)]


class DeleteDocumentRequest(CollectionFields):
    """Which document goes."""

    id: DocumentId


class EmptyCollectionRequest(CollectionFields):
    """Which collection loses its documents, and stays."""


class ListDocumentsRequest(CollectionFields):
    """Which documents, and which part of them."""

    where: _Where = None
    ids: Annotated[_Ids | None, wire.about("Only these documents")] = None
    include: Annotated[Literal["embeddings"] | None, wire.about("Return the documents' vectors too")] = None
    limit: Annotated[int, wire.whole("Maximum number of documents", models.DEFAULT_PAGE, ge=1)] = models.DEFAULT_PAGE
    offset: Annotated[int, wire.whole("Number of documents to skip", 0, ge=0)] = 0


class DeleteCollectionDocumentsRequest(wire.ChoiceRequest, CollectionFields):
    """Which documents to delete, and how sure the caller is."""

    exactly_one_of: ClassVar[tuple[str, ...]] = ("ids", "where", "every")

    ids: Annotated[_Ids | None, wire.about("These documents")] = None
    where: _Where = None
    every: Annotated[Literal[True] | None, wire.about("true: every document; the collection stays")] = None
    dry_run: Annotated[wire.Flag, wire.about("Only report what would be deleted")] = False
    confirm: Annotated[
        wire.Flag,
        wire.about(f"Delete also more than {models.UNCONFIRMED} documents, or more than half of the collection"),
    ] = False


class UpdateDocumentRequest(models.MetadataRequest, CollectionFields):
    """A document's metadata."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {
        **models.MetadataRequest.sentences,
        **CollectionFields.sentences,
    }

    id: DocumentId
    merge: _Merge = False


class ListValuesRequest(ValuesFields, CollectionFields):
    """A metadata field."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {**ValuesFields.sentences, **CollectionFields.sentences}


class QueryCollectionRequest(models.QueryRequest, CollectionFields):
    """What to find, and where."""


MESSAGE_CHARS = 10_000
MAX_COLLECTIONS = 50
MAX_TOP_K = 100
DEFAULT_TOP_K = 5


class ConverseRequest(wire.WireRequest):
    """A message, the topic that the conversation has reached, and where to look."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {
        "user_message": wire.Sentences("Message cannot be empty", f"Message too long (max {MESSAGE_CHARS} characters)"),
        "collections": wire.Sentences("Collections required"),
    }

    user_message: Annotated[str, wire.present("The user's last message", MESSAGE_CHARS)]
    current_topic: Annotated[
        str | None,
        wire.about(
            "Topic of the conversation so far; absent or blank: this is the first message",
            max_length=MESSAGE_CHARS,
            pattern=wire.PLAIN_PATTERN,
        ),
    ] = None
    collections: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=wire.NAME_CHARS + 65, pattern=models.NAME_PATTERN)]],
        wire.about(
            "Names of collections; one of another connection is written connection:name",
            min_length=1,
            max_length=MAX_COLLECTIONS,
        ),
    ]
    top_k: Annotated[
        int, wire.whole("Maximum number of documents, of all collections together", DEFAULT_TOP_K, ge=1, le=MAX_TOP_K)
    ] = DEFAULT_TOP_K


class ConverseResult(wire.WireResponse):
    """A document and how near it is."""

    collection: str
    connection: str
    id: str
    text: str
    metadata: models.ReturnedJson
    score: Annotated[float, wire.about("Cosine to the query; higher is nearer", ge=-1, le=1)]


class OmittedCollection(wire.WireResponse):
    """A collection that could not be searched."""

    collection: str
    connection: str
    error: str


class ConverseResponse(wire.WireResponse):
    """What was found, and by which text."""

    results: Annotated[list[ConverseResult], wire.about("The nearest first, of all collections")]
    query: Annotated[str, wire.about("The text that was embedded")]
    strategy: Literal["first message (raw query)", "follow-up (contextualized topic)"]
    embeddings: Annotated[wire.Count, wire.about("Number of embeddings: one per connection and model")]
    cache_hits: Annotated[wire.Count, wire.about("Number of times such an embedding was reused")]
    omitted: Annotated[list[OmittedCollection], wire.about("Collections that could not be searched, with the reason")]


class TestRequest(PlainRequest):
    """A configuration to try; or the id of a connection that the server has, to be tried as it is."""

    __test__ = False  # not a test, whatever pytest makes of its name

    configuration: Annotated[dict[str, JsonValue] | None, about("As the provider's connection_schema describes it")] = (
        None
    )
    connection: Annotated[str | None, about("Id of a configured connection of this provider")] = None

    @model_validator(mode="after")
    def _check_not_both(self) -> Self:
        if self.configuration is not None and self.connection is not None:
            raise PydanticCustomError("exactly_one", "Name configuration or connection, not both")
        return self


class ProviderRequest(PlainRequest):
    """Which provider."""

    name: Annotated[str, about("Name of the provider, as in the list", min_length=1)]


class TestProviderRequest(TestRequest, ProviderRequest):
    """Which provider to try, and how."""


class CapabilitiesResponse(PlainResponse):
    """What a provider can do."""

    collections: bool
    search: bool
    embeddings: Annotated[bool, about("Whether it makes vectors itself")]
    metadata_filtering: bool
    scanned_operators: Annotated[
        list[str], about("Operators of where that it answers by reading documents: exactly, but slower")
    ]


class ProviderResponse(PlainResponse):
    """A provider of collections."""

    name: str
    title: str
    available: bool
    reason: Annotated[str | None, about("Why it is not available, and what to do")] = None
    capabilities: CapabilitiesResponse | None = None
    connection_schema: Annotated[
        dict[str, Any] | None, WithJsonSchema({"type": "object", "description": "JSON Schema of its configuration"})
    ] = None
    connections: Annotated[list[str], about("Ids of the connections to it that the server has")]


class ProvidersResponse(PlainResponse):
    """All providers, by name, also those that cannot be used here."""

    providers: list[ProviderResponse]
    count: Count


class ProviderHealthResponse(PlainResponse):
    """How a provider is."""

    status: Status
    timestamp: UtcTime
    latency_ms: Milliseconds
    error: str | None = None
    collections: Annotated[Count | None, about("How many there are, where known")] = None
    storage_bytes: Annotated[Count | None, about("What they take, where known")] = None
