"""What the pages tell people to type does what they say: each command is run, or stands in a table with the reason."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from benchmarks.open_sets import write_open_sets

from rag_context.domain.ranking_rules import Rule
from tests.end_to_end.handed_on import handed_on
from tests.end_to_end.process import COMMAND, Served, environment, is_alive, served, wait_until
from tests.outcomes.pages import NEEDS, PAGES, ROOT, blocks, commands, lacking
from tests.servers.postgres import FAST, PASSWORD, binaries, postgres_database, postgres_process, url_of
from tests.servers.process import HOST
from tests.servers.redis import redis_server

TIMEOUT_S = 300.0
RUNS_UNTIL_STOPPED = re.compile(r"\brag-context (serve|watch|embed-server)\b")
COMMAND_LINE = re.compile(
    r"(?:[$#] )?(?:[A-Z_]+=\S+ )*"
    r"(?:rag-context|make|pip|python3?|\.venv/\S+|curl|docker|kubectl|helm|psql|pg_\w+|sqlite3) "
)
RULE = re.compile(r"RAG_CONTEXT_SEARCH__WITHOUT=([\w-]+)")
ADDRESS = re.compile(r"postgresql://[^/\s']*/(\w+)[^\s']*")
IN_THE_CHECKOUT = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/design/benchmarks.md",
    "docs/design/dependencies.md",
    "docs/design/quality.md",
)

FILES = {
    "README.md": "# The notes\n\nWhat the harbour office knows.\n",
    "notes/tides.md": "# Tides\n\nThe sill of the marina dries at low water.\n",
    "docs/pool.md": "# Checkouts\n\nThey time out when the pool is empty.\n",
    "src/ledger.py": "def post(amount):\n    return amount\n",
    "my-repository/docs/pool.md": "# Checkouts\n\nThey time out when the pool is empty.\n",
    "home/papers/tides.md": "# Tides\n\nThe sill of the marina dries at low water.\n",
    "home/exports/chat.txt": "[Maren] The pump of pontoon C failed.\n",
    "home/bin/my-exporter": "#!/bin/sh\ncat documents.jsonl\n",
}
"""What readers have of their own, in the words of the pages."""

SHOWN = re.search(
    r"^\$ (rag-context search [^\n]*)\n(level 1.*?)^```$",
    (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8"),
    re.DOTALL | re.MULTILINE,
) or pytest.fail("the quick start shows no answer")
"""The search whose answer the quick start shows, and the answer."""

BEFORE = {
    "docs/coming-from.md": [
        """echo '{"content": "Ana prefers tea.", "contentType": "decision", "source": "mem0/7"}' > documents.jsonl"""
    ],
    "docs/design/sizing.md": [
        "export DATABASE_URL=postgresql://rag_context@db.example/rag_context",
        "rag-context stats --data-dir sizing",
    ],
    "docs/providers.md": [
        "rag-context collections create notes || true  # docs/collections.md does",
        """echo '{"text": "The pump is blue."}' | rag-context collections add notes -""",
    ],
}
"""What a page tells in prose, or another page that it refers to."""


@dataclass
class Reader:
    """Types commands, one after the other, in a shell whose folder and variables stay."""

    cwd: Path
    variables: dict[str, str]
    own: Path
    """The data directory of servers that are started."""

    def type(self, command: str) -> str:
        """What it prints. Raises: AssertionError where it fails."""
        if RUNS_UNTIL_STOPPED.search(command):
            return self._started(command)
        left = self.own.with_name("left")
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail\n{command}\nended=$?; pwd >{left}; env -0 >>{left}; exit $ended"],
            cwd=self.cwd,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert not done.stdout.startswith('{"error"'), (command, done.stdout)
        where, _, variables = left.read_text().partition("\n")
        self.cwd = Path(where)
        self.variables = dict(pair.partition("=")[::2] for pair in variables.split("\0") if pair)
        return done.stdout

    def _started(self, command: str) -> str:
        """Run it until it says that it is there, and stop it as an operator does."""
        with subprocess.Popen(
            ["bash", "-c", f"exec env {command}"],
            cwd=self.cwd,
            env={**self.variables, "RAG_CONTEXT_DATA_DIR": str(self.own), "MCP_SERVER_PORT": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            printed = ""
            late = threading.Timer(TIMEOUT_S, running.kill)
            late.start()
            for line in running.stderr or ():
                printed += line
                if "Ctrl-C stops it" in line:
                    if at := re.search(r" at (http://[^/,. ]+(?:\.\d+)+:\d+)", line):
                        wait_until(lambda url=at[1]: is_alive(url))
                    running.terminate()
            late.cancel()
        assert "Ctrl-C stops it" in printed, (command, printed)
        assert running.returncode == 0, (command, running.returncode, printed)
        return printed


@pytest.fixture(scope="module")
def postgres() -> Iterator[int]:
    """The port of a server of one's own: the pages make roles and databases."""
    with postgres_process(*FAST) as server:
        yield server.port


@pytest.fixture(scope="module")
def redis() -> Iterator[int]:
    with redis_server() as server:
        yield server.port


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages") / "data"


def configuration_of(data_dir: Path) -> Path:
    """The file that the server and the commands read."""
    return data_dir.with_name("configuration") / "rag-context.toml"


