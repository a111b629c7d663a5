"""The sets of tools that `mcp` can offer, by the names that `--tools` takes."""

from typing import Final

from rag_context.errors import InvalidInputError

MEMORY: Final = "memory"
TOOLSETS: Final = (MEMORY, "operations", "projects", "collections", "all")
"""The agents' memory, looking after it, project documents, named collections, or everything."""


def check_toolset(tools: str) -> None:
    """Raises: InvalidInputError (there is no such set)."""
    if tools not in TOOLSETS:
        raise InvalidInputError(f"--tools {tools}: say one of {', '.join(TOOLSETS)}")
