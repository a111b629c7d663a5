"""The index of a docs folder follows its files."""

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_context.domain.documents import Tenant
from rag_context.errors import BackendUnavailableError
from rag_context.projects.project_documents import DocsFolder
from rag_context.projects.sync import FileOutcome, Synchroniser, SyncProgress, SyncReport, patterns
from rag_context.testing import Fault
from tests.projects.sync_harness import TENANT, SyncHarness, built_in, open_sync_harness, write

LONG = "\n\n".join(
    f"Paragraph {number} speaks of matter number {number} and of nothing else at all." for number in range(40)
)


def outcomes(report: SyncReport) -> dict[str, str]:
    return {receipt.path: receipt.outcome.value for receipt in report.receipts}


def said(report: SyncReport) -> dict[str, str | None]:
    return {receipt.path: receipt.reason for receipt in report.receipts if receipt.outcome is FileOutcome.REJECTED}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    return (tmp_path / "docs").resolve()


async def test_new_changed_and_deleted_files_are_distinguished(harness: SyncHarness, docs: Path) -> None:
    keeper = harness.synchroniser(docs)
    write(docs / "a.md", "# A\n")
    write(docs / "sub" / "b.md", "# B\n")
    assert outcomes(await keeper.reconcile()) == {"a.md": "indexed", "sub/b.md": "indexed"}
    assert outcomes(await keeper.reconcile()) == {"a.md": "unchanged", "sub/b.md": "unchanged"}
    write(docs / "a.md", "# A2\n")
    (docs / "sub" / "b.md").unlink()
    write(docs / "c.md", "# C\n")
    assert outcomes(await keeper.reconcile()) == {"a.md": "replaced", "c.md": "indexed", "sub/b.md": "removed"}
    assert await harness.contents() == {"a.md": "# A2\n", "c.md": "# C\n"}


async def test_unchanged_files_are_neither_embedded_nor_written(harness: SyncHarness, docs: Path) -> None:
    for number in range(20):
        write(docs / f"{number}.md", f"# {number}\n\n{LONG}")
    await harness.synchroniser(docs).reconcile()
    embedded, written, version = await harness.embedded(), harness.writer.calls, harness.documents.version
    os.utime(docs / "3.md", (1, 1))
    assert set(outcomes(await harness.synchroniser(docs).reconcile()).values()) == {"unchanged"}
    assert (await harness.embedded(), harness.writer.calls, harness.documents.version) == (embedded, written, version)


async def test_a_renamed_file_is_not_embedded_again(harness: SyncHarness, docs: Path) -> None:
    keeper = harness.synchroniser(docs)
    write(docs / "old" / "a.md", LONG)
    write(docs / "b.md", "# B\n")
    await keeper.reconcile()
    before = await harness.embedded()
    (docs / "old").rename(docs / "new")
    report = await keeper.reconcile()
    assert outcomes(report) == {"new/a.md": "renamed", "b.md": "unchanged"}
    assert [receipt.renamed_from for receipt in report.changed] == ["old/a.md"]
    assert await harness.embedded() == before
    assert set(await harness.contents()) == {"new/a.md", "b.md"}
    assert (await harness.documents.counts()).pending == 0


async def test_of_an_edited_file_only_the_edit_is_embedded(harness: SyncHarness, docs: Path) -> None:
    keeper = harness.synchroniser(docs)
    write(docs / "a.md", f"# A\n\n## One\n\n{LONG}\n\n## Two\n\n{LONG}\n")
    await keeper.reconcile()
    whole = await harness.embedded()
    write(docs / "a.md", f"# A\n\n## Zero\n\nNew.\n\n## One\n\n{LONG}\n\n## Two\n\n{LONG}\n")
    assert outcomes(await keeper.reconcile()) == {"a.md": "replaced"}
    assert 1 <= await harness.embedded() - whole <= 2


async def test_another_branch_of_the_same_files_is_not_embedded_again(harness: SyncHarness, docs: Path) -> None:
    write(docs / "a.md", LONG)
    await harness.synchroniser(docs).reconcile()
    before = await harness.embedded()
    other = Tenant(TENANT.project, "next", TENANT.path_hash)
    keeper = Synchroniser(
        DocsFolder(other, docs, built_in()), harness.indexer, harness.document_lists, related_tenants=[TENANT]
    )
    assert outcomes(await keeper.reconcile()) == {"a.md": "indexed"}
    assert await harness.embedded() == before
    assert await harness.contents(other) == await harness.contents(TENANT)


