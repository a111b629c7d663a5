"""The whole thing once, in front of your eyes: start a server, index, ask, check the answers, stop.

    python scripts/demo.py

Uses a temporary data directory and a free port, reads no configuration of yours, needs no network.
Exits 1 where the right file does not come first, or where the server does not stop cleanly.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "examples" / "corpus"
QUESTIONS = ROOT / "examples" / "questions.json"
TOP = 3
START_S, STOP_S = 60.0, 15.0
SNIPPET_CHARS = 160
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TERM", "COLUMNS", "NO_COLOR", "TMPDIR", "SYSTEMROOT")


class DemoError(Exception):
    """Something did not go as it should; the message says what."""


@dataclass(frozen=True)
class Set:
    """One call of `index`: what goes in, under which kind of content (None: by the name of each file)."""

    title: str
    paths: Sequence[Path]
    kind: str | None = None


@dataclass(frozen=True)
class Workspace:
    """Where the demo keeps its files."""

    folder: Path

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def command(self, *words: str) -> list[str]:
        """A call of the installed command on the demo's own data and an empty configuration."""
        program = shutil.which("rag-context", path=str(Path(sys.executable).parent)) or "rag-context"
        name, *rest = words
        return [program, name, "--data-dir", str(self.data_dir), "--config", str(self.folder / "empty.toml"), *rest]


def environment() -> Mapping[str, str]:
    """The caller's environment without what would configure the server."""
    return {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}


def sets() -> list[Set]:
    """What the demo indexes."""
    return [
        Set("the sample team's documentation and code", [CORPUS / "docs", CORPUS / "code"]),
        Set("the sample team's chats", [CORPUS / "chats"], "chat"),
        Set("the sample team's decisions", [CORPUS / "decisions"], "decision"),
    ]


