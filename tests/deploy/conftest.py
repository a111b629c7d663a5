"""A server as it stands behind a Service, and a cluster that leads to it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.deploy.cluster import Cluster, Ended, make_cluster
from tests.end_to_end.process import Served, served

KEY = "the-key-of-all-clients"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A real server that wants a key."""
    with served(tmp_path_factory.mktemp("server"), RAG_CONTEXT_API_KEY=KEY) as running:
        running.wait_ready()
        yield running


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """An empty cluster."""
    return make_cluster(tmp_path / "cluster")


@dataclass(frozen=True)
class Deployment:
    """A finished deployment, with nothing on the cluster before."""

    cluster: Cluster
    ended: Ended


@pytest.fixture(scope="session")
def deployment(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """One that went well, to be checked; not to be changed."""
    cluster = make_cluster(tmp_path_factory.mktemp("deployment") / "cluster")
    cluster.says(port=port_of(server))
    return Deployment(cluster, cluster.run("deploy.sh", RAG_CONTEXT_API_KEY=KEY))


@pytest.fixture
def deployed(deployment: Deployment, tmp_path: Path) -> Cluster:
    """A cluster in which everything stands already; its server is reached once a port is given."""
    assert deployment.ended.status == 0, deployment.ended.err
    return deployment.cluster.copy(tmp_path / "deployed")


def port_of(server: Served) -> int:
    """Where it listens."""
    return int(server.url.rpartition(":")[2])