async def test_one_bad_file_stops_nothing(harness: SyncHarness, docs: Path) -> None:
    write(docs / "good.md", "# Good\n")
    (docs / "binary.md").write_bytes(b"\x00\x01\x02" * 100)
    (docs / "latin.md").write_bytes(b"caf\xe9")
    (docs / "empty.md").write_bytes(b"")
    (docs / "blank.md").write_bytes(b" \n\n")
    (docs / "large.md").write_bytes(b"x" * ((1 << 20) + 1))
    (docs / "outside.md").symlink_to(docs.parent / "store")
    (docs / "nowhere.md").symlink_to(docs / "gone.md")
    os.mkfifo(docs / "pipe.md")
    (docs / "folder.md").mkdir()
    write(docs / "broken.md", "---\ntitle: [x\n---\ntext\n")
    write(docs / "picture.png", "not a document")
    report = await harness.synchroniser(docs).reconcile()
    reasons = said(report)
    assert set(reasons) == {
        "binary.md", "latin.md", "empty.md", "blank.md", "large.md", "outside.md", "nowhere.md", "pipe.md"
    }  # fmt: skip
    assert "binary" in str(reasons["binary.md"])
    assert "UTF-8" in str(reasons["latin.md"])
    assert "larger than" in str(reasons["large.md"])
    assert set(await harness.contents()) == {"good.md", "broken.md"}
    broken = next(receipt for receipt in report.receipts if receipt.path == "broken.md")
    assert "not valid YAML" in broken.warnings[0]


async def test_a_file_that_became_unusable_is_taken_out(harness: SyncHarness, docs: Path) -> None:
    write(docs / "a.md", "# A\n")
    await harness.synchroniser(docs).reconcile()
    (docs / "a.md").write_bytes(b"\0\0\0")
    report = await harness.synchroniser(docs).reconcile()
    assert "binary" in str([receipt.reason for receipt in report.receipts])
    assert await harness.contents() == {}


async def test_documents_stay_while_their_folder_cannot_be_seen(harness: SyncHarness, docs: Path) -> None:
    write(docs / "a.md", "# A\n")
    keeper = harness.synchroniser(docs)
    await keeper.reconcile()
    shutil.move(docs, docs.parent / "elsewhere")
    report = await keeper.reconcile()
    assert set(await harness.contents()) == {"a.md"}
    assert report.incomplete
    assert "cannot be read" in str(said(report)["."])
    shutil.move(docs.parent / "elsewhere", docs)
    assert outcomes(await keeper.reconcile()) == {"a.md": "unchanged"}


async def test_ignored_files_are_no_documents(harness: SyncHarness, docs: Path) -> None:
    write(docs / "a.md", "# A\n")
    write(docs / "drafts" / "b.md", "# B\n")
    keeper = harness.synchroniser(docs)
    await keeper.reconcile()
    write(docs / ".gitignore", "drafts/\n")
    assert outcomes(await keeper.follow({docs / ".gitignore"})) == {"a.md": "unchanged", "drafts/b.md": "removed"}
    assert (await keeper.index("drafts/b.md")).outcome is FileOutcome.REJECTED
    assert set(await harness.contents()) == {"a.md"}


async def test_following_looks_at_what_changed_and_at_nothing_else(harness: SyncHarness, docs: Path) -> None:
    keeper = harness.synchroniser(docs)
    for name in ("a.md", "b.md", "sub/c.md", "sub/d.md"):
        write(docs / name, f"# {name}\n")
    await keeper.reconcile()
    for name in ("a.md", "b.md", "sub/c.md"):
        write(docs / name, f"# changed {name}\n")
    assert outcomes(await keeper.follow({docs / "a.md"})) == {"a.md": "replaced"}
    assert outcomes(await keeper.follow({docs / "sub"})) == {"sub/c.md": "replaced", "sub/d.md": "unchanged"}
    shutil.rmtree(docs / "sub")
    assert outcomes(await keeper.follow({docs / "sub" / "c.md"})) == {"sub/c.md": "removed"}
    assert outcomes(await keeper.follow({docs / "sub"})) == {"sub/d.md": "removed"}
    assert outcomes(await keeper.follow({docs.parent / "elsewhere.md"})) == {}
    assert outcomes(await keeper.follow({docs})) == {"a.md": "unchanged", "b.md": "replaced"}


