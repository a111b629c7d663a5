"""Whose documents a request is about: the fields by which it names them."""

from typing import Annotated

from pydantic import Field

from rag_context.api.wire import Identifier, PathHash

Project = Annotated[
    Identifier | None, Field(description="Project the documents belong to; absent: the agents' own memory")
]
Branch = Annotated[Identifier | None, Field(description="Branch of the project")]
RootHash = Annotated[PathHash | None, Field(description="First 16 hex digits of the SHA-256 of the repository's root")]
