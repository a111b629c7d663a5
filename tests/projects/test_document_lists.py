"""The list of a project's documents, and following their links."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.documents import DocumentInput, Tenant
from rag_context.errors import BackendUnavailableError
from rag_context.projects.document_lists import DocumentList, DocumentLists, Link, follow
from rag_context.projects.records import ProjectDocument, PromotionLevel
from rag_context.testing import Fault, Faulty
from tests.projects.sync_harness import TENANT, SyncHarness, write


async def indexed(harness: SyncHarness, docs: Path) -> DocumentList:
    await harness.synchroniser(docs).reconcile()
    return await harness.document_lists.of(TENANT)


def paths(documents: object) -> list[str]:
    assert isinstance(documents, tuple)
    return [document.path for document in documents]


async def test_documents_are_found_by_path_and_by_id(harness: SyncHarness, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs / "problems" / "b.md", "# B\n")
    write(docs / "a.md", "---\npromotion_level: critical\n---\n# A\n")
    catalogue = await indexed(harness, docs)
    assert paths(catalogue.documents) == ["a.md", "problems/b.md"]
    found = catalogue.by_path("problems/b.md")
    assert found is not None
    assert catalogue.by_id(found.id) == found
    assert catalogue.by_path("b.md") is None
    assert paths(catalogue.critical()) == ["a.md"]
    assert catalogue.counts == {"problem": 1, "document": 1}


async def test_an_unknown_tenant_has_an_empty_catalogue(harness: SyncHarness) -> None:
    catalogue = await harness.document_lists.of(Tenant("nobody"))
    assert catalogue.documents == ()


async def test_a_catalogue_follows_every_change(harness: SyncHarness, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    for number in range(30):
        write(docs / f"{number}.md", f"# {number}\n")
    before = await indexed(harness, docs)
    assert await harness.document_lists.of(TENANT) is before
    write(docs / "0.md", "---\ntitle: Changed\n---\n")
    write(docs / "new.md", "# New\n")
    (docs / "1.md").unlink()
    after = await indexed(harness, docs)
    assert len(after.documents) == 30
    changed = after.by_path("0.md")
    assert changed is not None
    assert changed.title == "Changed"
    assert after.by_path("1.md") is None
    assert paths(after.documents) == paths((await DocumentLists(harness.documents).of(TENANT)).documents)


async def test_what_others_write_costs_no_second_reading(harness: SyncHarness, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    for number in range(30):
        write(docs / f"{number}.md", f"# {number}\n")
    before = await indexed(harness, docs)
    counted = Faulty(harness.documents, "listing", "get")
    document_lists = DocumentLists(counted.port)
    await document_lists.of(TENANT)
    read = counted.calls
    await harness.indexer.index(DocumentInput("somebody else's", "chat", "s", "x"))
    assert paths((await document_lists.of(TENANT)).documents) == paths(before.documents)
    assert counted.calls == read


async def test_links_lead_to_existing_documents_once_and_not_to_itself(harness: SyncHarness, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    text = (
        "[1](sub/b.md) [2](sub/b.md#x) [self](a.md) [gone](gone.md) [out](../../x.md) <https://w> [3](../docs/c.md)\n"
    )
    write(docs / "a.md", f"---\nrelated_docs: [c.md, gone.md, a.md]\nsummary: '[no](d.md)'\n---\n{text}")
    write(docs / "sub" / "b.md", "[up](../a.md) [docs](./docs/c.md)\n")
    write(docs / "c.md", "x\n")
    write(docs / "d.md", "x\n")
    catalogue = await indexed(harness, docs)
    a, b = catalogue.by_path("a.md"), catalogue.by_path("sub/b.md")
    assert a is not None
    assert b is not None
    assert paths(await catalogue.links(a)) == ["sub/b.md", "c.md"]
    assert paths(await catalogue.links(b)) == ["a.md", "c.md"]
    assert paths(catalogue.related(a)) == ["c.md"]


async def test_links_are_read_again_after_an_edit_and_not_before(harness: SyncHarness, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs / "a.md", "[b](b.md)\n")
    write(docs / "b.md", "b\n")
    write(docs / "c.md", "c\n")
    await indexed(harness, docs)
    counted = Faulty(harness.documents, "get")
    document_lists = DocumentLists(counted.port)
    for _ in range(3):
        catalogue = await document_lists.of(TENANT)
        a = catalogue.by_path("a.md")
        assert a is not None
        assert paths(await catalogue.links(a)) == ["b.md"]
    read = counted.calls
    write(docs / "a.md", "[c](c.md)\n")
    await harness.synchroniser(docs).reconcile()
    catalogue = await document_lists.of(TENANT)
    a = catalogue.by_path("a.md")
    assert a is not None
    assert paths(await catalogue.links(a)) == ["c.md"]
    assert counted.calls > read


async def test_links_that_a_caller_could_not_wait_for_are_read_once_all_the_same(
    harness: SyncHarness, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    write(docs / "a.md", "[b](b.md)\n")
    write(docs / "b.md", "b\n")
    await indexed(harness, docs)
    slow = Faulty(harness.documents, "get")
    catalogue = await DocumentLists(slow.port).of(TENANT)
    a = catalogue.by_path("a.md")
    assert a is not None
    read = slow.calls
    slow.fault = Fault(delay_s=0.1)
    asking = [asyncio.create_task(catalogue.links(a)) for _ in range(2)]
    while slow.calls == read:
        await asyncio.sleep(0)
    asking[0].cancel()
    assert paths(await asking[1]) == ["b.md"]
    assert paths(await catalogue.links(a)) == ["b.md"]
    assert slow.calls == read + 1


async def test_links_that_cannot_be_read_are_read_the_next_time(harness: SyncHarness, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs / "a.md", "[b](b.md)\n")
    write(docs / "b.md", "b\n")
    await indexed(harness, docs)
    broken = Faulty(harness.documents, "get")
    catalogue = await DocumentLists(broken.port).of(TENANT)
    a = catalogue.by_path("a.md")
    assert a is not None
    broken.fault = Fault(BackendUnavailableError("documents", "gone"))
    with pytest.raises(BackendUnavailableError):
        await catalogue.links(a)
    broken.fault = None
    assert paths(await catalogue.links(a)) == ["b.md"]


async def test_a_newer_document_hides_the_one_it_supersedes(harness: SyncHarness, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs / "problems" / "old.md", "old\n")
    write(docs / "problems" / "new.md", "---\nsupersedes: problems/old.md\n---\n")
    write(docs / "problems" / "newest.md", "---\nsupersedes: [./new.md, gone.md]\n---\n")
    write(docs / "self.md", "---\nsupersedes: self.md\n---\n")
    catalogue = await indexed(harness, docs)
    assert catalogue.superseded_by("problems/old.md") == ("problems/new.md",)
    assert catalogue.superseded_by("problems/new.md") == ("problems/newest.md",)
    assert catalogue.superseded_by("problems/newest.md") == ()
    assert catalogue.superseded_by("self.md") == ()


async def test_documents_that_supersede_each_other_all_hold(harness: SyncHarness, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    write(docs / "a.md", "---\nsupersedes: b.md\n---\n")
    write(docs / "b.md", "---\nsupersedes: c.md\n---\n")
    write(docs / "c.md", "---\nsupersedes: [a.md, d.md]\n---\n")
    write(docs / "d.md", "old\n")
    catalogue = await indexed(harness, docs)
    assert [catalogue.superseded_by(path) for path in ("a.md", "b.md", "c.md")] == [(), (), ()]
    assert catalogue.superseded_by("d.md") == ("c.md",)


@given(st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdef"), max_size=4), max_size=6))
def test_supersession_never_hides_everything(edges: dict[str, list[str]]) -> None:
    from rag_context.projects.document_lists import _Entry, _LinkReader
    from rag_context.projects.records import ProjectDocument, PromotionLevel
    from tests.memory_stores import MemoryStore

    entries = {
        name: _Entry(
            "hash",
            ProjectDocument(
                id=name,
                path=f"{name}.md",
                title=name,
                doc_type="document",
                promotion_level=PromotionLevel.STANDARD,
                char_count=1,
                supersedes=tuple(f"{other}.md" for other in edges[name]),
                docs_folder="/docs",
            ),
        )
        for name in edges
    }
    catalogue = DocumentList(TENANT, entries, _LinkReader(MemoryStore()))
    holding = [each.path for each in catalogue.documents if not catalogue.superseded_by(each.path)]
    assert holding or not edges


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