async def test_what_could_not_be_stored_is_reported_and_stored_the_next_time(harness: SyncHarness, docs: Path) -> None:
    write(docs / "a.md", "# A\n")
    write(docs / "b.md", "# B\n")
    harness.writer.fault = Fault(BackendUnavailableError("documents", "disk full"))
    report = await harness.synchroniser(docs).reconcile()
    assert report.incomplete
    assert "disk full" in str(said(report)["a.md"])
    harness.writer.fault = None
    assert outcomes(await harness.synchroniser(docs).reconcile()) == {"a.md": "indexed", "b.md": "indexed"}


async def test_progress_is_reported_file_by_file(harness: SyncHarness, docs: Path) -> None:
    for number in range(7):
        write(docs / f"{number}.md", f"# {number}\n")
    received: list[SyncProgress] = []
    await harness.synchroniser(docs).reconcile(received.append)
    assert [progress.done for progress in received] == list(range(1, 8))
    assert {progress.total for progress in received} == {7}
    assert Counter(str(progress.receipt and progress.receipt.outcome) for progress in received) == {"indexed": 7}


async def test_patterns_choose_the_documents(harness: SyncHarness, docs: Path) -> None:
    for name in ("a.md", "api/b.md", "api/old/c.md", "api/d.txt"):
        write(docs / name, f"# {name}\n")
    scope = patterns(["api/**/*.md", "api/*.md"], ["old/"])
    keeper = Synchroniser(DocsFolder(TENANT, docs, built_in()), harness.indexer, harness.document_lists, scope=scope)
    await keeper.reconcile()
    assert set(await harness.contents()) == {"api/b.md"}


NAMES = st.sampled_from(["a.md", "b.md", "x/a.md", "x/c.md", "x/y/d.md", "e.txt"])
TEXTS = st.sampled_from(["# One\n", "# Two\n\n[a](a.md)\n", "---\npromotion_level: critical\n---\n# Three\n", "", "\0"])
OPERATIONS = st.lists(
    st.tuples(st.just("write"), NAMES, TEXTS)
    | st.tuples(st.just("delete"), NAMES, st.just(""))
    | st.tuples(st.just("rename"), NAMES, NAMES)
    | st.tuples(st.just("clear"), st.sampled_from(["x", "x/y"]), st.just(""))
    | st.tuples(st.just("ignore"), st.sampled_from(["x/", "a.md", ""]), st.just(""))
    | st.tuples(st.just("sync"), st.just(""), st.just("")),
    max_size=14,
)


def carried_out(docs: Path, kind: str, name: str, what: str) -> set[Path]:
    """Do something to the files; returns what a watcher would tell."""
    place = docs / name
    if kind == "write":
        write(place, what)
    elif kind == "delete":
        place.unlink(missing_ok=True)
    elif kind == "clear":
        shutil.rmtree(place, ignore_errors=True)
    elif kind == "ignore":
        place = write(docs / ".ragignore", f"{name}\n")
    elif kind == "rename" and place.is_file():
        (docs / what).parent.mkdir(parents=True, exist_ok=True)
        place.rename(docs / what)
        return {place, docs / what}
    return {place}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
async def test_after_any_changes_the_index_is_as_a_fresh_one(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("random").resolve()
    docs = folder / "docs"
    docs.mkdir()
    fresh = Tenant("fresh")
    async with open_sync_harness(folder) as harness:
        keeper = harness.synchroniser(docs)
        changed: set[Path] = set()
        for kind, name, what in operations:
            if kind == "sync":
                await keeper.follow(changed)
                changed = set()
            else:
                changed |= carried_out(docs, kind, name, what)
        await keeper.follow(changed)
        await harness.synchroniser(docs, fresh).reconcile()
        assert await harness.contents(TENANT) == await harness.contents(fresh)
        mine, theirs = await harness.document_lists.of(TENANT), await harness.document_lists.of(fresh)
        assert [known(each) for each in mine.documents] == [known(each) for each in theirs.documents]
        counts = await harness.documents.counts()
        assert counts.pending == 0
        assert counts.vectors == counts.chunks


def known(document: object) -> str:
    """All that is known of a document but its id, which its tenant is part of."""
    return str(document).split("path=", 1)[1]
