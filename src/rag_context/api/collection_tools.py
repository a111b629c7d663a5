"""What the operations of collections take: all their fields, the collection's name among them."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from rag_context.api.collection_fields import ConnectionFields, ValuesFields
from rag_context.api.collections import (
    DEFAULT_PAGE,
    ID_SCHEMA,
    MAX_PAGE,
    NAME_SCHEMA,
    STORED_SCHEMA,
    UNCONFIRMED,
    CreateCollectionRequest,
    MetadataRequest,
    QueryRequest,
    named,
)
from rag_context.api.wire import DOTS, Otherwise, Sentences, id_problem, whole


def _document_id(id_: str) -> str:
    problem = id_problem(id_)
    if problem:
        raise PydanticCustomError("sentence", "id {problem}", {"problem": problem})
    return id_


_NO_DOTS = {"not": {"enum": list(DOTS)}}
CollectionName = Annotated[
    str, AfterValidator(named), WithJsonSchema({**NAME_SCHEMA, **_NO_DOTS, "description": "Name of the collection"})
]
DocumentId = Annotated[
    str, AfterValidator(_document_id), WithJsonSchema({**ID_SCHEMA, **_NO_DOTS, "description": "Id of a document"})
]
_DOCUMENTS = {**STORED_SCHEMA, "items": {**STORED_SCHEMA["items"], "required": ["text"]}}
_Where = Annotated[
    dict[str, JsonValue] | None,
    Field(description='Only documents whose metadata matches this filter, such as {"doc_type": "code"}'),
]
_Merge = Annotated[bool, Field(description="Set these keys and keep the others"), Otherwise(False)]
_Ids = Annotated[list[DocumentId], Field(min_length=1, max_length=MAX_PAGE)]


class _OfACollection(ConnectionFields):
    """What every tool for one collection takes."""

    sentences: ClassVar[Mapping[str, Sentences]] = {"name": Sentences("name required")}

    name: CollectionName


class ListCollectionsTool(ConnectionFields):
    """Which connection's collections."""


class GetCollectionTool(_OfACollection):
    """Which collection."""


class DeleteCollectionTool(_OfACollection):
    """Which collection goes, with all that is in it."""


class CreateCollectionTool(CreateCollectionRequest, ConnectionFields):
    """A new collection, and where it shall live."""


class SetMetadataTool(MetadataRequest, _OfACollection):
    """A collection's metadata."""

    sentences: ClassVar[Mapping[str, Sentences]] = {**MetadataRequest.sentences, **_OfACollection.sentences}

    merge: _Merge = False


class AddDocumentsTool(_OfACollection):
    """Documents to store."""

    documents: Annotated[list[Any], WithJsonSchema(_DOCUMENTS)]


class DeleteDocumentRequest(_OfACollection):
    """Which document goes."""

    id: DocumentId


class EmptyCollectionRequest(_OfACollection):
    """Which collection loses its documents, and stays."""


class ListDocumentsTool(_OfACollection):
    """Which documents, and which part of them."""

    where: _Where = None
    ids: Annotated[_Ids | None, Field(description="Only these documents")] = None
    include: Annotated[Literal["embeddings"] | None, Field(description="Return the documents' vectors too")] = None
    limit: Annotated[
        int, Field(ge=1, description="Maximum number of documents"), BeforeValidator(whole), Otherwise(DEFAULT_PAGE)
    ] = DEFAULT_PAGE
    offset: Annotated[
        int, Field(ge=0, description="Number of documents to skip"), BeforeValidator(whole), Otherwise(0)
    ] = 0


class DeleteDocumentsTool(_OfACollection):
    """Which documents to delete, and how sure the caller is."""

    exactly_one_of: ClassVar[tuple[str, ...]] = ("ids", "where", "every")

    ids: Annotated[_Ids | None, Field(description="These documents")] = None
    where: _Where = None
    every: Annotated[Literal[True] | None, Field(description="true: every document; the collection stays")] = None
    dry_run: Annotated[bool, Field(description="Only report what would be deleted"), Otherwise(False)] = False
    confirm: Annotated[
        bool,
        Field(description=f"Delete also more than {UNCONFIRMED} documents, or more than half of the collection"),
        Otherwise(False),
    ] = False


class UpdateDocumentTool(MetadataRequest, _OfACollection):
    """A document's metadata."""

    sentences: ClassVar[Mapping[str, Sentences]] = {**MetadataRequest.sentences, **_OfACollection.sentences}

    id: DocumentId
    merge: _Merge = False


class ListValuesTool(ValuesFields, _OfACollection):
    """A metadata field."""

    sentences: ClassVar[Mapping[str, Sentences]] = {**ValuesFields.sentences, **_OfACollection.sentences}


class QueryTool(QueryRequest, _OfACollection):
    """What to find, and where."""
