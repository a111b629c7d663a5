"""Measure retrieval quality: `python -m benchmarks.quality [DATASET...] [--markdown FILE]`.

Without a dataset the open sets are measured, which `benchmarks.open_sets` generates. `rag-context eval` measures your
own sets, and prints the same tables.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from benchmarks.interface_quality import Extra, InterfaceOutcomes
from benchmarks.open_sets import write_open_sets
from benchmarks.quality_page import page, picture
from rag_context.cli.console import Console
from rag_context.cli.measure import measured
from rag_context.evaluation.datasets import load_set
from rag_context.evaluation.report import Outcomes, as_object, as_tables
from rag_context.logs import configure_logging
from rag_context.settings import load_settings


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("datasets", nargs="*", type=Path, metavar="DATASET")
    parser.add_argument("--projects", action="store_true", help="also query through the tools of projects")
    parser.add_argument("--collections", action="store_true", help="also query the documents as collections")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write a page, and a picture beside it (.svg)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    configure_logging("error")
    chosen: dict[Extra, bool] = {"projects": options.projects, "collections": options.collections}
    interfaces = InterfaceOutcomes([extra for extra, is_chosen in chosen.items() if is_chosen])
    settings = load_settings(flags={}, cwd=Path.cwd()).settings
    with tempfile.TemporaryDirectory(prefix="rag-context-open-") as folder:
        paths = options.datasets or write_open_sets(Path(folder))
        found = asyncio.run(measured(settings, [*map(load_set, paths)], None, _show, interfaces.measure))
    if options.markdown is not None:
        _write_page(options.markdown, found, interfaces)
    if options.json:
        sys.stdout.write(f"{json.dumps(as_object(found) | interfaces.as_object())}\n")
    else:
        Console().draw(as_tables(found, interfaces.grids()))


def _show(doing: str, done: int, total: int) -> None:
    if done == total:
        sys.stderr.write(f"{doing}: {total}\n")


def _write_page(path: Path, found: Outcomes, interfaces: InterfaceOutcomes) -> None:
    path.write_text(page(found, interfaces, path), encoding="utf-8")
    if found.judged:
        path.with_suffix(".svg").write_text(picture(found.judged), encoding="utf-8")


if __name__ == "__main__":
    main()
