"""Compare code of our own with libraries that might replace it: what each costs, and which promises each keeps.

The libraries are no dependencies, so the command brings them:

    .venv/bin/uv run --no-project --python .venv/bin/python --with pebble --with ijson \
        --with 'ddsketch[serialization]' --with-editable . scripts/compare_libraries.py pool json sketch

Peak memory is that of Python's own allocations, by tracemalloc, in a run apart from the one that is timed.
docs/design/dependencies.md says what came out and what was decided.
"""

import importlib
import io
import json
import multiprocessing
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import TimeoutError as TooLongError
from pathlib import Path
from typing import Any

import numpy as np

from rag_context.domain.reports import Sums
from rag_context.files.formats.converter import Converter
from rag_context.files.formats.exchange import Extracted, Format
from rag_context.files.formats.json_stream import elements
from rag_context.files.formats.worker import extract
from rag_context.resilience.confinement import ProcessLimits, confine
from rag_context.stores.sqlite.search_rollups import BINS, bins_of, latencies_of, packed_bins, unpacked

CONVERSATIONS = 3000
RUNAWAY_S = 2.0
LATENCIES = 200_000
SLOTS = 30 * 24 * 6
"""Ten minutes each: a month."""


def timed(work: Callable[[], object]) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def peak_mib(work: Callable[[], object]) -> float:
    """Most memory that it holds, in MiB."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / (1 << 20)


def export() -> bytes:
    """A ChatGPT export of some 25 MB: an array of conversations."""
    text = "We decided to keep everything in one file, because backups are simple then. " * 20

    def node(number: int) -> dict[str, Any]:
        author = {"role": ("user", "assistant")[number % 2]}
        return {
            "id": str(number),
            "parent": str(number - 1) if number else None,
            "children": [str(number + 1)] if number < 3 else [],
            "message": {"author": author, "content": {"content_type": "text", "parts": [f"{number} {text}"]}},
        }

    talks = [
        {
            "title": f"Talk {number}",
            "id": f"talk-{number}",
            "create_time": 1.7e9 + number,
            "current_node": "3",
            "mapping": {str(each): node(each) for each in range(4)},
        }
        for number in range(CONVERSATIONS)
    ]
    return json.dumps(talks).encode()


def consume(found: Iterable[object]) -> int:
    """Take them one by one, keeping none."""
    return sum(1 for _ in found)


# pebble, for the processes that convert files


def convert(format_: Format, name: str, data: bytes) -> list[Extracted]:
    """The work of a process of pebble's: its result is one object, so all documents come at once."""
    return list(extract(format_, name, data, b"", ProcessLimits()))


def never_end(_format: Format, _name: str, _data: bytes) -> list[Extracted]:
    """A library that hangs."""
    while True:
        pass


def pool() -> None:
    """Ours and pebble's: starting, a small file, a large one, one that never ends and the next."""
    small, large, path = b"<p>One sentence.</p>" * 20, export(), Path("conversations.json")

    def first(found: Iterator[Extracted]) -> float:
        began = time.perf_counter()
        next(found)
        took = time.perf_counter() - began
        consume(found)
        return took

    with Converter(workers=1) as ours:
        row(
            "ours: first file, with the start of a process",
            timed(lambda: consume(ours.documents(Format.HTML, path, small))),
        )
        row(
            "ours: the next, on average of 200",
            timed(lambda: [consume(ours.documents(Format.HTML, path, small)) for _ in range(200)]) / 200,
        )
        row("ours: export, to the first document", first(ours.documents(Format.CHATGPT, path, large)))
        row("ours: export, all", timed(lambda: consume(ours.documents(Format.CHATGPT, path, large))))
        row(
            "ours: export, held by the caller",
            peak_mib(lambda: consume(ours.documents(Format.CHATGPT, path, large))),
            "MiB",
        )

    pebble = importlib.import_module("pebble")
    context = multiprocessing.get_context("spawn")
    with pebble.ProcessPool(max_workers=1, context=context, initializer=confine, initargs=(ProcessLimits(),)) as theirs:

        def ask(format_: Format, data: bytes) -> Any:
            return theirs.schedule(convert, args=(format_, str(path), data), timeout=180).result()

        row("pebble: first file, with the start of a process", timed(lambda: ask(Format.HTML, small)))
        row("pebble: the next, on average of 200", timed(lambda: [ask(Format.HTML, small) for _ in range(200)]) / 200)
        row("pebble: export, to the first document and all", timed(lambda: ask(Format.CHATGPT, large)))
        row("pebble: export, held by the caller", peak_mib(lambda: ask(Format.CHATGPT, large)), "MiB")
        began = time.perf_counter()
        try:
            theirs.schedule(never_end, args=(Format.HTML, "", b""), timeout=RUNAWAY_S).result()
        except TooLongError:
            row(
                f"pebble: a file that never ends, allowed {RUNAWAY_S:g} s, is given up after",
                time.perf_counter() - began,
            )
        row("pebble: the next file", timed(lambda: ask(Format.HTML, small)))
        try:
            theirs.schedule(convert, args=(Format.HTML, "x.html", b"<p>" * 4_000_000), timeout=60).result()
        except Exception as error:  # noqa: BLE001  # whatever it is, is what is shown
            print(f"pebble: 12 MB of tags that never close: {type(error).__name__}")


