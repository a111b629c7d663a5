"""Links on any graph: the walk ends, keeps to depth and number, and goes the shortest way."""

from collections import deque
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from rag_context.projects.document_lists import Link, follow
from rag_context.projects.records import ProjectDocument, PromotionLevel

GRAPHS = st.dictionaries(st.integers(0, 12), st.lists(st.integers(0, 12), max_size=6), max_size=13)


def document(number: int) -> ProjectDocument:
    return ProjectDocument(
        id=str(number),
        path=str(number),
        title="",
        doc_type="document",
        promotion_level=PromotionLevel.STANDARD,
        char_count=0,
    )


async def walked(
    graph: Mapping[int, Sequence[int]], sources: Sequence[int], passed: Sequence[int], depth: int, most: int
) -> list[Link]:
    async def targets(source: ProjectDocument) -> list[ProjectDocument]:
        return [document(number) for number in graph.get(int(source.path), ())]

    return await follow(
        [document(number) for number in sources],
        targets,
        passed={str(number) for number in passed},
        max_depth=depth,
        max_count=most,
    )


def distances(graph: Mapping[int, Sequence[int]], sources: Sequence[int]) -> dict[int, int]:
    """How many links each node is away."""
    found = dict.fromkeys(sources, 0)
    waiting = deque(sources)
    while waiting:
        node = waiting.popleft()
        for target in graph.get(node, ()):
            if target not in found:
                found[target] = found[node] + 1
                waiting.append(target)
    return found


@given(
    GRAPHS,
    st.lists(st.integers(0, 12), unique=True, max_size=3),
    st.lists(st.integers(0, 12), max_size=4),
    st.integers(0, 5),
    st.integers(0, 8),
)
async def test_a_traversal_ends_and_keeps_to_its_bounds(
    graph: Mapping[int, Sequence[int]], sources: list[int], passed: list[int], depth: int, most: int
) -> None:
    links = await walked(graph, sources, passed, depth, most)
    away = distances(graph, sources)
    reachable = [node for node, steps in away.items() if 0 < steps <= depth and node not in passed]
    assert len(links) == min(most, len(reachable))
    assert len({link.document.path for link in links}) == len(links)
    for link in links:
        assert link.depth == away[int(link.document.path)]
        assert away[int(link.linked_from)] == link.depth - 1
        assert int(link.document.path) in graph[int(link.linked_from)]
    assert [link.depth for link in links] == sorted(link.depth for link in links)


async def test_ten_thousand_links_are_followed_only_as_far_as_requested() -> None:
    graph = {0: [0, *range(1, 10_001)], **{number: [0, number] for number in range(1, 10_001)}}
    links = await walked(graph, [0], [], 9, 5)
    assert [link.document.path for link in links] == ["1", "2", "3", "4", "5"]
