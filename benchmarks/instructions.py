"""Measures which passages are marked as instructions to a model: attacks, and benign passages of documentation.

python -m benchmarks.instructions [--show] [PATH ...]

The attacks are those of `tests.text.attacks`, always the same ones, by set and by where the sentence stands. Benign are
the paragraphs of at least 200 characters of pages and docstrings below each PATH (default: the installed packages);
none is copied anywhere.
"""

import argparse
import ast
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.text.attacks import DATA, attacks

from rag_context.domain.quoted_text import reads_like_instruction

SETS = ("first", "second", "third", "fourth", "fifth")
PLACES = ("alone", "in prose", "in a list", "in a comment of code", "in a conversation", "in hidden HTML")
LEAST_CHARS = 200
PAGES = frozenset({".md", ".rst", ".txt"})


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", action="store_true", help="print what was missed, and what was marked in vain")
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    print("| attacks | texts | marked |\n|---|---|---|")
    by_place: Counter[str] = Counter()
    marked_by_place: Counter[str] = Counter()
    for name in SETS:
        texts = attacks(name)
        missed = [text for text in texts if not reads_like_instruction(text)]
        print(f"| {name} set | {len(texts)} | {_share(len(texts) - len(missed), len(texts))} |")
        for number, text in enumerate(texts):
            place = PLACES[number % 10 % len(DATA["around"])]
            by_place[place] += 1
            marked_by_place[place] += reads_like_instruction(text)
        if options.show:
            print(*missed, sep="\n  ")
    for place in PLACES:
        print(f"| {place} | {by_place[place]} | {_share(marked_by_place[place], by_place[place])} |")
    print(f"| all | {by_place.total()} | {_share(marked_by_place.total(), by_place.total())} |")
    roots = options.paths or [Path(sysconfig.get_paths()["purelib"])]
    benign = list(dict.fromkeys(text for root in roots for text in _passages(root)))
    marked = [text for text in benign if reads_like_instruction(text)]
    print(f"\n| benign passages | {len(benign)} | {_share(len(marked), len(benign), 2)} |")
    if options.show:
        print(*marked, sep="\n  ")


def _share(part: int, whole: int, digits: int = 1) -> str:
    return f"{part} ({100 * part / max(whole, 1):.{digits}f} %)"


def _passages(root: Path) -> Iterator[str]:
    for path in sorted(root.rglob("*")):
        if path.suffix in PAGES or path.name == "METADATA":
            texts = [path.read_text("utf-8", "replace")]
        elif path.suffix == ".py":
            texts = list(_docstrings(path.read_text("utf-8", "replace")))
        else:
            continue
        for text in texts:
            yield from (part.strip() for part in text.split("\n\n") if len(part.strip()) >= LEAST_CHARS)


def _docstrings(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


if __name__ == "__main__":
    main()
