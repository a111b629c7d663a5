"""What a command costs before it does anything: the processor time of the process, above that of a bare Python."""

import os
import statistics
import sys
from pathlib import Path

from benchmarks.corpus import Writer
from benchmarks.figures import Figure
from benchmarks.processes import COMMAND, serving, until_ready

RUNS = 9
LIBRARIES = "import http.client, pydantic.main, typer"


def measure(data_dir: Path) -> list[Figure]:
    """The commands alternate with a bare Python in one run, so that a busy machine weighs on all of them."""
    with serving(data_dir) as server:
        until_ready(server)
        commands = {
            "bare": (sys.executable, "-c", "pass"),
            "libraries": (sys.executable, "-c", LIBRARIES),
            "version": (COMMAND, "--version"),
            "help": (COMMAND, "--help"),
            "search": (COMMAND, "search", Writer(seed=17).question(), "--json", "--data-dir", str(data_dir)),
        }
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(RUNS):
            for name, words in commands.items():
                taken[name].append(processor_time(words))
    cost = {name: statistics.median(times) for name, times in taken.items()}
    return [
        Figure("rag-context --version above a bare Python", cost["version"] - cost["bare"], "s", 0.1, note="CPU"),
        Figure("rag-context --help above a bare Python", cost["help"] - cost["bare"], "s", note="CPU"),
        Figure("rag-context search through a server", cost["search"], "s", 0.22, note="CPU of the command"),
        Figure("rag-context search through a server / a bare Python", cost["search"] / cost["bare"], "x", note="CPU"),
        Figure("importing the libraries of that command alone", cost["libraries"], "s", note="CPU"),
        Figure("a bare Python", cost["bare"], "s", note="CPU"),
    ]


def processor_time(words: tuple[str, ...]) -> float:
    """Seconds of the processor, the system's work for it included, that a command took from its start to its end."""
    quiet = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    process = os.posix_spawn(words[0], words, os.environ, file_actions=quiet)
    _, status, usage = os.wait4(process, 0)
    if status:
        raise RuntimeError(f"{words[1:3]} ended with status {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime
