"""Measures redaction: secrets that leak out of the shapes in which people write them, and false alarms.

python -m benchmarks.redaction [PATH ...]     false alarms are counted in these files and folders
"""

import argparse
from collections import Counter
from pathlib import Path

from tests.ingest.secret_shapes import SHAPES, leaks, named_secrets

from rag_context.files.file_reading import Found, Rejected, read_file
from rag_context.files.walk import find_files
from rag_context.ingest.redaction import redact


def main() -> None:
    """Print both figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    paths = parser.parse_args().paths
    left = list(leaks())
    total = len(SHAPES) * len(list(named_secrets()))
    print(f"{len(left)} of {total} leak ({len(left) / total:.1%})")
    for name, shape, text in left:
        print(f"  {name} as {shape}: {text!r}")
    counts: Counter[str] = Counter()
    chars = files = 0
    for found in find_files(paths):
        read = read_file(found, max_bytes=16 << 20) if isinstance(found, Found) else found
        if isinstance(read, Rejected):
            continue
        files += 1
        chars += len(read.document.content)
        for each in redact(read.document.content).found:
            counts[each.kind] += each.count
    if paths:
        print(f"{counts.total()} masked in {files} files of {chars / 1e6:.1f} million characters: {dict(counts)}")


if __name__ == "__main__":
    main()
