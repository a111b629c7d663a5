"""The clients of a run, and machines for them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.agents import CLIENTS, AgentClient
from tests.clients.machine import Machine
from tests.clients.model import Model, model

CHOSEN = os.environ.get("RAG_TEST_CLIENTS", ",".join(CLIENTS)).split(",")
"""Which clients are driven: all of them, or those that `make test-clients CLIENTS=claude-code,codex` names."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only(*names): the clients that a test of clients is about")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with a parameter `client` runs for each chosen client, each in one process; `only` narrows these."""
    if "client" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("only")
        able = [each for each in CHOSEN if marker is None or each in marker.args]
        chosen = [pytest.param(CLIENTS[name], id=name, marks=pytest.mark.xdist_group(name)) for name in able]
        metafunc.parametrize("client", chosen, scope="module")


@pytest.fixture(scope="session")
def answering() -> Iterator[Model]:
    """The model that all clients use."""
    with model() as started:
        yield started


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, answering: Model, client: AgentClient) -> Iterator[Machine]:
    """A machine on which the client has all that `install` gives it, with a running server."""
    home = tmp_path_factory.mktemp(client.name) / "Jo Ann's"
    home.mkdir()
    made = Machine(home, answering)
    made.set_up(client)
    done = made.rag_context("install", client.name)
    assert done.returncode == 0, done.stderr
    with made.serving():
        yield made
    assert made.processes() == [], "processes of hooks, clients or servers are left behind"


@pytest.fixture
def machine(tmp_path: Path, answering: Model, client: AgentClient) -> Machine:
    """A machine on which the client can work, and nothing of ours is set up."""
    home = tmp_path / "Jo Ann's"
    home.mkdir()
    made = Machine(home, answering)
    made.set_up(client)
    return made
