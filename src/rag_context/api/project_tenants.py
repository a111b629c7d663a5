"""Which projects there are: taking one up, listing them, and forgetting one."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import WithJsonSchema

from rag_context.api.project_sources import NullableText
from rag_context.api.projects import DocumentPath, Handle, ProjectRequest, ProjectResponse
from rag_context.api.wire import Count, Identifier, Otherwise, PathHash, PlainResponse, UtcTime

NullableFlag = Annotated[bool | None, WithJsonSchema({"type": ["boolean", "null"]})]
NullableTime = Annotated[UtcTime | None, WithJsonSchema({"type": ["string", "null"], "format": "date-time"})]


class ActivateProjectRequest(ProjectRequest):
    """Which project to work on."""

    config_path: Annotated[
        DocumentPath,
        Field(
            description="Path of the project's configuration (.rag-context/config.json), or of a folder in the "
            "project, on the machine that this server runs on"
        ),
    ]
    branch_name: Annotated[Identifier | None, Field(description="Branch; absent: the one that is checked out")] = None
    force: Annotated[
        bool,
        Field(description="Index the files as branch_name although another branch is checked out"),
        Otherwise(False),
    ] = False


class TypeCount(PlainResponse):
    """How many documents of a type there are."""

    name: str
    doc_count: Count
    custom: Annotated[bool, Field(description="Whether the project itself declares the type")] = False


class ActivateProjectResponse(ProjectResponse):
    """What is active now."""

    status: Annotated[Literal["activated"], WithJsonSchema({"type": "string", "enum": ["activated"]})]
    doc_types: list[TypeCount]
    total_docs: Count
    activation: Annotated[str, Field(description="Handle of this activation; pass it on if your client has no session")]
    complete: Annotated[
        bool, Field(description="Whether all files are indexed; otherwise indexing continues in the background")
    ]
    warnings: Annotated[list[str], Field(description="Errors of single files; the others are indexed")]


class DeleteDocumentsRequest(ProjectRequest):
    """Whose documents to take out of the index; the files stay."""

    project_name: Annotated[Identifier, Field(description="Name of the project")]
    branch_name: Annotated[Identifier | None, Field(description="Only this branch; absent: all")] = None
    path_hash: Annotated[PathHash | None, Field(description="Only the repository with this hash; absent: all")] = None
    dry_run: Annotated[
        bool, Field(description="Only report what would be deleted, and delete nothing"), Otherwise(False)
    ] = False
    activation: Handle = None


class DeleteDocumentsResponse(PlainResponse):
    """What is gone, or would be."""

    status: Literal["deleted", "preview"]
    deleted_count: Count
    deleted_chunks: Count
    project_name: str
    branch_name: NullableText = None
    path_hash: NullableText = None
    dry_run: bool

    def to_json(self) -> bytes:
        """The body of a reply, fields without a value as null."""
        return self.__pydantic_serializer__.to_json(self, by_alias=True)


class ListProjectsRequest(ProjectRequest):
    """Nothing to say."""


class ListedProject(ProjectResponse):
    """A project, on one branch, at one place."""

    documents: Annotated[Count, Field(description="How many are indexed, external ones not counted")]
    last_used: Annotated[NullableTime, Field(description="When it was activated or asked last; null: not known")] = None
    path: Annotated[NullableText, Field(description="Root of its repository on the server; null: no files")] = None
    exists: Annotated[
        NullableFlag, Field(description="Whether its files and its branch are there; null: not known")
    ] = None
    followed: Annotated[bool, Field(description="Whether the index follows its files now")]
    removed_after: Annotated[
        NullableTime, Field(description="When it is removed unless its files come back or it is used; null: never")
    ] = None
    warnings: Annotated[list[str], Field(description="Why the index may not be as the files are")]


class ListProjectsResponse(PlainResponse):
    """Every project that is stored."""

    projects: list[ListedProject]

    def to_json(self) -> bytes:
        """The body of a reply, fields without a value as null."""
        return self.__pydantic_serializer__.to_json(self, by_alias=True)
