"""Torture a server: `python -m tests.torture [--rounds N] [--seed N] [--minutes N]`. Exits 1 on any loss."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.torture.rounds import Torture


def main() -> int:
    """Run the rounds, say how each went, and sum up."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="how often to kill (100)")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices (drawn, and printed)")
    parser.add_argument("--minutes", type=float, default=30.0, help="begin no round after this long (30)")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    started = time.monotonic()
    done = 0
    with tempfile.TemporaryDirectory(prefix="rag-context-torture-") as name:
        torture = Torture(Path(name), random.Random(seed))
        while done < arguments.rounds and time.monotonic() < started + 60.0 * arguments.minutes:
            done += 1
            known = len(torture.losses)
            print(f"round {done}/{arguments.rounds}: {torture.round(done)}", flush=True)
            _say(torture.losses[known:])
        known = len(torture.losses)
        torture.finish()
        _say(torture.losses[known:])
    print(
        f"{done} rounds in {time.monotonic() - started:.0f} s: {torture.kills} kills, {torture.acknowledged} writes"
        f" acknowledged, {len(torture.expected_sources)} documents, {len(torture.losses)} losses (seed {seed})"
    )
    return 1 if torture.losses else 0


def _say(losses: list[str]) -> None:
    for loss in losses:
        print(f"LOST {loss}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
