"""A machine of its own for clients: a private home, nothing of the user's environment, and bounded processes."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from tests.clients.agents import AgentClient
from tests.clients.model import Model, Sent
from tests.end_to_end.process import COMMAND, wait_until

TURN_S = 300.0
"""A turn takes 2 to 60 s on an idle machine, the first ones longest, and several times that on a busy one."""


def installed_clients() -> Path:
    """The folder in which `make test-clients` installs the clients."""
    return Path(os.environ.get("RAG_TEST_CLIENTS_DIR") or Path(__file__).parents[2] / ".clients")


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn that has ended, and what it sent to the model."""

    status: int
    out: str
    err: str
    sent: list[Sent]

    @property
    def asked(self) -> list[Sent]:
        """The requests of the agent itself; others have titles made."""
        return [each for each in self.sent if each.tools]

    @property
    def first(self) -> Sent:
        """The first request of the agent."""
        assert self.asked, f"nothing reached the model: {self.out}{self.err}"
        return self.asked[0]


@dataclass
class Machine:
    """A home folder and what runs in it.

    Args:
        home: exists.
        model: what clients send their requests to.
        variables: added to the environment of every process.
    """

    home: Path
    model: Model
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What every process gets."""
        node = Path(shutil.which("node") or "node").parent
        temporary = self.home / "tmp"
        temporary.mkdir(exist_ok=True)
        return {
            "PATH": f"{Path(COMMAND).parent}:{node}:/usr/bin:/bin",
            "HOME": str(self.home),
            "TMPDIR": str(temporary),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **self.variables,
        }

    def project(self, name: str) -> Path:
        """A repository below the home folder."""
        folder = self.home / "work" / name
        git = folder / ".git"
        (git / "objects").mkdir(parents=True)
        (git / "refs" / "heads").mkdir(parents=True)
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        (git / "config").write_text(
            "[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
            f'[remote "origin"]\n\turl = https://git.example.org/harbour/{name}.git\n'
        )
        return folder

    def set_up(self, client: AgentClient) -> None:
        """Write what the client needs to work without an account."""
        for name, content in client.files(self.model.url).items():
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

    def rag_context(self, *words: str, cwd: Path | None = None, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of ours to its end."""
        return subprocess.run(
            [COMMAND, *words],
            cwd=cwd or self.home,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TURN_S,
            check=False,
        )

    @contextmanager
    def serving(self, *options: str) -> Iterator[str]:
        """The address of a ready server of this machine, for the time of the block."""
        with (self.home / "server.log").open("ab") as log:
            process = subprocess.Popen(
                [COMMAND, "serve", "--port", "0", *options], cwd=self.home, env=self.environment, stderr=log
            )
        try:
            wait_until(lambda: process.poll() is not None or self._ready_url() is not None)
            url = self._ready_url()
            assert url is not None, (self.home / "server.log").read_text()
            yield url
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TURN_S)

    def wait_prepared(self) -> None:
        """Wait until the server has loaded what it answers agents with."""
        wait_until(lambda: "agents are answered at once" in (self.home / "server.log").read_text())

    def _ready_url(self) -> str | None:
        announcement = next(self.home.glob(".local/**/server.json"), None)
        if announcement is None:
            return None
        url = str(json.loads(announcement.read_text())["url"])
        try:
            return url if httpx2.get(f"{url}/ready", trust_env=False).is_success else None
        except httpx2.TransportError:
            return None

    def turn(
        self,
        client: AgentClient,
        prompt: str,
        folder: Path,
        *options: str,
        is_resumed: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> Turn:
        """Give a client a prompt, and wait for the end of the turn. No process of it is left behind."""
        words = client.resume if is_resumed else client.prompt
        program = installed_clients() / "node_modules" / client.program
        start = ["node", str(program)] if program.suffix == ".js" else [str(program)]
        before = len(self.model.sent)
        process = subprocess.Popen(
            [*start, *words(prompt), *options],
            cwd=folder,
            env={**self.environment, **client.variables(self.model.url), **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # no session: Linux gives each of those a share of its own, however many are busy
        )
        try:
            out, err = process.communicate(timeout=TURN_S)
        finally:
            end_group(process)
        return Turn(process.returncode, out, err, self.model.sent[before:])

    def files(self) -> list[Path]:
        """Every file of the home folder that is no data of ours."""
        own = (self.home / ".local" / "share" / "rag-context", self.home / "tmp", self.home / "work")
        return [
            file
            for file in sorted(self.home.rglob("*"))
            if file.is_file() and not any(file.is_relative_to(folder) for folder in own)
        ]

    def contents(self) -> dict[str, bytes]:
        """What is in them, by their paths."""
        return {file.relative_to(self.home).as_posix(): file.read_bytes() for file in self.files()}

    def processes(self) -> list[str]:
        """The command lines of all processes of this machine that still run (Linux)."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    variables = (entry / "environ").read_bytes().split(b"\0")
                    if f"HOME={self.home}".encode() in variables:
                        found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
                except OSError:  # it has ended, or is another user's
                    continue
        return found


def end_group(process: "subprocess.Popen[str]") -> None:
    """End a process that leads a group, and all of that group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
