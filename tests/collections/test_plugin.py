"""Plug-ins as users have them: distributions that were built and installed, in a process that knows nothing of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/provider-in-one-file"
BROKEN = '''
"""Needs what nobody has."""
import a_library_that_was_never_written
'''
GREEDY = '''
"""Calls itself what is built in."""
from dataclasses import replace
from rag_context_json_files import KIND
KIND = replace(KIND, name="qdrant", title="Greedy")
'''
SESSION = """
import asyncio, json, sys
from pathlib import Path
import numpy as np
from rag_context.collections.registry import probe
from rag_context.ports.provider import Collection, Entry
from rag_context.settings import Settings
from rag_context.domain.where import parse
from rag_context.wiring.collection_providers import provider_registry

async def main(folder):
    registry = provider_registry(Settings(data_dir=folder / "data"))
    listed = [(kind.name, kind.title, kind.available, kind.reason, kind.distribution) for kind in registry]
    kind = registry.get("json-files")
    configuration = kind.validated({"folder": str(folder / "files")})
    async with kind.open(configuration) as provider:
        await provider.create(Collection("notes"))
        entries = [Entry("1", "one", {"kind": "a"}), Entry("2", "two", {"kind": "b"})]
        await provider.upsert("notes", entries, np.eye(2, dtype=np.float32))
        page = await provider.entries("notes", parse({"kind": "b"}), limit=10)
    health = await probe(kind, configuration)
    print(json.dumps({
        "listed": listed,
        "found": [entry.text for entry in page.entries],
        "health": [health.status, health.collections, health.storage_bytes],
        "schema": kind.connection_schema(),
    }))

asyncio.run(main(Path(sys.argv[1])))
"""


def distribution(folder: Path, name: str, entry: str, source: str) -> Path:
    """A project of one module."""
    module = name.replace("-", "_")
    folder.mkdir()
    (folder / f"{module}.py").write_text(source)
    (folder / "pyproject.toml").write_text(f"""
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "1"
[project.entry-points."rag_context.providers"]
{entry} = "{module}:KIND"
[tool.hatch.build.targets.wheel]
include = ["{module}.py"]
""")
    return folder


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process says that has the example, a broken plug-in, and one that wants another's name."""
    folder = tmp_path_factory.mktemp("plug-ins")
    projects = [
        EXAMPLE,
        distribution(folder / "broken", "rag-context-broken", "broken", BROKEN),
        distribution(folder / "greedy", "rag-context-greedy", "qdrant", GREEDY),
    ]
    uv = Path(sys.executable).with_name("uv")
    installing: list[str | Path] = [uv, "pip", "install", "--python", sys.executable, "--target", folder / "installed"]
    options = ["--no-deps", "--no-build-isolation", "--offline", "--no-cache", "--quiet"]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    subprocess.run([*installing, *options, *projects], check=True, env=environment)
    done = subprocess.run(
        [sys.executable, "-c", SESSION, folder],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "installed")},
    )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_the_example_is_found_configured_and_used(reported: dict[str, Any]) -> None:
    listed = {name: (title, available, distribution) for name, title, available, _, distribution in reported["listed"]}
    assert listed["json-files"] == ("JSON files in a folder", True, "rag-context-json-files")
    assert reported["found"] == ["two"]
    status, collections, size = reported["health"]
    assert (status, collections) == ("healthy", 1)
    assert size > 0
    assert reported["schema"]["required"] == ["folder"]


def test_a_broken_one_is_listed_with_its_import_error(reported: dict[str, Any]) -> None:
    ((available, reason),) = [
        (available, reason) for name, _, available, reason, _ in reported["listed"] if name == "broken"
    ]
    assert not available
    assert reason == ("It cannot be loaded: ModuleNotFoundError: No module named 'a_library_that_was_never_written'.")


def test_a_name_that_is_built_in_stays_so(reported: dict[str, Any]) -> None:
    found = [row for row in reported["listed"] if row[0] == "qdrant"]
    assert [(title, available, distribution) for _, title, available, _, distribution in found] == [
        ("Qdrant", True, None),
        ("Greedy", False, "rag-context-greedy"),
    ]
    assert found[1][3] == "The name belongs to the provider that is built in."


def test_the_documentation_shows_the_example_as_it_is() -> None:
    shown = (ROOT / "docs/design/writing-a-provider.md").read_text(encoding="utf-8")
    for file in ("rag_context_json_files.py", "pyproject.toml"):
        assert (EXAMPLE / file).read_text(encoding="utf-8").strip() in shown
