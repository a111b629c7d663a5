"""Corrections, forgetting and undoing, killed again and again: `python -m tests.torture.changing [--kills N]`.

After each kill -9 the journal, followed from its beginning, ends with the documents that are there, what it lists as
undoable is undone and done again to the byte, and the files hold the texts of what it has, and of nothing else. At the
end all is purged, and no word is left in any file.
"""

import argparse
import difflib
import json
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from rag_context.domain.documents import DocumentInput, content_hash
from tests.end_to_end.process import Served, command, served
from tests.outcomes.changes import done, log, state
from tests.torture.backends import BACKENDS, DIGITS, MARK, Opened, backend, erased, in_files

WORKERS, SOURCES = 2, 6
LONGEST_S = 2.0
UNDONE = 2
"""Changes that are undone after each kill."""

ERASED_SOON = {"RAG_CONTEXT_STORES__ERASE_AFTER_S": "1"}


@dataclass
class Changing:
    """A memory under change, and every text that was ever sent to it."""

    data_dir: Path
    rng: random.Random
    opened: Opened = field(default_factory=lambda: ({}, lambda: None))
    scans: bool = True
    """Whether the files are compared after each kill: the embedded store erases by itself."""
    words: dict[str, str] = field(default_factory=dict)
    """By the hash of a document the word that stands in it alone; those of reasons by themselves."""
    kills: int = 0
    undone: int = 0
    entries: int = 0

    def round(self) -> str:
        """Examine, change, and kill; returns a line about it."""
        with self._served() as server:
            server.wait_ready()
            self.examine(server)
            stop = threading.Event()
            seeds = [self.rng.random() for _ in range(WORKERS)]
            workers = [threading.Thread(target=self._change, args=(server, stop, seed)) for seed in seeds]
            for worker in workers:
                worker.start()
            moment_s = self.rng.uniform(0.02, LONGEST_S)
            stop.wait(moment_s)
            server.kill()
            self.kills += 1
            stop.set()
            for worker in workers:
                worker.join()
        return f"killed after {moment_s:.2f} s; {self.entries} entries, {self.undone} undone and done again"

    def finish(self) -> None:
        """Examine, purge everything, and look for every word that was ever sent."""
        with self._served() as server:
            server.wait_ready()
            self.examine(server)
            # PostgreSQL keeps the statistics of a table that has no rows left.
            stays = {"contentType": "decision", "source": "kept.md", "sessionId": "another", "content": "It stays."}
            kept = done(server, "index", **stays)["documentId"]
            while done(server, "forget", sessionId="s", purge=True, confirm=True, clearQueries=True)["documents"]:
                pass
            assert [*self._places(server)] == [kept], "the journal has documents that were purged"
            left = erased(self.data_dir.parent, self.words.values(), self.opened[1])
            assert not left, f"{len(left)} of {len(self.words)} words are left"
        ended = command("check", "--full", data_dir=self.data_dir, **self.opened[0])
        assert ended.returncode == 0, ended.stdout + ended.stderr

    def examine(self, server: Served) -> None:
        """Compare the journal with what is listed, with undoing, and with the bytes."""
        places = self._places(server)
        visible = sorted(id_ for id_, place in places.items() if place.get("shelf") is None)
        assert visible == sorted(each["documentId"] for each in done(server, "list", limit=100)["documents"])
        undoable = [each for each in log(server, limit=50) if each["undoable"]]
        for entry in self.rng.sample(undoable, min(UNDONE, len(undoable))):
            before = state(server)
            undone = server.tool("undo", {"id": entry["id"]})
            if undone.status_code == 409:  # one that was undone before depended on the same document
                continue
            assert undone.status_code == 200, undone.text
            done(server, "undo", id=undone.json()["id"])
            after = state(server)
            assert after == before, f"{entry}\n{_differences(before, after)}"
            self.undone += 1
        if self.scans:
            held = {self.words[place["contentHash"]] for place in self._places(server).values()}
            gone = {self.words[hash_] for hash_ in self._seen} - held
            left = erased(self.data_dir.parent, gone, self.opened[1])
            assert not left, f"the journal says that they are gone: {left}"
            missing = held - in_files(self.data_dir, held)
            assert not missing, f"the journal says that they are there: {missing}"

    def _served(self) -> Any:
        return served(self.data_dir, **ERASED_SOON, **self.opened[0])

    def _places(self, server: Served) -> dict[str, dict[str, Any]]:
        """Where the journal, followed from its beginning, has documents."""
        entries: list[dict[str, Any]] = []
        while page := log(server, limit=200, **({"before": entries[-1]["id"]} if entries else {})):
            entries += page
        places: dict[str, dict[str, Any]] = {}
        self._seen: set[str] = set()
        for entry in reversed(entries):
            moves = entry["moves"]
            for before in filter(None, (move.get("before") for move in moves)):
                assert places.pop(before["documentId"])["contentHash"] == before["contentHash"], entry
            for after in filter(None, (move.get("after") for move in moves)):
                places[after["documentId"]] = after
                self._seen.add(after["contentHash"])
        self.entries = len(entries)
        return places

    def _change(self, server: Served, stop: threading.Event, seed: float) -> None:
        rng = random.Random(seed)
        while not stop.is_set():
            try:
                self._change_once(server, rng)
            except (httpx2.TransportError, ValueError):
                return  # the server was killed

    def _change_once(self, server: Served, rng: random.Random) -> None:
        source = f"source-{rng.randrange(SOURCES)}.md"
        word, why = (f"{MARK.decode()}{rng.randrange(10**DIGITS):0{DIGITS}}" for _ in range(2))
        content = f"A failed payment is retried {rng.randrange(1000)} times in {source}, says {word}."
        fields = {"contentType": "decision", "sessionId": "s", "source": source}
        self.words[content_hash(DocumentInput(content, "decision", "s", source))] = word
        self.words[why] = why
        because = {"reason": f"Because of {why}."}
        match rng.randrange(8):
            case 0 | 1 | 2:
                server.tool("index", {"content": content, **fields, "force": True})
            case 3:
                server.tool("correct", {"source": source, "content": content, **because})
            case 4:
                server.tool("forget", {"source": source, **because})
            case 5:
                server.tool("forget", {"source": source, "purge": True, "confirm": True})
            case 6:
                server.tool("delete", {"source": source, "confirm": True})
            case _:
                listed = server.tool("log", {"limit": 10}).json().get("entries", [])
                if undoable := [each["id"] for each in listed if each["undoable"]]:
                    server.tool("undo", {"id": rng.choice(undoable)})


def _differences(before: str, after: str) -> str:
    """The lines by which two states differ."""
    old, new = (json.dumps(json.loads(each), indent=1, sort_keys=True).splitlines() for each in (before, after))
    return "\n".join(difflib.unified_diff(old, new, "before", "after", lineterm=""))


def main() -> int:
    """Run the rounds, and say how each went."""
    parser = argparse.ArgumentParser(prog="changing", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices (drawn, and printed)")
    parser.add_argument("--backend", choices=BACKENDS, default="embedded")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="rag-context-changing-") as name,
        backend(arguments.backend, Path(name)) as opened,
    ):
        is_file = arguments.backend == "embedded"
        changing = Changing(Path(name) / "data", random.Random(seed), opened, scans=is_file)
        for number in range(1, arguments.kills + 1):
            print(f"kill {number}/{arguments.kills}: {changing.round()}", flush=True)
        changing.finish()
    print(
        f"{changing.kills} kills in {time.monotonic() - started:.0f} s ({arguments.backend}): {changing.entries}"
        f" entries of the journal agree with the documents, {changing.undone} changes were undone and done again to"
        f" the byte, and none of {len(changing.words)} words is left (seed {seed})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
