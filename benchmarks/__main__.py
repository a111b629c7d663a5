"""Run all benchmarks: `python -m benchmarks [--quick]`. Writes results.json here, and docs/benchmarks.md."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks import collections, hundred_thousand, indexing, load, mcp, projects, searching, start_up, statistics
from benchmarks.figures import Figure, as_json, as_markdown
from benchmarks.page import write_page

HERE = Path(__file__).parent
TEN_THOUSAND = 10_000


def main() -> int:
    """Measure, print and write down; exit 1 where a target was missed."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, nothing written: does it run?")
    quick = parser.parse_args().quick
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="rag-context-bench-") as name:
        scratch = Path(name)
        index = scratch / "index"
        chunks = TEN_THOUSAND // 10 if quick else TEN_THOUSAND
        _say(f"indexing about {chunks} chunks through the service, then with the bare model")
        figures += indexing.fill(index, chunks // indexing.CHUNKS_PER_DOCUMENT)
        _say("starting five times")
        figures += searching.start(index)
        _say("commands beside a bare Python")
        figures += start_up.measure(index)
        _say("searching over HTTP, in turn with the floor")
        figures += searching.against_floor(index)
        _say("searching over MCP, in turn with plain HTTP; starting it five times")
        figures += mcp.against_rest(index)
        figures += mcp.start(index)
        _say("eight clients, sound and with faults")
        figures += searching.under_load(index, scratch)
        _say("1 to 128 clients, and a pause")
        figures += load.measure(index, load.SECONDS / (5 if quick else 1))
        _say("a collection, beside Chroma's server")
        figures += collections.measure(scratch / "collections", collections.DOCUMENTS // (10 if quick else 1))
        _say("a knowledge base of Markdown files")
        figures += projects.measure(scratch / "projects", projects.DOCUMENTS // (10 if quick else 1))
        _say("pages with and without three documents of 1 MiB")
        figures += projects.beside_large(scratch / "beside", projects.PAGES // (10 if quick else 1))
        if not quick:
            _say("100 000 chunks")
            figures += asyncio.run(hundred_thousand.measure(scratch / "large"))
            _say("statistics of 1 000 000 searches")
            figures += statistics.measure(scratch / "statistics")
    sys.stdout.write(as_markdown(figures))
    if not quick:
        (HERE / "results.json").write_text(as_json(figures), encoding="utf-8")
        write_page(figures, HERE.parent / "docs")
    return 1 if any(figure.met is False for figure in figures) else 0


def _say(what: str) -> None:
    sys.stderr.write(f"{what} ...\n")


if __name__ == "__main__":
    sys.exit(main())
