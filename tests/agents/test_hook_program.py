"""What the program of the hooks loads, and where it looks: the person waits for it with every prompt."""

import subprocess
import sys
from pathlib import Path

import pytest

from rag_context.agents import hook
from rag_context.settings.sections import default_data_dir
from tests.end_to_end.process import environment

OURS = {"rag_context", "rag_context._version", "rag_context.agents"}
MODULES = frozenset({"json", "os", "select", "socket", "time"})


def loaded(code: str) -> set[str]:
    """The modules that a program has loaded at its end."""
    shown = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", shown], capture_output=True, text=True, check=True, env=environment(), timeout=60
    )
    return set(done.stdout.split())


def test_it_loads_a_few_modules_of_the_standard_library_and_nothing_else() -> None:
    allowed = loaded(f"import importlib, {', '.join(MODULES)}")
    assert loaded("import rag_context.agents.hook") - allowed == {*OURS, "rag_context.agents.hook"}


def test_the_installed_program_is_this_one() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'rag-context-hook = "rag_context.agents.hook:main"' in project


@pytest.mark.parametrize(
    ("variable", "value"),
    [("RAG_CONTEXT_DATA_DIR", "/srv/memory"), ("XDG_DATA_HOME", "/srv/data"), ("HOME", "/home/jo ann")],
)
def test_it_finds_the_data_directory_that_the_settings_find(variable: str, value: str) -> None:
    code = (
        "from rag_context.agents.hook import data_dir; from rag_context.settings import load_settings;"
        "from pathlib import Path; print(data_dir()); print(load_settings(flags={}, cwd=Path('/')).settings.data_dir)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment(**{variable: value})
    )
    ours, theirs = done.stdout.splitlines()
    assert ours == theirs != str(default_data_dir())


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({}, False),
        ({"agent_id": "a1"}, True),
        ({"agent_id": "lead", "parent_agent_id": None}, False),
        ({"agent_id": "a2", "parent_agent_id": "lead"}, True),
        ({"agent_type": "reviewer"}, False),
    ],
)
def test_it_tells_a_sub_agent_from_the_main_one(payload: dict[str, object], expected: bool) -> None:
    assert hook.is_subagent(payload) is expected
