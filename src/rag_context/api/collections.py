"""Collections on the wire. Their fields are in snake_case, as their clients know them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, model_validator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from rag_context.api import wire
from rag_context.api.collection_documents import MAX_DIMENSION, RESERVED_ID, TEXT_CHARS, unit_vector
from rag_context.api.wire import about, whole
from rag_context.domain.documents import Json

if TYPE_CHECKING:
    from rag_context.domain.vectors import Vector

MAX_PAGE = 1000
DEFAULT_PAGE = 100
DEFAULT_TOP_K = 10
UNCONFIRMED = 100
"""Most documents that a filter deletes without being confirmed; more than half of a collection needs it too."""
QUERY_CHARS = 10_000

NAME_PATTERN = (
    r"^[^\u0000-\u001f\u007f-\u009f]*[^\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
    r"[^\u0000-\u001f\u007f-\u009f]*$"
)


def named(name: str) -> str:
    problem = wire.name_problem(name)
    if problem:
        raise PydanticCustomError("sentence", "name {problem}", {"problem": problem})
    return name


def _embedding(value: Any) -> Any:
    if value is None:
        return None
    try:
        return unit_vector(value)
    except ValueError as error:
        raise PydanticCustomError("sentence", "embedding {problem}", {"problem": str(error)}) from None


NAME_SCHEMA = {"type": "string", "minLength": 1, "maxLength": wire.NAME_CHARS, "pattern": NAME_PATTERN}
ID_SCHEMA = {"type": "string", "minLength": 1, "maxLength": wire.ID_CHARS, "pattern": NAME_PATTERN}
NUMBERS_SCHEMA: dict[str, Any] = {
    "type": "array",
    "items": {"type": "number"},
    "minItems": 1,
    "maxItems": MAX_DIMENSION,
    "contains": {"not": {"const": 0}},
}
METADATA_SCHEMA = {
    "type": "object",
    "description": "Any JSON; no key, at any depth, holds a dot, is empty or begins with $",
    "propertyNames": {"pattern": r"^[^.$][^.]*$"},
}
_LABELS = {label: {"type": "string"} for label in ("embedding_provider", "embedding_model")}
_NAME = "Name of the collection: no control characters; slashes, spaces and any alphabet may be in it"

Embedding = Annotated[
    Any,
    BeforeValidator(_embedding),
    WithJsonSchema(
        {**NUMBERS_SCHEMA, "description": "What to find the nearest to; of the collection's dimension, not all zeros"}
    ),
]
AnyMetadata = Annotated[dict[str, JsonValue], WithJsonSchema(METADATA_SCHEMA)]
ReturnedJson = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": True})]


class CreateCollectionRequest(wire.PlainRequest):
    """A new collection."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {
        "name": wire.Sentences("name required", f"name too long (max {wire.NAME_CHARS} characters)")
    }

    name: Annotated[
        str,
        AfterValidator(named),
        WithJsonSchema({**NAME_SCHEMA, "not": {"enum": list(wire.DOTS)}, "description": _NAME}),
    ]
    metadata: Annotated[AnyMetadata, wire.Otherwise({})] = Field(default_factory=dict)
    embedding_provider: Annotated[
        wire.Label | None,
        about(
            "Label of the vectors' origin, not interpreted; only rag-context means that this server embeds texts itself"
        ),
    ] = None
    embedding_model: Annotated[wire.Label | None, about("Label of the model, not interpreted")] = None


class MetadataRequest(wire.PlainRequest):
    """Metadata of a collection."""

    sentences: ClassVar[Mapping[str, wire.Sentences]] = {"metadata": wire.Sentences("metadata required")}

    metadata: Annotated[dict[str, JsonValue], WithJsonSchema({**METADATA_SCHEMA, "properties": _LABELS})]


class QueryRequest(wire.PlainRequest):
    """What to find in a collection: by a vector, by a text that the server embeds, by keywords, or by both."""

    embedding: Embedding = None
    text: Annotated[
        str | None,
        about(
            "Keywords or a question; embedded if there is no embedding, which needs the "
            "collection's embedding_provider to be rag-context",
            max_length=QUERY_CHARS,
            pattern=wire.PRESENT_PATTERN,
        ),
    ] = None
    mode: Annotated[
        Literal["vector", "text", "hybrid"],
        about("vector: vector search by embedding or text; text: keyword search; hybrid: both, fused"),
        wire.Otherwise("vector"),
    ] = "vector"
    min_score: Annotated[
        float | None, about("Minimum score of a result; each mode has a scale of its own", ge=-1, le=1)
    ] = None
    where: Annotated[dict[str, JsonValue] | None, about("Only documents whose metadata matches this filter")] = None
    top_k: Annotated[
        int, whole(f"Maximum number of results; more than {MAX_PAGE} are {MAX_PAGE}", DEFAULT_TOP_K, ge=1)
    ] = DEFAULT_TOP_K

    @model_validator(mode="after")
    def _check_mode(self) -> Self:
        if self.mode == "vector" and (self.embedding is None) == (self.text is None):
            raise PydanticCustomError("exactly_one", "Name exactly one of embedding or text")
        if self.mode != "vector" and self.text is None:
            raise PydanticCustomError(
                "exactly_one", "text required: mode {mode} looks for its words", {"mode": self.mode}
            )
        if self.mode == "text" and self.embedding is not None:
            raise PydanticCustomError("exactly_one", "Leave out embedding: mode text looks for the words of text only")
        return self

    def vector(self) -> "Vector | None":
        """The embedding, of length 1."""
        found: Vector | None = self.embedding
        return found


