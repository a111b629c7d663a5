"""Which tools a client of MCP is offered: sets, by name. It needs no library, so that a start is quick."""

from collections.abc import Iterable
from enum import StrEnum


class Toolset(StrEnum):
    MEMORY = "memory"
    OPERATIONS = "operations"
    PROJECTS = "projects"
    COLLECTIONS = "collections"
    SEARCH_FETCH = "search-fetch"


Toolsets = frozenset[Toolset]

MEMORY_TOOLS: Toolsets = frozenset({Toolset.MEMORY})
"""What an agent needs; more tools cost it tokens in each request."""

ALL_TOOLS: Toolsets = frozenset(Toolset)
TOOLSET_NAMES = (*Toolset, "all")


def toolsets_named(text: str) -> Toolsets:
    """The sets that `text` names, separated by commas. Raises: InvalidInputError (there is no such set)."""
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in TOOLSET_NAMES]
    if unknown:
        from rag_context.errors import InvalidInputError  # noqa: PLC0415  (`mcp` answers its client without it)

        raise InvalidInputError(f"tools {text[:128]!r}: say one or more of {', '.join(TOOLSET_NAMES)}")
    return ALL_TOOLS if "all" in names else frozenset(Toolset(name) for name in names)


def names_of(toolsets: Iterable[Toolset]) -> str:
    """The sets as `toolsets_named` reads them."""
    chosen = frozenset(toolsets)
    return "all" if chosen == ALL_TOOLS else ",".join(each for each in Toolset if each in chosen)
