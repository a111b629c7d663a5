"""A run that is killed at any moment is finished by the next one (C-3)."""

import asyncio
import subprocess
import sys
from pathlib import Path

from rag_context.stores.sqlite.embedded import FILE_NAME, open_database

from .test_folder_sync_at_random import fresh

ROUNDS = 12


def test_ten_kills_end_as_one_run_without(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.files.folder_process", str(tmp_path), "7", str(ROUNDS)]

    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) >= 10, "else the steps are too many, and nothing was proved"
    assert asyncio.run(stored(tmp_path)) == asyncio.run(fresh(tmp_path / "folder", tmp_path / "fresh"))


async def stored(place: Path) -> dict[str, tuple[str, bool]]:
    found = {}
    async with open_database(place / FILE_NAME) as store:
        for id_, each in (await store.documents.inventory("", 1000)).items():
            document = await store.documents.get(id_)
            assert document is not None
            found[document.source] = (each.content_hash, each.indexed)
    return found
