"""What is forked off a loaded process does what a started one does."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.loaded import COMMAND, Program
from tests.end_to_end.process import environment, run, served


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (("index", "-", "--source", "pumps", "--data-dir", "data", "--json"), "The pumps are blue."),
        (("config", "--json", "--data-dir", "data"), None),
        (("search",), None),
        (("no-such-command",), None),
        (("import", "gone.jsonl", "--data-dir", "data"), None),
    ],
)
def test_it_ends_and_prints_as_if_it_were_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sent: str | None
) -> None:
    ended = []
    for fork in "10":
        monkeypatch.setenv("RAG_TEST_FORK", fork)
        (folder := tmp_path / "place").mkdir()
        done = run([COMMAND, *words], env=environment(HOME=str(tmp_path)), cwd=folder, sent=sent)
        ended.append((done.returncode, done.stdout, done.stderr, sorted(each.name for each in folder.iterdir())))
        folder.rename(tmp_path / fork)
    assert ended[0] == ended[1]


def test_it_is_a_child_with_the_environment_and_the_signals_of_a_process(tmp_path: Path) -> None:
    with served(tmp_path / "data", RAG_MIN_SCORE="0.25") as server:
        pid = server.process.pid
        assert f"\nPPid:\t{os.getpid()}\n" in Path(f"/proc/{pid}/status").read_text()
        assert "loading.py" in Path(f"/proc/{pid}/cmdline").read_text()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
    assert not Path(f"/proc/{pid}").exists()


def test_what_is_special_about_a_start_is_started(tmp_path: Path) -> None:
    with Program([COMMAND, "mcp"], stdin=subprocess.PIPE, env=environment(), start_new_session=True) as process:
        assert os.getsid(process.pid) == process.pid
        process.kill()