@pytest.fixture(scope="module")
def server(data_dir: Path, postgres: int) -> Iterator[Served]:
    """The server that runs while people type, with another connection for collections."""
    with postgres_database(url_of(postgres)) as url:
        configuration_of(data_dir).parent.mkdir()
        configuration_of(data_dir).write_text(f'[connections.team]\nprovider = "postgres"\nurl = "{url}"\n')
        with served(data_dir, "--config", str(configuration_of(data_dir))) as server:
            server.wait_ready()
            yield server


@pytest.fixture
def reader(data_dir: Path, server: Served, postgres: int, tmp_path: Path) -> Reader:
    """A user with a home directory, in which the server's data directory is at its default place."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    home = tmp_path / "home"
    (home / ".local" / "share").mkdir(parents=True)
    (home / ".local" / "share" / "rag-context").symlink_to(data_dir)
    shutil.copytree(configuration_of(data_dir).parent, home / ".config" / "rag-context")
    (home / "bin" / "my-exporter").chmod(0o755)
    variables = environment(
        HOME=str(home),
        XDG_DATA_HOME=str(home / ".local" / "share"),
        XDG_CONFIG_HOME=str(home / ".config"),
        PATH=os.pathsep.join(
            map(str, [home / "bin", handed_on().parent, Path(COMMAND).parent, binaries(), os.environ["PATH"]])
        ),
        PGHOST=HOST,
        PGPORT=str(postgres),
        PGUSER="postgres",
        PGPASSWORD=PASSWORD,
    )
    return Reader(tmp_path, variables, tmp_path / "own")


@pytest.fixture(scope="module")
def open_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The beginning of the smallest open set; tests/evaluation/test_eval_command.py measures all of them."""
    folders = write_open_sets(tmp_path_factory.mktemp("open"))
    smallest = min(folders, key=lambda folder: (folder / "corpus.jsonl").stat().st_size)
    for name, lines in (("corpus.jsonl", 12), ("queries.jsonl", 4)):  # what the first four ask is in the first twelve
        file = smallest / name
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:lines]))
    return smallest


@pytest.fixture
def here(
    server: Served, postgres: int, redis: int, open_set: Path, tmp_path: Path
) -> Iterator[Callable[[str, str], str]]:
    """A command of a page with the addresses and folders of this machine, and measured with less."""
    replaced = {
        "localhost:3000": server.url.removeprefix("http://"),
        "127.0.0.1:3000": server.url.removeprefix("http://"),
        "redis://redis:6379": f"redis://{HOST}:{redis}",
        "--host 0.0.0.0 --port 8080": "--port 0",
        "/srv/memory": str(tmp_path / "srv"),
        "make ": "make --dry-run ",
        ".venv/bin/python": sys.executable,
        " 10000 30000 100000": " 1000",
        "benchmarks.quality": f"benchmarks.quality {open_set}",
        "PASSWORD '...'": f"PASSWORD '{PASSWORD}'",
    }
    with ExitStack() as stack:

        @cache
        def database() -> str:
            return stack.enter_context(postgres_database(url_of(postgres)))

        def made(page: str, command: str) -> str:
            for written, meant in replaced.items():
                command = command.replace(written, meant)
            if page == "docs/postgresql.md":  # it makes its role and its databases itself
                return ADDRESS.sub(lambda found: url_of(postgres, found[1], user="rag_context"), command)
            return ADDRESS.sub(lambda found: database(), command)

        yield made


def _of_any_rule(named: re.Match[str]) -> str:
    """Raises: ValueError where there is no such rule. Every rule is named alike: to run one of the commands will do."""
    Rule(named[1])
    return "without a rule"


@pytest.mark.parametrize("page", [page for page in PAGES if any(lacking(line) is None for line in commands(page))])
def test_every_command_works(page: str, reader: Reader, here: Callable[[str, str], str], tmp_path: Path) -> None:
    for kind, block in blocks(page):
        if kind == "jsonl":
            (tmp_path / "documents.jsonl").write_text(block)
    if page in IN_THE_CHECKOUT:
        reader.cwd = ROOT
    typed = [*BEFORE.get(page, ()), *commands(page)]
    if page in IN_THE_CHECKOUT:  # there, no command changes anything
        typed = list({RULE.sub(_of_any_rule, command): command for command in typed}.values())
    for command in typed:
        if lacking(command) is None:
            printed = reader.type(here(page, command))
            if (page, command) == ("docs/quick-start.md", SHOWN[1]):
                assert " ".join(SHOWN[2].split()).partition("documentation ")[2] in " ".join(printed.split())


@pytest.mark.parametrize("page", PAGES)
def test_every_command_stands_behind_a_prompt(page: str) -> None:
    for kind, block in blocks(page):
        if kind != "console":
            assert [line for line in block.splitlines() if COMMAND_LINE.match(line) and "[OPTIONS]" not in line] == []


def test_what_cannot_run_here_is_on_the_pages() -> None:
    every = [command for page in PAGES for command in commands(page)]
    unused = [start for starts in NEEDS.values() for start in starts if not any(c.startswith(start) for c in every)]
    assert unused == []


def test_the_answer_of_the_quick_start_is_that_of_its_picture() -> None:
    (source,) = re.findall(r"examples/corpus/(\S+\.md)", SHOWN[2])
    picture = (ROOT / "docs" / "terminal.svg").read_text(encoding="utf-8")
    assert Path(source).name in picture
