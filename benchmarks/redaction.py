"""Measures redaction: secrets that leak, and false alarms, beside detect-secrets where its program is given.

python -m benchmarks.redaction [--peer PROGRAM] [--seed N] [--files N] [--peer-files N] [PATH ...]

The labelled cases are those of `secret_cases`. False alarms are also counted in text files below each PATH: `--files`
of them, drawn with the seed, or all. With `--peer`, the program (`detect-secrets`, installed apart) scans the same
cases and the first `--peer-files` of the files, with its own defaults. A case counts as found by it if it reports
anything in the file, and as found here only if no eight characters of the secret in a row are left.
"""

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from tests.ingest.secret_cases import Case, benign_cases, leaks, secret_cases

from rag_context.ingest.redaction import redact

_SUFFIXES = [".py", ".pyi", ".md", ".rst", ".txt", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".js", ".ts"]
SUFFIXES = frozenset([*_SUFFIXES, ".css", ".html", ".sh", ".c", ".h", ".xml"])
MAX_BYTES = 200_000


def main() -> None:
    """Print the table of the labelled cases, and the false alarms in files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=Path, help="the program detect-secrets")
    parser.add_argument("--seed", type=int, default=20260301)
    parser.add_argument("--files", type=int, help="so many of the files")
    parser.add_argument("--peer-files", type=int, default=500, help="so many of these are scanned by the peer too")
    parser.add_argument("--show", action="store_true", help="print what was missed, and what was masked in files")
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    cases = [*secret_cases(options.seed), *benign_cases(options.seed)]
    _print_cases(cases, None if options.peer is None else _peer_on_cases(options.peer, cases), show=options.show)
    if options.paths:
        files = list(_text_files(options.paths))
        Random(options.seed).shuffle(files)
        files = files[: options.files]
        _print_files(files, show=options.show)
        if options.peer is not None:
            _print_peer_files(options.peer, files[: options.peer_files])


def _print_cases(cases: Sequence[Case], by_peer: frozenset[int] | None, *, show: bool) -> None:
    total: Counter[str] = Counter()
    ours: Counter[str] = Counter()
    peers: Counter[str] = Counter()
    for number, case in enumerate(cases):
        total[case.group] += 1
        alarm = not leaks(case) if case.secrets else redact(case.text).content != case.text
        ours[case.group] += alarm
        peers[case.group] += by_peer is not None and number in by_peer
        if show and alarm != bool(case.secrets):
            print(f"  {case.group}, {case.kind}: {redact(case.text).content[-300:]!r}")
    print("| shapes | cases | found | detect-secrets |\n|---|---|---|---|")
    for group in sorted(total.keys() - {"benign"}):
        print(f"| {group} | {total[group]} | {ours[group]} | {peers[group] if by_peer is not None else '-'} |")
    for counts in (total, ours, peers):
        counts["all with secrets"] = counts.total() - counts["benign"]
    for group in ("all with secrets", "benign"):
        print(f"| {group} | {total[group]} | {ours[group]} | {peers[group] if by_peer is not None else '-'} |")


def _peer_on_cases(peer: Path, cases: Sequence[Case]) -> frozenset[int]:
    """Numbers of the cases in whose file the peer reports something."""
    return frozenset(_scanned(peer, [(case.file, case.text) for case in cases]))


def _scanned(peer: Path, files: Sequence[tuple[str, str]]) -> Mapping[int, int]:
    """How many secrets the peer reports in files, given as names and texts; by their numbers."""
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, text) in enumerate(files):
            path = Path(folder, str(number), name)
            path.parent.mkdir()
            path.write_text(text)
        command = [
            str(peer),
            "scan",
            "--all-files",
            "--no-verify",
            ".",
        ]  # by relative paths: absolute ones are left out
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=folder)
    results: dict[str, list[object]] = json.loads(done.stdout)["results"]
    return {int(Path(name).parts[0]): len(found) for name, found in results.items()}


def _text_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if (
                file.suffix in SUFFIXES
                and file.is_file()
                and not file.is_symlink()
                and file.stat().st_size <= MAX_BYTES
            ):
                yield file


def _print_files(files: Sequence[Path], *, show: bool) -> None:
    counts: Counter[str] = Counter()
    chars, hit, spent_s = 0, 0, 0.0
    for file in files:
        text = file.read_text("utf-8", "replace")
        chars += len(text)
        started = time.process_time()
        redacted = redact(text)
        spent_s += time.process_time() - started
        hit += bool(redacted.found)
        counts.update(redacted.found)
        if show and redacted.found:
            before, after = text.splitlines(), redacted.content.splitlines()
            changed = [(a, b) for a, b in zip(before, after, strict=False) if a != b]
            for old, new in changed[:5]:
                print(f"  {file}: {old.strip()[:160]!r} -> {new.strip()[:120]!r}")
    print(
        f"{counts.total()} masked in {hit} of {len(files)} files of {chars / 1e6:.1f} million characters in "
        f"{spent_s:.1f} s of processor time: {dict(counts.most_common())}"
    )


def _print_peer_files(peer: Path, files: Sequence[Path]) -> None:
    texts = [(file.name, file.read_text("utf-8", "replace")) for file in files]
    started = time.perf_counter()
    found = _scanned(peer, texts)
    spent_s = time.perf_counter() - started
    ours = [redact(text).found for _, text in texts]
    masked = sum(redactions.total() for redactions in ours)
    print(f"the first {len(files)} of these: {masked} masked in {sum(map(bool, ours))} files")
    print(f"detect-secrets, in the same: {sum(found.values())} reported in {len(found)} files, in {spent_s:.0f} s")


if __name__ == "__main__":
    main()
