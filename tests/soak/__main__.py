"""Two memories used and disturbed for half an hour: `python -m tests.soak [--minutes N] [--seed N] [--json]`.

Exits 1 where anything was lost, came back, was labelled wrongly, or grew.
"""

import argparse
import faulthandler
import random
import signal
import sys
from pathlib import Path

from tests.end_to_end import process
from tests.soak.week import SITES, Plan, soak

START_S = 600.0
"""Both memories, what uses them and what disturbs them share one machine: a server may need minutes to start."""


def main() -> int:
    """Run, and print the table."""
    process.TIMEOUT_S = START_S
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to use and disturb them (30)")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's choices (drawn, and printed)")
    parser.add_argument("--only", choices=(*SITES,), help="one of the two")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument("--logs", type=Path, default=None, help="a folder that takes the logs of the servers")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    faulthandler.register(signal.SIGUSR1)  # says what is waited for
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"seed {seed}", flush=True)
    names = [arguments.only] if arguments.only else [*SITES]
    return 1 if soak(Plan(arguments.minutes, seed), names, is_json=arguments.json, logs=arguments.logs) else 0


if __name__ == "__main__":
    sys.exit(main())
