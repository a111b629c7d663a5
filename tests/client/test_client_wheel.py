"""`rag-context-client`: a wheel of the client alone, which needs httpx2 and pydantic and what these need."""

import runpy
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.end_to_end.process import Served, environment

ROOT = Path(__file__).resolve().parents[2]
build_client: Callable[[Path], Path] = runpy.run_path(str(ROOT / "scripts" / "release.py"))["build_client"]
PROJECT = tomllib.loads((ROOT / "clients" / "python" / "pyproject.toml").read_text(encoding="utf-8"))["project"]

PROGRAM = """
import sys

folder, site, url, *allowed = sys.argv[1:]


class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {*allowed, *sys.stdlib_module_names} and not top.startswith(("rag_context", "_sysconfigdata")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
sys.path[:0] = [folder, site]

import rag_context
from rag_context import AsyncClient, BackgroundIndexer, Client

assert rag_context.__file__.startswith(folder)
with Client(url) as memory:
    memory.index("The pump is blue.", content_type="decision", session_id="pumps", source="pump")
    print(memory.search("which colour has the pump?").results[0].content)
    memory.collections.create("colours")
    memory.collections.add("colours", [{"id": "a", "text": "blue", "embedding": [1.0, 0.0]}])
    print(memory.collections.query("colours", embedding=[1.0, 0.1]).results[0].id)
    print(memory.call("list_projects")["projects"])
"""


def needed(name: str) -> set[str]:
    """The modules at the top of a package and of all that it needs without extras."""
    package = distribution(name)
    top = {
        path.parts[0].removesuffix(".py").partition(".")[0]
        for path in package.files or ()
        if path.suffix in (".py", ".so")
    }
    for each in map(Requirement, package.requires or ()):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            top |= needed(each.name)
    return top


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    with zipfile.ZipFile(build_client(folder)) as wheel:
        wheel.extractall(folder / "site")
    return folder / "site"


def test_the_client_alone_works_with_what_it_needs_and_nothing_else(unpacked: Path, server: Served) -> None:
    allowed = set().union(*(needed(Requirement(each).name) for each in PROJECT["dependencies"]))
    site = str(distribution("pydantic").locate_file(""))
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, str(unpacked), site, server.url, *allowed],
        env=environment(),  # without COVERAGE_: what is measured there is no file of this package
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["The pump is blue.", "a", "[]"]


def test_its_bounds_are_those_of_the_whole_package() -> None:
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(PROJECT["dependencies"]) <= set(whole["dependencies"])
    assert {Requirement(each).name for each in PROJECT["dependencies"]} == {"httpx2", "pydantic"}
