"""Measure rag-context and other software side by side: `python -m benchmarks.peers [--sizes N ... | --full | --quick]`.

With `--open-sets`: what all of them find on the open sets. The rows go to results.json and open_sets.json, from which
the section of docs/design/benchmarks.md is written.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.page import write_page
from benchmarks.peers import quality, speed
from benchmarks.peers.running import CACHE, ROOT, PeerError, environment_of, say
from benchmarks.peers.table import (
    PEERS,
    QUALITY_RESULTS,
    RESULTS,
    Peer,
    as_json,
    as_markdown,
    merged,
    quality_as_markdown,
    read,
)

SIZES = (1_000, 10_000)
FULL = (*SIZES, 100_000)
QUICK = (300,)


def main() -> int:
    """Measure, print and write down; exit 1 where a peer could not be measured."""
    options = _options(sys.argv[1:])
    pythons: dict[Peer, Path | PeerError] = {}
    for peer in PEERS:
        try:
            pythons[peer] = environment_of(peer, options.cache)
        except PeerError as error:
            pythons[peer] = error
    if options.open_sets:
        return 0 if _quality(pythons, options) else 1
    measured = [_speed(size, pythons, options) for size in options.sizes]
    return 0 if all(measured) else 1


def _speed(size: int, pythons: Mapping[Peer, Path | PeerError], options: argparse.Namespace) -> bool:
    """Measure one size; returns whether every peer was."""
    say(f"{size} texts ...")
    with tempfile.TemporaryDirectory(prefix="rag-context-peers-") as name:
        rows = speed.measure(size, pythons, Path(name))
    sys.stdout.write(as_markdown(rows))
    sys.stdout.flush()
    if not options.quick:
        RESULTS.write_text(as_json(merged(read(RESULTS), rows)), encoding="utf-8")
        write_page()
    return not any(row.failure for row in rows)


def _quality(pythons: Mapping[Peer, Path | PeerError], options: argparse.Namespace) -> bool:
    rows = quality.measure(pythons, quality.QUICK if options.quick else None)
    sys.stdout.write(quality_as_markdown(rows))
    if not options.quick:
        QUALITY_RESULTS.write_text(as_json(rows), encoding="utf-8")
        write_page()
    return not any(row.failure for row in rows)


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sizes", type=int, nargs="+", metavar="N", help=f"numbers of texts; default: {SIZES}")
    which.add_argument("--full", action="store_true", help=f"the sizes {FULL}")
    which.add_argument("--quick", action="store_true", help=f"{QUICK[0]} texts, nothing written: does it run?")
    parser.add_argument("--open-sets", action="store_true", help="what is found on the open sets (--quick: on one)")
    parser.add_argument(
        "--cache", type=Path, default=CACHE, metavar="DIR", help=f"where the environments are kept; default: {CACHE}"
    )
    options = parser.parse_args(words)
    options.sizes = FULL if options.full else QUICK if options.quick else options.sizes or SIZES
    if min(options.sizes) < speed.PROBES:
        parser.error(f"a size is at least {speed.PROBES}")
    if options.cache.resolve().is_relative_to(ROOT):
        parser.error(f"--cache must be outside the repository, {ROOT}")
    if not shutil.which(str(Path(sys.executable).with_name("uv"))):
        say("uv is not installed beside this Python; only environments that exist can be used")
    return options


if __name__ == "__main__":
    sys.exit(main())
