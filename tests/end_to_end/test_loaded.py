"""What is forked off a loaded process does what a started one does."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.handed_on import handed_on
from tests.end_to_end.loaded import COMMAND, Program
from tests.end_to_end.process import environment, is_alive, run, served, wait_until


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


def test_a_shell_starts_it_gives_it_signals_and_gets_its_status(tmp_path: Path) -> None:
    piped = ["sh", "-c", 'echo "pumps" | "$0" import - --data-dir data; echo $?', str(handed_on())]
    done = subprocess.run(piped, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"
    assert "This is no export of rag-context" in done.stderr
    words = [str(handed_on()), "serve", "--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment()) as server:
        said = next(line for line in server.stderr or () if "Ctrl-C stops it" in line)
        wait_until(lambda: is_alive(said.split(" at ")[1].partition(",")[0]))
        server.terminate()
        assert server.wait(60) == 0
