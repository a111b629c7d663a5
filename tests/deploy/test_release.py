"""A release: the same commit gives the same bytes, and they hold what they must and no more."""

import os
import runpy
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deploy.files import ROOT

build: Callable[[Path, Path], tuple[Path, Path]] = runpy.run_path(str(ROOT / "scripts" / "release.py"))["build"]


def copy(folder: Path) -> Path:
    """A checkout of what is built, without its times."""
    folder.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", ".gitignore", "hatch_build.py"):
        shutil.copyfile(ROOT / name, folder / name)
    for name in ("src", "docs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("release")
    return build(folder / "dist", copy(folder / "source"))


def test_the_same_commit_gives_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    other = copy(tmp_path / "elsewhere")
    for path in other.rglob("*.py"):
        os.utime(path, (0, 1_000_000_000))
    again = build(tmp_path / "dist", other)
    assert [path.name for path in again] == [path.name for path in built]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in built]


def test_wheel_and_source_hold_the_model_and_the_licences(built: tuple[Path, Path]) -> None:
    wheel, archive = built
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
    assert {"rag_context/embedders/minilm/model.onnx", "rag_context/py.typed"} <= set(names)
    assert {Path(name).name for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE", "THIRD-PARTY.txt"}
    assert all(name.startswith(("rag_context/", "rag_context-")) for name in names)
    with tarfile.open(archive) as opened:
        top = {name.split("/")[1] for name in opened.getnames() if "/" in name}
    assert {"src", "docs", "pyproject.toml", "LICENSE", "NOTICE", "README.md", "PKG-INFO"} <= top
    assert not top & {"tests", ".venv", "benchmarks"}
