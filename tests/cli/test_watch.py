"""`watch` and `serve --watch` as processes: what they say, what they survive, how they end (C-5, M-6)."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import pytest

from .run_command import TIMEOUT_S, Commands, Ended, ended, serving

TEXT = "# Berths\n\nThe database refuses overlapping bookings of one berth.\n"


class Watching:
    """A `watch` in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def line(self) -> str:
        """The next line for people."""
        return self._read(self.process.stdout)

    def note(self, beginning: str) -> str:
        """Wait for a line on stderr."""
        while not (said := self._read(self.process.stderr)).startswith(beginning):
            pass
        return said

    def stop(self, how: signal.Signals = signal.SIGTERM) -> Ended:
        self.process.send_signal(how)
        return ended(self.process)

    @staticmethod
    def _read(stream: object) -> str:
        line = stream.readline()  # type: ignore[attr-defined]
        assert line, "it ended"
        return str(line).rstrip("\n")


@contextmanager
def watching(commands: Commands, *words: str) -> Iterator[Watching]:
    """In step with the folder at the beginning of the block."""
    process = commands.start("watch", *words)
    try:
        watch = Watching(process)
        watch.note("Watching ")
        yield watch
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_line_for_every_change_from_the_first_to_the_last(commands: Commands) -> None:
    commands.write("notes/old.md", TEXT)
    with watching(commands, "notes") as watch:
        assert watch.line() == "indexed  notes/old.md"
        commands.write("notes/a.md", TEXT + "More.\n")
        assert watch.line() == "indexed  notes/a.md"
        commands.write("notes/a.md", "# Tides\n\nAnother.\n")
        assert watch.line() == "replaced notes/a.md"
        (commands.folder / "notes/a.md").rename(commands.folder / "notes/b\nc.md")
        assert watch.line() == "renamed  notes/a.md -> notes/b\\nc.md"
        commands.write("notes/.ragignore", "old.md\n")
        assert watch.line() == "removed  notes/old.md"
        commands.write("notes/bad.txt", b"\xff\xfe\xff")
        assert watch.line().startswith("rejected notes/bad.txt: not valid ")
        commands.write("notes/last.md", "at the very end")
        stopped = watch.stop(signal.SIGINT)

    assert (stopped.status, stopped.out) == (0, "indexed  notes/last.md\n")
    assert "Traceback" not in stopped.err
    assert commands("health", "--json").json()["indexedDocuments"] == 2


def test_watching_continues_after_a_server_was_killed(commands: Commands) -> None:
    folder = commands.folder / "notes"
    folder.mkdir()
    with serving(commands) as served, watching(commands, "notes", "--json") as watch:
        commands.write("notes/a.md", TEXT)
        assert json.loads(watch.line())["status"] == "indexed"
        served.stop(signal.SIGKILL)
        commands.write("notes/b.md", TEXT + "More.\n")
        assert "went away. Trying again in 1 s" in watch.note("warning: ")
        receipt = json.loads(watch.line())
        assert (receipt["status"], receipt["source"]) == ("indexed", f"{folder}/b.md")
        assert watch.stop().status == 0


def test_a_server_keeps_folders_in_step_and_indexes_the_last_change(commands: Commands) -> None:
    commands.write("notes/a.md", TEXT)
    with serving(commands, "--watch", "notes") as served:
        _until(served.url, {f"{commands.folder}/notes/a.md"})
        (commands.folder / "notes/a.md").rename(commands.folder / "notes/b.md")
        _until(served.url, {f"{commands.folder}/notes/b.md"})
        commands.write("notes/c.md", "at the very end")
        stopped = served.stop()

    assert stopped.status == 0
    assert commands("health", "--json").json()["indexedDocuments"] == 2


@pytest.mark.parametrize("words", [["watch", "no"], ["serve", "--port", "0", "--watch", "no"]])
def test_a_path_that_does_not_exist_is_rejected(commands: Commands, words: list[str]) -> None:
    rejected = commands(*words)

    assert (rejected.status, rejected.err) == (2, "error: 'no' cannot be watched: it is not there.\n")


def _until(url: str, sources: set[str]) -> None:
    give_up_at = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up_at:
        listed = httpx2.post(f"{url}/tools/rag_context_list", json={"limit": 100}, trust_env=False).json()
        if {each["source"] for each in listed["documents"]} == sources:
            return
        time.sleep(0.02)
    raise AssertionError(listed)
