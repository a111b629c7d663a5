"""Scan all bytes for what was purged: `python -m tests.torture.canaries [--canaries N]`. Exits 1 if any is left.

Words that stand in no other text are written as texts, sources, tags, agents, reasons, corrected and forgotten
versions, entries of a collection, and questions; then purged. They must be in no file of the data directory, in no log,
and in no backup or export made after.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from tests.end_to_end.process import TIMEOUT_S, command, served
from tests.outcomes.changes import done
from tests.outcomes.test_forgetting import ERASED_SOON, fill_with

COLLECTION = "canaries"
ERASED_S = 60.0
WRITERS, PART = 8, 50


def main() -> int:
    """Write, purge, copy and scan."""
    parser = argparse.ArgumentParser(prog="canaries", description=__doc__)
    parser.add_argument("--canaries", type=int, default=10_000)
    number = parser.parse_args().canaries
    generator = random.Random(number)
    words = [f"canary{generator.randrange(10**12):012}" for _ in range(number)]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rag-context-canaries-") as name:
        place = Path(name)
        with served(place / "data", **ERASED_SOON) as server:
            server.wait_ready()
            with ThreadPoolExecutor(WRITERS) as writers:
                parts = [range(at, min(at + PART, number // 2)) for at in range(0, number // 2, PART)]
                list(writers.map(lambda part: fill_with(server, words[part.start : part.stop], part.start), parts))
            created = {"name": COLLECTION, "metadata": {}, "embedding_provider": "rag-context"}
            assert server.post("/collections", created).is_success
            for start in range(number // 2, number, 100):
                entries = [
                    {"id": word, "text": f"Berth {word}", "metadata": {"key": word}} for word in words[start:][:100]
                ]
                assert server.post(f"/collections/{COLLECTION}/documents", {"documents": entries}).is_success
            before = in_files(place, words)
            print(f"{len(before)} of {number} canaries in files after {time.monotonic() - started:.0f} s", flush=True)
            receipts: list[dict[str, Any]] = []
            while not receipts or receipts[-1]["documents"]:
                receipts.append(
                    done(server, "forget", sessionId="canaries", purge=True, confirm=True, clearQueries=True)
                )
            assert httpx2.delete(f"{server.url}/collections/{COLLECTION}", timeout=TIMEOUT_S).is_success
            ends = time.monotonic() + ERASED_S
            while in_files(place / "data", words) and time.monotonic() < ends:
                time.sleep(1.0)
            for copy in ("backup", "export"):
                assert command(copy, str(place / copy), data_dir=place / "data").returncode == 0
            left = in_files(place, words)
    names = ("documents", "passages", "vectors", "derived", "queries")
    counts = {name: sum(receipt[name] for receipt in receipts) for name in names}
    print(f"purged {counts}; {len(left)} canaries left after {time.monotonic() - started:.0f} s")
    return 1 if left or len(before) < 0.9 * number else 0


def in_files(folder: Path, words: Collection[str]) -> set[str]:
    """Which words are in any file."""
    found: set[str] = set()
    for file in folder.rglob("*"):
        parts = file.read_bytes().split(b"canary")[1:] if file.is_file() else []
        found |= {f"canary{part[:12].decode('ascii', 'replace')}" for part in parts}
    return found & set(words)


if __name__ == "__main__":
    sys.exit(main())
