"""Following links from document to document, breadth first. It ends on any graph."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from rag_context.projects.records import ProjectDocument


@dataclass(frozen=True, slots=True)
class Link:
    """A document that was reached, by which document's link, in how many steps (from 1)."""

    document: ProjectDocument
    linked_from: str
    depth: int


async def follow(
    sources: Sequence[ProjectDocument],
    targets: Callable[[ProjectDocument], Awaitable[Sequence[ProjectDocument]]],
    *,
    passed: Collection[str] = (),
    max_depth: int,
    max_count: int,
) -> list[Link]:
    """The documents that links lead to, nearest first, in reading order; every document is entered once at most.

    Args:
        sources: where to begin; never among what is reached.
        targets: the documents that a document links to.
        passed: paths of documents that are gone through and not listed, since they stand elsewhere already.
        max_depth: most steps from a source.
        max_count: most documents listed.
    """
    found: list[Link] = []
    visited = {document.path for document in sources}
    level = list(sources)
    for depth in range(1, max_depth + 1):
        following: list[ProjectDocument] = []
        for document in level:
            if len(found) >= max_count:
                return found
            for target in await targets(document):
                if target.path in visited:
                    continue
                visited.add(target.path)
                following.append(target)
                if target.path not in passed:
                    found.append(Link(target, document.path, depth))
                    if len(found) >= max_count:
                        return found
        level = following
    return found
