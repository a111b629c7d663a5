"""A repository of many files, indexed for the first time: when keyword search finds it, and when its vectors are there.

    python -m benchmarks.first_hour [--files 10000] [--keep FOLDER]

The repository is invented and the same on every run: four kinds of text, a name in each file that stands in no other.
Times are those of the command `rag-context index` without a terminal; what it says on the way is printed with the
second at which it was said.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDER = 50
"""Files of one folder."""

_ORDINARY = (
    "account address amount answer archive balance batch bill branch buffer cache call channel charge check client "
    "close column config connection count country create credit currency customer date day deadline decode default "
    "delay delete delivery deposit detail discount document driver email encode entry error event export failure "
    "field file filter format group handler header history host id image import index input invoice item job key "
    "label language last level limit line list load local lock log login mail manager map message method model month "
    "name network node note number object offer option order output owner package page parser partner password path "
    "payment period plan port price print process product profile project provider queue quota range rate reader "
    "reason record refund region reload remote remove report request response result retry return role route row rule "
    "sale schema search sender server session setting shop size source start state status step stock store stream "
    "string subject sum table target task tax template term test text thread time title token total trace type unit "
    "update upload url user value vendor version view visitor wait warehouse warning week width window worker write "
    "year zone "
)
WORDS = _ORDINARY.split()


class Writer:
    """Writes texts of ordinary words, which a model's tokeniser knows, as those of programs mostly are."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def words(self, count: int) -> list[str]:
        """Some words."""
        return self._chance.choices(WORDS, k=count)

    def sentence(self) -> str:
        """One sentence of 8 to 16 words."""
        return " ".join(self.words(self._chance.randrange(8, 17))).capitalize() + "."

    def passage(self, sentences: int) -> str:
        """Some sentences."""
        return " ".join(self.sentence() for _ in range(sentences))


def identifier(number: int) -> str:
    """A name that stands in one file only."""
    return f"unit{number:06d}handler"


def write_repository(root: Path, files: int) -> None:
    """Write a repository of about 3 KB a file: six of ten are code, three documentation, one is configuration."""
    writer = Writer(seed=11)
    for number in range(files):
        kind = number % 10
        suffix, text = (
            (".py", _code(writer, number))
            if kind < 6
            else (".md", _page(writer, number))
            if kind < 9
            else (".yaml", _configuration(writer, number))
        )
        path = root / f"part{number // FOLDER:04d}" / f"{writer.words(1)[0]}_{number}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _code(writer: Writer, number: int) -> str:
    functions = [_function(writer, identifier(number))]
    functions += [_function(writer, "_".join(writer.words(2))) for _ in range(6)]
    return f'"""{writer.sentence()}"""\n\nimport os\n\n\n' + "\n\n\n".join(functions) + "\n"


def _function(writer: Writer, name: str) -> str:
    body = "\n".join(f"    {a} = {b}({c}, {a!r})" for a, b, c in (writer.words(3) for _ in range(6)))
    arguments = ", ".join(dict.fromkeys(writer.words(2)))
    return f'def {name}({arguments}):\n    """{writer.sentence()}"""\n{body}\n    return os'


def _page(writer: Writer, number: int) -> str:
    parts = [f"## {' '.join(writer.words(3))}\n\n{writer.passage(4)}\n\n{writer.passage(3)}" for _ in range(4)]
    return f"# {' '.join(writer.words(4))}\n\nAbout `{identifier(number)}`.\n\n" + "\n\n".join(parts) + "\n"


def _configuration(writer: Writer, number: int) -> str:
    lines = [f"  {key}: {' '.join(writer.words(3))}" for key in dict.fromkeys(writer.words(40))]
    return f"name: {identifier(number)}\nvalues:\n" + "\n".join(lines) + "\n"


def measure(folder: Path, files: int) -> None:
    """Write, index, search while vectors follow, and print what happened when."""
    repository, data_dir = folder / "repository", folder / "data"
    write_repository(repository, files)
    size = sum(path.stat().st_size for path in repository.rglob("*.*"))
    print(f"{files} files, {size / 1e6:.1f} MB", flush=True)
    program = str(Path(sys.executable).with_name("rag-context"))
    command = [program, "index", str(repository), "--data-dir", str(data_dir)]
    began = time.monotonic()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"}) as process:
        for line in process.stderr or ():
            print(f"{time.monotonic() - began:7.1f} s {_cpu_s(process.pid)} {line.rstrip()}", flush=True)
            if line.startswith("Keyword search finds"):
                _search(program, data_dir, files)
    print(f"{time.monotonic() - began:7.1f} s  exit status {process.returncode}")


def _cpu_s(pid: int) -> str:
    """The CPU time of a running process, where the system shows it: a busy machine stretches all other times."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return f"({(int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK'):.1f} s CPU) "


def _search(program: str, data_dir: Path, files: int) -> None:
    for number in (0, files // 2, files - 1):
        command = [program, "search", identifier(number), "--mode", "text", "--limit", "1", "--data-dir", str(data_dir)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print("           ", *done.stdout.splitlines()[:4], sep="\n            ", flush=True)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description="Index an invented repository for the first time.")
    parser.add_argument("--files", type=int, default=10_000, metavar="N", help="number of files")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="work here and keep it")
    asked = parser.parse_args()
    if asked.keep is not None:
        measure(asked.keep, asked.files)
        return
    with tempfile.TemporaryDirectory(prefix="rag-context-first-hour-") as folder:
        measure(Path(folder), asked.files)


if __name__ == "__main__":
    main()
