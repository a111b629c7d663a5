"""Write the open sets into a folder: `python -m benchmarks.open_sets DIR`."""

import argparse
from pathlib import Path

from benchmarks.open_sets import write_open_sets

parser = argparse.ArgumentParser(prog="python -m benchmarks.open_sets", description=__doc__)
parser.add_argument("folder", type=Path, metavar="DIR")
for path in write_open_sets(parser.parse_args().folder):
    print(path)
