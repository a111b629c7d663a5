"""A command loads what it needs, and no more; one that answers others pauses briefly."""

import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from rag_context.cli.command_line import FreezeSurvivors, app, loaded

from .run_command import Commands
from .stub_server import Script, stub_server

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

COLLECTED = """
import gc, sys
from rag_context.cli import main
sys.argv = ["rag-context", "search", "--help"]
try:
    main()
except SystemExit:
    pass
print("COLLECTED", gc.isenabled(), gc.get_freeze_count() > 10_000)
"""


def modules_of(words: list[str], *names: str) -> list[str]:
    """Which of these modules a command has loaded at its end."""
    code = RUN.format(words=words, names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return sorted(done.stdout.rpartition("LOADED")[2].split())


def test_the_version_loads_nothing() -> None:
    assert modules_of(["--version"], "typer", "rich", "pydantic") == []


def test_options_that_were_not_typed_need_no_converter(tmp_path: Path) -> None:
    words = ["search", "words", "--data-dir", str(tmp_path)]
    assert modules_of([*words, "--limit", "1"], "typer._adapters") == ["typer._adapters"]
    assert modules_of(words, "typer._adapters") == []


def test_the_list_of_commands_loads_none_of_them() -> None:
    names = ("rag_context.cli.search_command", "rag_context.cli.console", "pydantic", "numpy")

    assert modules_of(["--help"], *names) == []


def test_a_command_loads_no_other_commands() -> None:
    commands = (
        "rag_context.cli.search_command",
        "rag_context.cli.serve",
        "rag_context.cli.maintenance_commands",
        "rag_context.wiring",
        "rag_context.files.sending",
        "pathspec",
    )

    assert modules_of(["search", "--help"], *commands, "numpy") == ["rag_context.cli.search_command"]


def test_a_search_through_a_server_loads_no_terminal_no_http_library_and_no_index(commands: Commands) -> None:
    answer = {"results": [], "latency": 1.0, "fallback": False, "fallbackLevel": 1, "circuitBreakerOpen": False}
    answer |= {"totalIndexed": 0, "requestId": "r", "noAnswer": True, "legs": {}}
    with stub_server(commands.data_dir, Script(body=json.dumps(answer).encode())):
        loaded = modules_of(
            ["search", "question", "--data-dir", str(commands.data_dir)],
            *("rich", "httpx2", "asyncio", "numpy", "rag_context.wiring", "rag_context.cli.server_call"),
        )

    assert loaded == ["rag_context.cli.server_call"]


def test_garbage_is_collected_once_a_command_is_loaded_and_what_was_loaded_is_set_aside() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECTED], capture_output=True, text=True, check=True)

    assert done.stdout.endswith("COLLECTED True True\n")


@pytest.mark.parametrize("name", LOADED)
def test_a_command_is_listed_by_the_first_paragraph_of_its_own_help(name: str) -> None:
    assert LISTED[name].summary() == LOADED[name].help.split("\n\n")[0]


def test_a_command_is_called_as_it_is_listed() -> None:
    assert {name: command.name for name, command in LOADED.items()} == {name: name for name in LISTED}


@pytest.fixture
def _thawed() -> Iterator[None]:
    """Outside of the block no callback of the collector is set and no object is frozen."""
    others = gc.callbacks[:]
    gc.callbacks.clear()
    gc.unfreeze()
    yield
    gc.callbacks[:] = others
    gc.unfreeze()


@pytest.mark.usefixtures("_thawed")
def test_what_outlives_a_long_collection_is_set_aside_so_often_and_no_more() -> None:
    pauses = FreezeSurvivors(long_s=0.0, most=1)
    gc.callbacks.append(pauses)
    try:
        gc.collect(0)
        assert gc.get_freeze_count() == 0
        gc.collect()
        once = gc.get_freeze_count()
        assert once > 0
        kept = [[number] for number in range(100_000)]
        gc.collect()
        assert gc.get_freeze_count() <= once
    finally:
        gc.callbacks.remove(pauses)
    assert len(kept) == 100_000


@pytest.mark.usefixtures("_thawed")
def test_a_short_collection_changes_nothing() -> None:
    pauses = FreezeSurvivors(long_s=3600.0)
    gc.callbacks.append(pauses)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(pauses)
    assert gc.get_freeze_count() == 0
