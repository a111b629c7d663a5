"""Every operation, declared once: what HTTP, MCP, OpenAPI, the client, the command line and the reference share.

Here is what an operation is: its name, what it takes and returns, who may call it, and its description. `memory`,
`projects` and `collections` declare them; `routes` has all of them, and the further addresses of some. A
command that needs one imports the module where it is declared, and starts faster.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, TypeVar

from rag_context.api.toolsets import Toolset
from rag_context.api.wire import Schema, WireRequest, WireResponse, json_schema

Request = TypeVar("Request", bound=WireRequest)
Response = TypeVar("Response", bound=WireResponse)


class Access(StrEnum):
    """What a caller may do, each more than the one before."""

    READ = "read"
    ADD = "add"
    """Stores documents of its own; corrects, replaces, forgets and deletes nothing that is there."""
    WRITE = "write"
    ADMIN = "admin"
    """Whatever can reach beyond the memory: opening providers by a configuration of the caller's."""

    def allows(self, needed: "Access") -> bool:
        every = list(Access)
        return every.index(self) >= every.index(needed)


class Reach(StrEnum):
    """What an operation can touch, which decides how it is kept within the bounds of a key (`memory.bounded`)."""

    EVERYTHING = "everything"
    """No key with bounds may call it."""

    DOCUMENTS = "documents"
    """It reads and writes documents by the ports, which are those of the key's part."""

    PROJECT = "project"
    """It is about the project that the request names, or lists projects."""

    COLLECTIONS = "collections"
    """It is about the collections that the request names, or lists collections."""


@dataclass(frozen=True, kw_only=True)
class Operation(Generic[Request, Response]):
    """One operation. `description` is written for a model that must choose; `example` is a body it takes."""

    name: str
    title: str
    description: str
    request: type[Request]
    response: type[Response]
    example: Mapping[str, Any]
    access: Access = Access.READ
    reach: Reach = Reach.EVERYTHING
    read_only: bool = True
    destructive: bool = False
    idempotent: bool = True
    names_one: bool = False
    """Whether it is about one thing that may not be there (404)."""
    may_conflict: bool = False
    """Whether another caller may have changed what it changes (409)."""
    is_tool: bool = True
    """Whether it is a tool at `/tools/NAME`; else it is reached by its REST address only."""
    toolset: Toolset = Toolset.MEMORY
    needs_project: bool = False
    """Whether a project must be active, or named (409)."""
    is_large: bool = False
    """Whether it takes a whole document: the larger limit holds for its body."""
    in_url: bool = False
    """Whether GET works too, with the fields in the query string."""
    command: str | None = None
    """The command of the command line that runs it, with an option for each field; by default named as `method`."""
    method: str | None = None
    """The client's method for it, with a parameter for each field; without one it is called by `Client.call`."""
    omitted: Mapping[str, str] = field(default_factory=dict)
    """What an interface leaves out, with the reason: `cli`, `cli.FIELD`, `client.FIELD`, `rest` or `rest.FIELD`."""

    def __post_init__(self) -> None:
        if self.command is None and "cli" not in self.omitted:
            object.__setattr__(self, "command", self.method)

    @property
    def path(self) -> str:
        """Its address; it is called with POST."""
        return f"/tools/{self.name}"

    @cached_property
    def input_schema(self) -> Schema:
        return json_schema(self.request, "validation")

    @cached_property
    def output_schema(self) -> Schema:
        return json_schema(self.response, "serialization")

    @property
    def may_be_empty(self) -> bool:
        required = any(field.is_required() for field in self.request.model_fields.values())
        return not required and not self.request.exactly_one_of