STORED_SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["text", "embedding"],
        "additionalProperties": False,
        "properties": {
            "id": {
                **ID_SCHEMA,
                "not": {"enum": [RESERVED_ID, *wire.DOTS]},
                "description": "Absent: computed from the text and the metadata; distinct in one request",
            },
            "text": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS, "pattern": wire.PRESENT_PATTERN},
            "metadata": METADATA_SCHEMA,
            "embedding": {
                **NUMBERS_SCHEMA,
                "description": "All of one dimension, none all zeros; may be absent where the collection's "
                "embedding_provider is rag-context",
            },
        },
    },
}


class DocumentsRequest(wire.PlainRequest):
    """Documents to store; a known id is replaced."""

    documents: Annotated[list[Any], WithJsonSchema(STORED_SCHEMA)]
    """Published for clients: `documents` reads what it describes without building a model."""


class RecordedModel(wire.PlainResponse):
    """The model that made a collection's vectors here."""

    name: str
    dimension: Annotated[int, Field(ge=1)]
    fingerprint: str


class CollectionResponse(wire.PlainResponse):
    """A collection."""

    name: str
    connection: Annotated[str, about("Its connection")]
    metadata: Annotated[ReturnedJson, about("As submitted, with the labels embedding_provider and embedding_model")]
    embedding_provider: str | None = None
    embedding_model: str | None = None
    dimension: Annotated[int | None, about("Of its vectors; absent before the first", ge=1)] = None
    count: Annotated[wire.Count, about("Documents in it")]
    created: wire.UtcTime | None = None
    model: Annotated[
        RecordedModel | None, about("The model of its vectors, if this server made them; others are rejected")
    ] = None
    read_only: Annotated[
        bool | None, about("true: another program made it; it can be read and queried, not written to")
    ] = None


class CreatedCollectionResponse(CollectionResponse):
    """A collection that was made."""

    status: Literal["created"] = "created"


class CollectionsResponse(wire.PlainResponse):
    """All collections of a connection, by name."""

    collections: list[CollectionResponse]
    count: wire.Count


class DroppedCollectionResponse(wire.PlainResponse):
    """A collection went, with all that was in it."""

    status: Literal["deleted"] = "deleted"
    collection: str


class MetadataResponse(wire.PlainResponse):
    """Metadata was stored."""

    status: Literal["success"] = "success"
    collection: str
    metadata: ReturnedJson


class AddedDocumentsResponse(wire.PlainResponse):
    """Documents were stored."""

    status: Literal["success"] = "success"
    count: wire.Count
    ids: Annotated[list[str], about("In the order of the request")]
    redactions: Annotated[dict[str, int] | None, about("Number of masked secrets, by kind")] = None


class StoredDocument(wire.PlainResponse):
    """A document of a collection."""

    id: str
    text: str
    metadata: ReturnedJson
    embedding: Annotated[list[float] | None, about("Its vector, of length 1, if requested")] = None


class DocumentsResponse(wire.PlainResponse):
    """A page of documents, by id."""

    documents: list[StoredDocument]
    count: Annotated[wire.Count, about("Documents in this answer")]
    total: Annotated[wire.Count, about("Documents that match")]


class DeletedDocumentResponse(wire.PlainResponse):
    """A document went."""

    status: Literal["deleted"] = "deleted"
    collection: str
    id: str


class DeletedMatchingResponse(wire.PlainResponse):
    """The documents that a filter let through went, or would go."""

    status: Literal["deleted", "preview"]
    collection: str
    count_deleted: Annotated[wire.Count, about("Number of deleted documents, or of those to delete")]
    ids: Annotated[list[str], about(f"Their ids, in order; the first {UNCONFIRMED} of them")]


class UpdatedDocumentResponse(wire.PlainResponse):
    """A document's metadata was stored; its text and vector are as they were."""

    status: Literal["success"] = "success"
    collection: str
    id: str
    metadata: ReturnedJson


class EmptiedCollectionResponse(wire.PlainResponse):
    """All documents went; the collection is there."""

    status: Literal["emptied"] = "emptied"
    collection: str
    count_deleted: wire.Count


class ValuesResponse(wire.PlainResponse):
    """The distinct values of a metadata field: numbers, then texts, then booleans, each in order."""

    field: str
    values: Annotated[list[Any], WithJsonSchema({"type": "array", "items": {"type": ["string", "number", "boolean"]}})]
    count: wire.Count


class QueryResult(wire.PlainResponse):
    """A document and how near it is."""

    id: str
    text: str
    metadata: ReturnedJson
    score: Annotated[
        float,
        about(
            "Higher is better. vector: the cosine to the query; text: the share of the query's words, by "
            "weight, that it holds; hybrid: the mean of both",
            ge=-1,
            le=1,
        ),
    ]
    cosine: Annotated[float | None, about("Its part of a hybrid score", ge=-1, le=1)] = None
    keywords: Annotated[float | None, about("Its part of a hybrid score", ge=0, le=1)] = None


class QueryResponse(wire.PlainResponse):
    """The best first, equal ones by id. By keywords and in hybrid mode, scores need not fall from one to the next."""

    results: list[QueryResult]


def page_size(requested: int) -> int:
    return min(requested, MAX_PAGE)


def sorted_values(values: list[Json]) -> list[Json]:
    """Numbers, then texts, then booleans, each in order."""
    ranks = {int: 0, float: 0, str: 1, bool: 2}
    return sorted(values, key=lambda value: (ranks[type(value)], value))
