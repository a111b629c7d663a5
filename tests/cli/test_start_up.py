"""A command loads what it needs, and no more."""

import subprocess
import sys

import pytest
import typer

from rag_context.cli.command_line import app, loaded

LISTED = typer.main.get_command(app).commands  # type: ignore[attr-defined]
LOADED = loaded().commands

RUN = """
import sys
from rag_context.cli import main
sys.argv = ["rag-context", *{words!r}]
try:
    main()
except SystemExit:
    pass
print("LOADED", *(name for name in sys.modules if name in {names!r}))
"""


def modules_of(words: list[str], *names: str) -> list[str]:
    """Which of these modules a command has loaded at its end."""
    code = RUN.format(words=words, names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return sorted(done.stdout.rpartition("LOADED")[2].split())


def test_the_version_loads_nothing() -> None:
    assert modules_of(["--version"], "typer", "rich", "pydantic") == []


def test_the_list_of_commands_loads_none_of_them() -> None:
    names = ("rag_context.cli.memory_commands", "rag_context.cli.shared_options", "pydantic", "numpy")

    assert modules_of(["--help"], *names) == []


def test_a_command_loads_no_other_commands() -> None:
    commands = (
        "rag_context.cli.memory_commands",
        "rag_context.cli.serve",
        "rag_context.cli.maintenance_commands",
        "rag_context.wiring",
    )

    assert modules_of(["search", "--help"], *commands, "numpy") == ["rag_context.cli.memory_commands"]


@pytest.mark.parametrize("name", LOADED)
def test_a_command_is_listed_by_the_first_paragraph_of_its_own_help(name: str) -> None:
    assert LISTED[name].help == LOADED[name].help.split("\n\n")[0]


def test_a_command_is_called_as_it_is_listed() -> None:
    assert {name: command.name for name, command in LOADED.items()} == {name: name for name in LISTED}
