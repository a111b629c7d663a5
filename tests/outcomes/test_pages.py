"""What the pages for newcomers tell people to type does what they say: each line is run, on one shared server."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.process import COMMAND, Served, environment, served

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / "clients").glob("*.md"))
PAGES = ("quick-start.md", "data.md", "troubleshooting.md", *CLIENTS)
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)

NOT_HERE = (
    "python3 -m venv",  # the environment that the tests run in is installed already
    "pip install",
    "pip uninstall",
    "rag-context serve",  # the shared server
    "export ",  # addresses of servers that are not here
    "rm -rf ~/.local",
    "cd my-repository",
)


def lines_of(page: str) -> list[str]:
    """What stands behind a prompt in a page's blocks, with the lines that continue it."""
    found: list[str] = []
    for block in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(line[2:])
            elif line.startswith("  ") and found:
                found[-1] += "\n" + line
    return found


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages") / "data"


@pytest.fixture(scope="module")
def server(data_dir: Path) -> Iterator[Served]:
    with served(data_dir) as server:
        server.wait_ready()
        yield server


@pytest.fixture
def surroundings(data_dir: Path, tmp_path: Path) -> dict[str, str]:
    """A home of its own, a folder with the sample corpus and a repository, and the server's data directory."""
    shutil.copytree(ROOT / "examples" / "corpus", tmp_path / "examples" / "corpus")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "pool.md").write_text("# Checkouts\n\nThey time out when the pool is empty.\n")
    path = os.pathsep.join([str(Path(COMMAND).parent), os.environ["PATH"]])
    return environment(HOME=str(tmp_path / "home"), PATH=path, RAG_CONTEXT_DATA_DIR=str(data_dir))


@pytest.mark.parametrize("page", PAGES)
def test_every_line_that_is_to_be_typed_works(
    page: str, server: Served, surroundings: dict[str, str], tmp_path: Path
) -> None:
    lines = [line for line in lines_of(page) if not line.startswith(NOT_HERE)]
    assert lines or page.endswith("zed.md")
    for line in lines:
        done = subprocess.run(
            ["bash", "-c", line.replace("localhost:3000", server.url.removeprefix("http://"))],
            cwd=tmp_path,
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        assert not done.stdout.startswith('{"error"'), (line, done.stdout)


def test_the_answer_that_the_quick_start_shows_is_the_one_that_is_given(
    server: Served, surroundings: dict[str, str], tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")
    shown = re.search(r"^```\n\$ (rag-context search [^\n]*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert shown is not None
    for line in ("rag-context index examples/corpus", shown[1]):
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=True
        )
    given = " ".join(done.stdout.split())
    passage = " ".join(shown[2].split()).partition("documentation ")[2]
    assert passage in given
    picture = (ROOT / "docs" / "terminal.svg").read_text(encoding="utf-8")
    assert "0002-web-app-instead-of-native.md" in given
    assert "0002-web-app-instead-of-native.md" in picture
