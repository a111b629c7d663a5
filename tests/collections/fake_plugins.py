"""What entry points of plug-ins may lead to, good and bad."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from pydantic import BaseModel, DirectoryPath, FilePath, SecretStr

from rag_context.collections.registry import ProviderKind
from rag_context.errors import ConfigurationError
from rag_context.ports.provider import Capabilities, Provider, ProviderHealth
from tests.collections.memory_collections import MemoryCollections


class Configuration(BaseModel):
    """Of a provider that counts how it is opened and closed."""

    place: str
    limit: int = 5
    key: SecretStr | None = None


OPENED: list[str] = []


@asynccontextmanager
async def opened(configuration: Configuration) -> AsyncIterator[Provider]:
    OPENED.append(f"open {configuration.place}")
    if configuration.place == "explodes":
        raise ValueError("the place exploded")  # as another program would
    if configuration.place == "impossible":
        raise ConfigurationError("There is no such place.")
    yield MemoryCollections()
    OPENED.append(f"close {configuration.place}")


GOOD = ProviderKind("good", "A good one", Capabilities(embeddings=True), Configuration, opened)
ELSEWHERE = replace(GOOD, title="Another of the same name")
QDRANT = replace(GOOD, name="qdrant", title="Not Qdrant")
SHOUTING = replace(GOOD, name="SHOUTING")


class Odd:
    """A type that pydantic does not know."""


class WithOdd(BaseModel):
    """Its schema cannot be made."""

    model_config = {"arbitrary_types_allowed": True}
    odd: Odd


BLAND = replace(GOOD, name="bland", capabilities={"search": True})  # type: ignore[arg-type]
UNTITLED = replace(GOOD, name="untitled", title=None)  # type: ignore[arg-type]


class Erratic(MemoryCollections):
    """Breaks the promise that asking for its health never fails."""

    async def health(self) -> ProviderHealth:
        raise KeyError("size")


class Nothing(BaseModel):
    """Of a provider that needs no options."""


class InFolders(BaseModel):
    """Of a provider that keeps things on the disk."""

    place: DirectoryPath
    index: FilePath | None = None


@asynccontextmanager
async def opened_erratic(_: BaseModel) -> AsyncIterator[Provider]:
    yield Erratic()


ERRATIC = ProviderKind("erratic", "Erratic", Capabilities(), Nothing, opened_erratic)
IN_FOLDERS = ProviderKind("in-folders", "In folders", Capabilities(), InFolders, opened_erratic)
SCHEMALESS = ProviderKind("schemaless", "Without a schema", Capabilities(), WithOdd, opened)  # type: ignore[arg-type]
NUMBER = 7
