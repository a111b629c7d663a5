"""Small labelled collections, written where a test wants them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOX = "Red foxes hunt voles at dusk and sleep in a den below old roots."
WHALE = "Blue whales sing in low tones that carry for hundreds of miles under water."
BREAD = "Sourdough bread needs a starter, flour, salt and a night of patience."


def write_lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_graded(folder: Path) -> Path:
    """Three documents and three queries, of which two are graded; the second is hard for keyword search alone."""
    write_lines(
        folder / "corpus.jsonl",
        [
            {"_id": "fox", "title": "On  foxes", "text": FOX},
            {"_id": "whale", "title": "", "text": WHALE},
            {"_id": "bread", "title": "Bread", "text": BREAD},
            {"_id": "empty", "title": "", "text": ""},
        ],
    )
    write_lines(
        folder / "queries.jsonl",
        [
            {"_id": "1", "text": "when do foxes hunt"},
            {"_id": "2", "text": "songs of whales under water"},
            {"_id": "3", "text": "nobody judged this"},
        ],
    )
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\n1\tfox\t2\n1\tbread\t0\n2\twhale\t1\n3\tbread\t0\n"
    )
    return folder


def write_spans(folder: Path) -> Path:
    """One titled document of three sections, and a question that all of the second one answers."""
    text = f"## Sea\n\n{WHALE * 12}\n\n## Wood\n\n{FOX}\n\n## Kitchen\n\n{BREAD * 12}"
    start = text.index(FOX)
    write_lines(folder / "corpus.jsonl", [{"_id": "long", "title": "Three things", "text": text}])
    write_lines(
        folder / "queries.jsonl",
        [{"_id": "q", "text": "where do foxes sleep", "corpus_id": "long", "spans": [[start, start + len(FOX)]]}],
    )
    return folder
