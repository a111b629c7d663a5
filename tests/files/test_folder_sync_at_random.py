"""Whatever happens to a folder, and whenever someone looks: the index ends equal to a fresh one (C-5, D-7)."""

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rag_context.files.walk import Root
from rag_context.stores.machine_tables import open_file_manifest

from .index_target import CollectedReceipts, IndexTarget, syncing

NAMES = ["a.md", "b.py", "c", "d/e.md", "d/f.txt", "d/g/h.md", "i/a.md"]
PLACES = [*NAMES, "d", "d/g", "i"]
CONTENTS = [b"one", b"two", b"# T\n\nthree", b"", b"\0", b"\xff", b"x" * 3000]
IGNORED = [b"", b"*.md\n", b"d/\n", b"!a.md\n", b"*\n"]
LATER_NS = 20_000_000
"""More than a tick of any clock of a file system that tests run on."""


@dataclass(frozen=True)
class Write:
    name: str
    content: bytes

    def do(self, root: Path) -> list[str]:
        path = root / self.name
        with suppress(OSError):  # a folder of that name, or a file where a folder should be
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.content)
        return [self.name]


@dataclass(frozen=True)
class Move:
    name: str
    to: str

    def do(self, root: Path) -> list[str]:
        with suppress(OSError, shutil.Error):
            (root / self.to).parent.mkdir(parents=True, exist_ok=True)
            (root / self.name).rename(root / self.to)
        return [self.name, self.to]


@dataclass(frozen=True)
class Delete:
    name: str

    def do(self, root: Path) -> list[str]:
        path = root / self.name
        with suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return [self.name]


@dataclass(frozen=True)
class Look:
    """Someone looks at what has changed since."""

    whole: bool


Step = Write | Move | Delete | Look

steps = st.lists(
    st.one_of(
        st.builds(Write, st.sampled_from(NAMES), st.sampled_from(CONTENTS)),
        st.builds(
            Write, st.sampled_from(["", "d/", "d/g/"]).map(lambda at: f"{at}.gitignore"), st.sampled_from(IGNORED)
        ),
        st.builds(Move, st.sampled_from(PLACES), st.sampled_from(PLACES)),
        st.builds(Delete, st.sampled_from([*PLACES, ".gitignore"])),
        st.builds(Look, st.booleans()),
    ),
    max_size=14,
)


@settings(max_examples=30, deadline=None)
@given(steps)
def test_the_index_ends_as_if_it_had_been_built_at_the_end(done: Sequence[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(follow(Path(directory).resolve(), [Look(whole=True), *done, Look(whole=False)]))


async def follow(place: Path, done: Sequence[Step]) -> None:
    root = place / "root"
    root.mkdir()
    target = IndexTarget()
    with open_file_manifest(place) as ledger, syncing(target, ledger, CollectedReceipts(), racy_ns=LATER_NS) as sync:
        changed: set[Path] = set()
        for step in done:
            if isinstance(step, Look):
                await (sync.run([Root(root)]) if step.whole else sync.follow(root, changed))
                changed.clear()
            else:
                changed.update(root / name for name in step.do(root))
    assert await target.state() == await fresh(root, place / "fresh")


async def fresh(root: Path, data_dir: Path) -> dict[str, tuple[str, bool]]:
    target = IndexTarget()
    with open_file_manifest(data_dir) as ledger, syncing(target, ledger, CollectedReceipts()) as sync:
        await sync.run([Root(root)])
    return await target.state()