# ijson, for exports


def json_stream() -> None:
    """Ours and ijson: an export, one that breaks off, and what programs write that the standard forbids."""
    ijson = importlib.import_module("ijson")
    data = export()
    print(f"export of {len(data) / 1e6:.0f} MB, ijson's backend {ijson.backend}")
    readers: dict[str, Callable[[bytes], Iterable[object]]] = {
        "ours": elements,
        "ijson": lambda data: ijson.items(io.BytesIO(data), "item", use_float=True),
    }
    for name, read in readers.items():
        row(f"{name}: all elements", timed(lambda read=read: consume(read(data))))  # type: ignore[misc]
        row(f"{name}: held", peak_mib(lambda read=read: consume(read(data))), "MiB")  # type: ignore[misc]
        for what, broken in (
            ("broken off in the middle", data[: len(data) // 2]),
            ("a control character in a string", b'[{"a": "x"}, {"a": "one\x01two"}, {"a": "y"}]'),
            ("bytes that are not UTF-8", b'[{"a": "x"}, {"a": "caf\xe9"}, {"a": "y"}]'),
            ("the list inside an object, under a name out of seven", b'{"title": "t", "messages": [{"a": "x"}]}'),
        ):
            taken, ending = 0, "ended"
            try:
                for _ in read(broken):
                    taken += 1
            except Exception as error:  # noqa: BLE001  # whatever it is, is what is shown
                ending = type(error).__name__
            print(f"{name}: {what}: {taken} elements, {ending}")


# ddsketch, for latencies


def sketch() -> None:
    """Ours and ddsketch: adding latencies, adding up the slots of a month, taking away what is deleted."""
    ddsketch = importlib.import_module("ddsketch")
    proto = importlib.import_module("ddsketch.pb.proto").DDSketchProto
    chance = random.Random(7)
    values = [chance.lognormvariate(2.5, 0.6) for _ in range(LATENCIES)]
    exact = float(np.percentile(values, 95, method="inverted_cdf"))
    slot = values[:200]

    ours = unpacked([packed_bins(np.bincount(bins_of(values), minlength=BINS))])
    row("ours: add 200 000 latencies", timed(lambda: np.bincount(bins_of(values), minlength=BINS)))
    stored = packed_bins(np.bincount(bins_of(slot), minlength=BINS))
    row("ours: add up a month of slots", timed(lambda: unpacked([stored] * SLOTS)))
    row("ours: a slot of 200 latencies, stored", len(stored), "bytes")
    print(f"ours: p95 off by {abs(Sums(latencies=latencies_of(ours)).percentile(95) / exact - 1):.4%}")

    def filled(latencies: list[float]) -> Any:
        made = ddsketch.DDSketch(0.0095)
        for value in latencies:
            made.add(value)
        return made

    def month() -> None:
        whole = ddsketch.DDSketch(0.0095)
        for _ in range(SLOTS):
            whole.merge(proto.from_proto(type(message).FromString(blob)))

    theirs = filled(values)
    row("ddsketch: add 200 000 latencies", timed(lambda: filled(values)))
    message = proto.to_proto(filled(slot))
    blob = message.SerializeToString()
    row("ddsketch: add up a month of slots", timed(month))
    row("ddsketch: a slot of 200 latencies, stored", len(blob), "bytes")
    print(f"ddsketch: p95 off by {abs(theirs.get_quantile_value(0.95) / exact - 1):.4%}")
    print(f"ddsketch: can take away: {hasattr(theirs, 'remove') or hasattr(theirs, 'subtract')}")


def row(what: str, value: float, unit: str = "s") -> None:
    """Print a figure."""
    print(f"{what}: {value:.4g} {unit}", flush=True)


def main() -> None:
    """Run the comparisons that are named, or all."""
    known = {"pool": pool, "json": json_stream, "sketch": sketch}
    for name in sys.argv[1:] or known:
        print(f"== {name}")
        known[name]()


if __name__ == "__main__":
    main()
