"""Folders in step with the index: what is read, what is sent, what is reported, what goes (C-3, C-5, D-7)."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rag_context.domain.documents import Metadata
from rag_context.errors import BackendUnavailableError
from rag_context.files.file_reading import Labels, stamp_of
from rag_context.files.folder_sync import Gone
from rag_context.files.walk import Root, roots
from rag_context.ports.writing import FileManifest
from rag_context.stores.machine_tables import FILES_NAME, open_file_manifest

from .index_target import MAX_BYTES, CollectedReceipts, IndexTarget, syncing

NOT_RACY_NS = -(10**18)
"""Lets every stamp be believed, also one of just now."""


class SyncedFolder:
    """A folder, an index, and the manifest of what was sent."""

    def __init__(self, folder: Path, ledger: FileManifest) -> None:
        self.folder = folder
        self.ledger = ledger
        self.target = IndexTarget()
        self.received = CollectedReceipts()

    def write(self, name: str, content: str | bytes = "text") -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    async def run(
        self, *paths: Path, gone: Gone = Gone.REMOVE, labels: Labels | None = None, racy_ns: int | None = None
    ) -> list[tuple[str, str]]:
        with syncing(self.target, self.ledger, self.received, gone=gone, labels=labels, racy_ns=racy_ns) as sync:
            await sync.run(roots(paths or [self.folder]))
        return self.received.take(self.folder)

    async def names(self) -> list[str]:
        return sorted(source.removeprefix(f"{self.folder}/") for source in await self.target.state())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[SyncedFolder]:
    folder = tmp_path / "folder"
    folder.mkdir()
    with open_file_manifest(tmp_path) as ledger:
        yield SyncedFolder(folder, ledger)


async def test_so_many_new_documents_have_their_vectors_at_once_and_so_long_ones(place: SyncedFolder) -> None:
    for number in range(60):
        place.write(f"{number:02d}.md", f"{number:02d}".ljust(MAX_BYTES - 10, "a"))
    await place.run()
    assert [line.defer_vectors for line in place.target.lines] == [False] * 50 + [True] * 10


class TestUnchanged:
    """A second run sends nothing and embeds nothing."""

    async def test_what_was_left_alone_is_not_even_read(self, place: SyncedFolder) -> None:
        path = place.write("a.md", "one")
        await place.run()
        status = path.stat()
        sent = len(place.target.lines)
        path.write_text("two")  # of the same size, at what is made to look like the same time
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        (entry,) = place.ledger.below(path.as_posix())
        place.ledger.put([replace(entry, stamp=stamp_of(path.stat()))])

        assert await place.run(racy_ns=NOT_RACY_NS) == [("unchanged", "a.md")]
        assert len(place.target.lines) == sent
        assert await place.run() == [("replaced", "a.md")], "changed too shortly before it was read to be believed"

    async def test_a_file_that_was_only_touched_is_read_and_not_sent(self, place: SyncedFolder) -> None:
        path = place.write("a.md")
        await place.run()
        os.utime(path, ns=(1, 1))

        assert await place.run(racy_ns=NOT_RACY_NS) == [("unchanged", "a.md")]
        assert len(place.target.lines) == 1

    async def test_a_document_that_was_deleted_comes_back(self, place: SyncedFolder) -> None:
        place.write("a.md")
        await place.run()
        for id_ in list(await place.target.store.inventory("", 10)):
            await place.target.remove(id_)

        assert await place.run(racy_ns=NOT_RACY_NS) == [("indexed", "a.md")]

    async def test_other_labels_are_sent(self, place: SyncedFolder) -> None:
        place.write("a.md")
        await place.run()

        labels = Labels(metadata=Metadata(tags=("x",)))

        assert await place.run(labels=labels, racy_ns=NOT_RACY_NS) == [("replaced", "a.md")]
        assert await place.run(labels=labels, racy_ns=NOT_RACY_NS) == [("unchanged", "a.md")]

    async def test_without_what_was_remembered_the_index_says_what_it_has(self, place: SyncedFolder) -> None:
        place.write("a.md")
        await place.run()
        place.ledger.forget([f"{place.folder}/a.md"])
        embeddings = place.target.embeddings

        assert await place.run() == [("unchanged", "a.md")]
        assert place.target.embeddings == embeddings


class TestOwn:
    """What this program writes itself is never taken in, wherever it lies."""

    async def test_neither_its_files_nor_its_folder(self, place: SyncedFolder) -> None:
        place.write("a.md")
        receipts, data = place.write("receipts.jsonl"), place.write("data/server.json").parent
        with syncing(place.target, place.ledger, place.received) as sync:
            ours = replace(sync, own=(receipts, data, Path("/elsewhere")))
            await ours.run([Root(place.folder)])
            await ours.follow(place.folder, [receipts, data, data / "server.json"])

        assert await place.names() == ["a.md"]


class TestGone:
    """Documents of files that are gone: reported, or removed, and never those that only cannot be seen."""

    async def test_they_are_reported_until_they_are_removed(self, place: SyncedFolder) -> None:
        place.write("a.md")
        place.write("b.md")
        await place.run()
        (place.folder / "b.md").unlink()

        reported = [await place.run(gone=Gone.REPORT) for _ in range(2)]
        removed = await place.run()

        assert reported == [[("unchanged", "a.md"), ("gone", "b.md")]] * 2
        assert removed == [("unchanged", "a.md"), ("removed", "b.md")]
        assert await place.names() == ["a.md"]
        assert await place.run() == [("unchanged", "a.md")]

    async def test_a_file_that_is_ignored_from_now_on_is_gone(self, place: SyncedFolder) -> None:
        place.write("a.md")
        await place.run()
        place.write(".gitignore", "*.md\n")

        assert await place.run() == [("removed", "a.md")]

    async def test_but_not_one_that_was_named_though_ignored(self, place: SyncedFolder) -> None:
        path = place.write("a.md")
        place.write(".gitignore", "*.md\n")
        await place.run(path)

        assert await place.run() == []
        path.unlink()
        assert await place.run() == [("removed", "a.md")]

    @pytest.mark.parametrize("content", [b"", b"\0", b"\xff", b"x" * (MAX_BYTES + 1)])
    async def test_a_file_that_contains_no_text_any_more_is_removed(self, place: SyncedFolder, content: bytes) -> None:
        path = place.write("a.md")
        await place.run()
        path.write_bytes(content)

        assert await place.run(gone=Gone.REPORT) == [("rejected", "a.md"), ("gone", "a.md")]
        assert await place.run() == [("rejected", "a.md"), ("removed", "a.md")]
        assert await place.names() == []

    async def test_a_missing_folder_removes_nothing_from_the_index(self, place: SyncedFolder) -> None:
        """It may be a disk that is not mounted now."""
        place.write("a.md")
        await place.run()
        place.folder.rename(place.folder.with_name("elsewhere"))

        assert await place.run(gone=Gone.PRUNE) == [("rejected", str(place.folder))]
        assert await place.names() == ["a.md"]

    async def test_a_file_that_is_not_there_is_gone(self, place: SyncedFolder) -> None:
        path = place.write("a.md")
        await place.run(path)
        path.unlink()

        assert ("removed", "a.md") in await place.run(path)

    async def test_a_pattern_matches_only_what_it_names(self, place: SyncedFolder) -> None:
        for name in ("a.md", "b.md", "a.py", "b.py"):
            place.write(name)
        await place.run()
        for name in ("b.md", "b.py"):
            (place.folder / name).unlink()

        assert await place.run(place.folder / "*.py") == [("unchanged", "a.py"), ("removed", "b.py")]

    async def test_only_prune_removes_what_this_machine_did_not_put_in(self, place: SyncedFolder) -> None:
        place.write("a.md")
        place.write("b.md")
        await place.run()
        place.ledger.forget([f"{place.folder}/b.md"])
        (place.folder / "b.md").unlink()

        assert await place.run() == [("unchanged", "a.md")]
        assert await place.run(gone=Gone.PRUNE) == [("unchanged", "a.md"), ("removed", "b.md")]


class TestRenamed:
    """C-5: a rename with the same content embeds nothing, and at no moment is neither found."""

    @pytest.mark.parametrize("suffix", ["md", "py"])
    async def test_the_new_name_is_in_before_the_old_one_goes(self, place: SyncedFolder, suffix: str) -> None:
        place.write(f"a.{suffix}", "# T\n\nThe pump of pontoon C.")
        await place.run()
        embeddings = place.target.embeddings
        (place.folder / f"a.{suffix}").rename(place.folder / f"z.{suffix}")

        assert await place.run() == [("indexed", f"z.{suffix}"), ("removed", f"a.{suffix}")]
        assert place.target.embeddings == embeddings
        assert [indexed for _, indexed in (await place.target.state()).values()] == [True]

    async def test_it_is_reported_as_what_it_is(self, place: SyncedFolder) -> None:
        place.write("sub/a.md")
        await place.run()
        (place.folder / "sub").rename(place.folder / "other")
        with syncing(place.target, place.ledger, place.received) as sync:
            await sync.follow(place.folder, [place.folder / "sub", place.folder / "other"])

        (indexed, removed) = place.received.receipts
        assert (indexed.status, indexed.renamed_from) == ("indexed", f"{place.folder}/sub/a.md")
        assert (removed.status, removed.source) == ("removed", f"{place.folder}/sub/a.md")

    async def test_a_copy_embeds_nothing_either_and_is_no_rename(self, place: SyncedFolder) -> None:
        place.write("a.md", "text")
        await place.run()
        embeddings = place.target.embeddings
        place.write("b.md", "text")

        assert await place.run() == [("unchanged", "a.md"), ("indexed", "b.md")]
        assert place.target.embeddings == embeddings


class TestTrouble:
    """Nothing accepted is lost, and what was not accepted is tried again."""

    async def test_an_index_that_becomes_unavailable_is_reported_and_the_next_run_goes_on(
        self, place: SyncedFolder
    ) -> None:
        for number in range(3):
            place.write(f"{number}.md")
        place.target.down = BackendUnavailableError("server", "It went away.")

        with pytest.raises(BackendUnavailableError, match="went away"):
            await place.run()
        place.target.down = None

        assert [status for status, _ in await place.run()] == ["indexed"] * 3

    async def test_a_rejected_file_is_named_for_another_try(self, place: SyncedFolder) -> None:
        place.write("a.md")
        bad = place.write("b.md")
        place.target.refusing.add("b.md")
        with syncing(place.target, place.ledger, place.received) as sync:
            rejected = await sync.run([Root(place.folder)])
        place.target.refusing.clear()

        assert rejected == {bad}
        place.received.receipts.clear()
        assert await place.run() == [("unchanged", "a.md"), ("indexed", "b.md")]

    async def test_a_document_that_was_sent_without_a_receipt_is_removed_with_its_file(
        self, place: SyncedFolder
    ) -> None:
        """As after a kill between the index's word and the note of it."""
        path = place.write("a.md")
        await place.run()
        (entry,) = place.ledger.below(path.as_posix())
        unheard = replace(
            entry, digest=b"", documents=tuple(replace(each, content_hash="") for each in entry.documents)
        )
        place.ledger.put([unheard])
        path.unlink()

        assert await place.run() == [("removed", "a.md")]

    async def test_a_damaged_table_is_recreated(self, place: SyncedFolder, tmp_path: Path) -> None:
        place.write("a.md")
        await place.run()
        other = tmp_path / "other"
        other.mkdir()
        (other / FILES_NAME).write_bytes(b"no database at all" * 100)
        with open_file_manifest(other) as ledger:
            place.ledger = ledger

            assert await place.run() == [("unchanged", "a.md")]
            assert len(list(ledger.below(place.folder.as_posix()))) == 1

    async def test_a_table_that_cannot_be_kept_costs_no_document(self, place: SyncedFolder, tmp_path: Path) -> None:
        place.write("a.md")
        (tmp_path / "taken" / FILES_NAME).mkdir(parents=True)
        with open_file_manifest(tmp_path / "taken") as ledger:
            place.ledger = ledger

            assert await place.run() == [("indexed", "a.md")]


class TestSeveralInOne:
    """A file with several documents: each has its receipt, and what is no longer in the file goes."""

    @staticmethod
    def export(*names: str) -> str:
        conversations = [
            {
                "title": name,
                "messages": [{"role": "user", "content": f"about {name}"}, {"role": "assistant", "content": "yes"}],
            }
            for name in names
        ]
        return json.dumps(conversations)

    async def test_one_that_is_taken_out_of_the_file_is_removed(self, place: SyncedFolder) -> None:
        place.write("talks.json", self.export("tides", "berths", "pumps"))
        first = await place.run()
        place.write("talks.json", self.export("tides", "pumps"))
        second = await place.run(gone=Gone.REPORT)

        assert [status for status, _ in first] == ["indexed"] * 3
        assert [status for status, _ in second].count("removed") == 1
        assert len(await place.names()) == 2