@contextmanager
def running_server(workspace: Workspace) -> Iterator["subprocess.Popen[bytes]"]:
    """A server in a process of its own; it is gone when the block ends, however it ends."""
    with workspace.log.open("wb") as log:
        process = subprocess.Popen(
            workspace.command("serve", "--port", "0"), stdout=log, stderr=log, env=environment(), cwd=workspace.folder
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def wait_for_address(workspace: Workspace, process: "subprocess.Popen[bytes]", deadline: float) -> str:
    """The address that the server announces in its data directory."""
    announcement = workspace.data_dir / "server.json"
    while not announcement.is_file():
        alive(process, workspace, deadline)
    return str(json.loads(announcement.read_text(encoding="utf-8"))["url"])


def wait_for(url: str, workspace: Workspace, process: "subprocess.Popen[bytes]", deadline: float) -> None:
    """Wait until an address answers 200."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as reply:
                if reply.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        alive(process, workspace, deadline)


def alive(process: "subprocess.Popen[bytes]", workspace: Workspace, deadline: float) -> None:
    """Pause a little. Raises: DemoError once the server has ended, or it took too long."""
    if process.poll() is not None:
        raise DemoError(f"the server ended with status {process.returncode}:\n{tail(workspace.log)}")
    if time.monotonic() > deadline:
        raise DemoError(f"the server was not ready after {START_S:.0f} s:\n{tail(workspace.log)}")
    time.sleep(0.05)


def tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])


def start(workspace: Workspace, process: "subprocess.Popen[bytes]", console: Console) -> str:
    """Wait until the server is up; returns its address."""
    began = time.monotonic()
    deadline = began + START_S
    with console.status("starting the server"):
        url = wait_for_address(workspace, process, deadline)
        wait_for(f"{url}/live", workspace, process, deadline)
    console.print(Text.assemble(("live  ", "bold green"), f"{url} after {time.monotonic() - began:.1f} s"))
    with console.status("loading the model"):
        wait_for(f"{url}/ready", workspace, process, deadline)
    console.print(Text.assemble(("ready ", "bold green"), f"model loaded after {time.monotonic() - began:.1f} s"))
    return url


def index(workspace: Workspace, console: Console) -> None:
    """Take everything in through the command line, which finds the server by itself."""
    for entry in sets():
        console.print(Text.assemble("\n", ("index ", "bold"), entry.title))
        kind = ["--type", entry.kind] if entry.kind else []
        command = workspace.command("index", *kind, *map(str, entry.paths))
        sys.stdout.flush()
        result = subprocess.run(command, stderr=subprocess.STDOUT, env=environment(), cwd=ROOT, check=False)
        if result.returncode:
            raise DemoError(f"index exited with status {result.returncode}")


def ask(url: str, question: str) -> dict[str, Any]:
    """Search over HTTP, as any agent would."""
    body = json.dumps({"query": question, "limit": TOP, "agent": "demo"}).encode()
    request = urllib.request.Request(
        f"{url}/tools/rag_context_search", body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


def show(entry: Mapping[str, str], answer: Mapping[str, Any], console: Console) -> bool:
    """Print an answer; returns whether the expected source comes first."""
    expected = CORPUS / entry["source"]
    sources = [Path(result["source"]) for result in answer["results"]]
    found = sources[:1] == [expected]
    mark = ("✓ ", "bold green") if found else ("✗ ", "bold red")
    console.print(Text.assemble("\n", mark, (entry["question"], "bold"), (f"  ({entry['kind']})", "dim")))
    console.print(Text(f"  level {answer['fallbackLevel']} · {answer['latency']:.1f} ms", style="dim"))
    if answer.get("warning"):
        console.print(Text(f"  {answer['warning']}", style="yellow"))
    for number, (source, result) in enumerate(zip(sources, answer["results"], strict=True), 1):
        lines = f":{result['startLine']}-{result['endLine']}" if "startLine" in result else ""
        name = source.relative_to(ROOT).as_posix() if source.is_relative_to(ROOT) else result["source"]
        style = "green" if source == expected else ""
        console.print(Text.assemble(f"  {number}. ", (f"{result['score']:.2f}", "bold"), "  ", (name + lines, style)))
        if found and number == 1:
            snippet = " ".join(result["content"].split())[:SNIPPET_CHARS].rsplit(maxsplit=1)[0]
            console.print(Padding(Text(f"{snippet} …", style="dim"), (0, 2, 0, 11)), soft_wrap=False)
    if not found:
        console.print(Text(f"  expected {entry['source']} first", style="red"))
    return found


def stop(process: "subprocess.Popen[bytes]", workspace: Workspace, console: Console) -> None:
    """SIGTERM, and a clean end."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    try:
        status = process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        raise DemoError(f"the server did not stop within {STOP_S:.0f} s:\n{tail(workspace.log)}") from None
    if status != 0:
        raise DemoError(f"the server ended with status {status}:\n{tail(workspace.log)}")
    if (workspace.data_dir / "server.json").exists():
        raise DemoError("the server left server.json behind")
    console.print(
        Text.assemble("\n", ("stop  ", "bold green"), f"exit status 0 after {time.monotonic() - began:.1f} s")
    )


def main() -> int:
    """Run the demo; returns the exit status."""
    console = Console(highlight=False, markup=False, soft_wrap=True)
    questions = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    try:
        with tempfile.TemporaryDirectory(prefix="rag-context-demo-") as name:
            workspace = Workspace(Path(name))
            (workspace.folder / "empty.toml").touch()
            with running_server(workspace) as process:
                url = start(workspace, process, console)
                index(workspace, console)
                answers = [show(entry, ask(url, entry["question"]), console) for entry in questions]
                stop(process, workspace, console)
    except (DemoError, urllib.error.URLError) as error:
        console.print(Text(f"error: {error}", style="bold red"))
        return 1
    console.print(
        Text("\nPassages are ordered by the fused score of vector and keyword search; the number is", style="dim")
    )
    console.print(
        Text("each passage's own relevance, so it need not fall from one to the next (docs/search.md).", style="dim")
    )
    console.print(Text(f"\nThe right file came first for {sum(answers)} of {len(answers)} questions.", style="bold"))
    program = Path(sys.executable).parent / "rag-context"
    shown = program.relative_to(ROOT) if program.is_relative_to(ROOT) else program
    console.print("\nNext, with your own files and questions, and then for your agent:\n")
    for step in (f"{shown} index PATH", f'{shown} search "QUESTION"', f"{shown} install CLIENT"):
        console.print(Text(f"    {step}", style="bold"))
    return 0 if all(answers) else 1


if __name__ == "__main__":
    sys.exit(main())
