"""Projects and their documents: activating, reading, indexing, promoting, listing and deleting.

Names are snake_case here, on the wire too: that is how these tools are known to the agents that call them.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.json_schema import WithJsonSchema

from rag_context.api import wire
from rag_context.api.wire import about, whole

PATH_CHARS = 4096
Level = Literal["standard", "important", "critical"]
NullableText = Annotated[str | None, WithJsonSchema({"type": ["string", "null"]})]
NullableFlag = Annotated[bool | None, WithJsonSchema({"type": ["boolean", "null"]})]
NullableTime = Annotated[wire.UtcTime | None, WithJsonSchema({"type": ["string", "null"], "format": "date-time"})]
DocumentPath = Annotated[str, Field(min_length=1, max_length=PATH_CHARS, pattern=wire.PRESENT_PATTERN)]
NamedProject = Annotated[wire.Identifier | None, about("Name of the project; absent: the one that you activated")]
NamedBranch = Annotated[wire.Identifier | None, about("Branch of the project, if several are stored")]
NamedRoot = Annotated[
    wire.PathHash | None, about("First 16 hex digits of the SHA-256 of the repository's root, if several have the name")
]
Handle = Annotated[
    wire.Identifier | None,
    about("activation that activate_project returned; for clients without a session of their own"),
]
_Line = Annotated[int | None, whole("First line, from 1; absent: the first", ge=1)]


class InProjectRequest(wire.PlainRequest):
    """A request that may name a project; without one, it is about the activated one."""

    last = ("project", "branch", "path_hash", "activation")

    project: NamedProject = None
    branch: NamedBranch = None
    path_hash: NamedRoot = None
    activation: Handle = None


class NullsResponse(wire.PlainResponse):
    """A reply with every field, null where there is no value."""

    def to_json(self) -> bytes:
        """The body of a reply, fields without a value as null."""
        return self.__pydantic_serializer__.to_json(self, by_alias=True)


class ProjectResponse(NullsResponse):
    """The same, and for which project it is."""

    project_name: str
    branch_name: str
    path_hash: str


class ActivateProjectRequest(wire.PlainRequest):
    """Which project to work on."""

    config_path: Annotated[
        DocumentPath,
        about(
            "Path of the project's configuration (.rag-context/config.json), or of a folder in the "
            "project, on the machine that this server runs on"
        ),
    ]
    branch_name: Annotated[wire.Identifier | None, about("Branch; absent: the one that is checked out")] = None
    force: Annotated[wire.Flag, about("Index the files as branch_name although another branch is checked out")] = False


class TypeCount(wire.PlainResponse):
    """How many documents of a type there are."""

    name: str
    doc_count: wire.Count
    custom: Annotated[bool, about("Whether the project itself declares the type")] = False


class ActivateProjectResponse(ProjectResponse):
    """What is active now."""

    status: Annotated[Literal["activated"], WithJsonSchema({"type": "string", "enum": ["activated"]})]
    doc_types: list[TypeCount]
    total_docs: wire.Count
    activation: Annotated[str, about("Handle of this activation; pass it on if your client has no session")]
    complete: Annotated[bool, about("Whether all files are indexed; otherwise indexing continues in the background")]
    warnings: Annotated[list[str], about("Errors of single files; the others are indexed")]


class DeleteDocumentsRequest(wire.PlainRequest):
    """Whose documents to take out of the index; the files stay."""

    project_name: Annotated[wire.Identifier, about("Name of the project")]
    branch_name: Annotated[wire.Identifier | None, about("Only this branch; absent: all")] = None
    path_hash: Annotated[wire.PathHash | None, about("Only the repository with this hash; absent: all")] = None
    dry_run: Annotated[wire.Flag, about("Only report what would be deleted, and delete nothing")] = False
    activation: Handle = None


class DeleteDocumentsResponse(NullsResponse):
    """What is gone, or would be."""

    status: Literal["deleted", "preview"]
    deleted_count: wire.Count
    deleted_chunks: wire.Count
    project_name: str
    branch_name: NullableText = None
    path_hash: NullableText = None
    dry_run: bool


class ListProjectsRequest(wire.PlainRequest):
    """Nothing to say."""


class ListedProject(ProjectResponse):
    """A project, on one branch, at one place."""

    documents: Annotated[wire.Count, about("How many are indexed, external ones not counted")]
    last_used: Annotated[NullableTime, about("When it was activated or asked last; null: not known")] = None
    path: Annotated[NullableText, about("Root of its repository on the server; null: no files")] = None
    exists: Annotated[NullableFlag, about("Whether its files and its branch are there; null: not known")] = None
    followed: Annotated[bool, about("Whether the index follows its files now")]
    removed_after: Annotated[
        NullableTime, about("When it is removed unless its files come back or it is used; null: never")
    ] = None
    warnings: Annotated[list[str], about("Why the index may not be as the files are")]


class ListProjectsResponse(NullsResponse):
    """Every project that is stored."""

    projects: list[ListedProject]


class ReadDocumentRequest(InProjectRequest):
    """A document, or some of its lines."""

    path: Annotated[DocumentPath, about("Path of the document, relative to the docs folder")]
    start_line: _Line = None
    end_line: Annotated[_Line, about("Last line; absent: as much as fits into one reply")] = None


class ReadDocumentResponse(ProjectResponse):
    """The text as it was indexed, front matter included."""

    text_only: ClassVar[frozenset[str]] = frozenset({"content"})

    path: str
    title: str
    document_id: str
    doc_type: str
    promotion_level: Level
    content: Annotated[str, about("The lines; over MCP they are the text beside the structured content")] = ""
    start_line: Annotated[int, Field(ge=1)]
    end_line: Annotated[int, about("Last line of the reply; if truncated is true, more lines follow", ge=0)]
    total_lines: wire.Count
    truncated: Annotated[bool, about("Whether the reply ends before the last requested line")]
    superseded_by: Annotated[list[str], about("Paths of the documents that replace it")]


class IndexDocumentRequest(InProjectRequest):
    """A file to index now."""

    path: Annotated[DocumentPath, about("Path of the document, relative to the docs folder")]


class IndexDocumentResponse(ProjectResponse):
    """What became of it."""

    status: Annotated[Literal["indexed", "pending"], about("pending: keyword search finds it, its vectors follow")]
    path: str
    embedding_dimensions: Annotated[int, about("Length of its vectors; 0 while there are none", ge=0)]
    warnings: list[str]


class ListDocTypesRequest(InProjectRequest):
    """Whose document types to list."""


class DocType(wire.PlainResponse):
    """A kind of document."""

    name: str
    description: str
    folder: Annotated[str, about("Folder below the docs folder whose documents are of this type")]
    schema_: Annotated[
        dict[str, Any], about("JSON Schema of the front matter", alias="schema"), WithJsonSchema({"type": "object"})
    ]
    doc_count: wire.Count
    custom: Annotated[bool, about("Whether the project itself declares the type")] = False


class ListDocTypesResponse(ProjectResponse):
    """The kinds of document of a project."""

    doc_types: list[DocType]
    total_docs: wire.Count


class UpdatePromotionLevelRequest(InProjectRequest):
    """How much a document matters from now on."""

    document_path: Annotated[DocumentPath, about("Path of the document, relative to the docs folder")]
    promotion_level: Level


class UpdatePromotionLevelResponse(ProjectResponse):
    """What it was and what it is."""

    status: Annotated[Literal["updated"], WithJsonSchema({"type": "string", "enum": ["updated"]})]
    document_path: str
    previous_level: Level
    new_level: Level
