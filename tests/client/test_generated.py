"""The client for threads is generated from the one for coroutines, and does the same."""

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rag_context.client import AsyncClient, Client
from rag_context.client.async_collections import AsyncCollections
from rag_context.client.blocking_collections import Collections

SCRIPT = Path(__file__).parents[2] / "scripts" / "generate_blocking.py"

ASYNCHRONOUS = '''
class AsyncThing:
    """An async thing that you await."""

    async def read(self, reply: httpx2.Response) -> "AsyncThing":
        async with self._reached() as url, AsyncClient(url) as client:
            return [await part async for part in reply.aiter_bytes()]
'''

BLOCKING = '''
class Thing:
    """An async thing that you await."""

    def read(self, reply: httpx2.Response) -> "Thing":
        with self._reached() as url, Client(url) as client:
            return [part for part in reply.iter_bytes()]
'''


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_blocking", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("kind", "other"), [(AsyncClient, Client), (AsyncCollections, Collections)])
def test_both_clients_have_the_same_methods_with_the_same_parameters(kind: type, other: type) -> None:
    parameters = [
        {
            name: [str(parameter) for parameter in inspect.signature(method).parameters.values() if name != "bulk"]
            for name, method in inspect.getmembers(one, inspect.isfunction)
            if not name.startswith("_")
        }
        for one in (kind, other)
    ]
    assert parameters[0] == parameters[1]
    assert len(parameters[0]) > 10


def test_await_is_removed_from_code_and_not_from_docstrings(script: ModuleType) -> None:
    assert script.blocking(ASYNCHRONOUS) == BLOCKING


def test_an_edit_of_a_generated_file_is_noticed(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--check"])
    modules = script.generated()
    assert script.main() == 0

    path = script.CLIENT / "blocking_http.py"
    monkeypatch.setattr(script, "generated", lambda: {**modules, path: f"{modules[path]}# by hand\n"})

    assert script.main() == 1
    assert f"{path} is out of date: run `make blocking`" in capsys.readouterr().err


def test_what_the_script_would_no_longer_find_stops_it(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(script.SENTENCES, "A sentence that nobody wrote.", "Another.")
    with pytest.raises(SystemExit, match="A sentence that nobody wrote"):
        script.generated()
