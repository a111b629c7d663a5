"""The Compose files: well-formed, closed to the outside, and speaking of settings that exist."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jsonschema_rs
import pytest
import yaml
from qdrant_client.common.version_check import is_compatible

from rag_context import __version__
from rag_context.settings import Settings
from rag_context.settings.sources import load_settings
from rag_context.stores.postgres.vector_search import BUILD_MEMORY
from tests.deploy.files import ROOT, SETTINGS, compose, container, image_environment, instructions

GIVEN = {"RAG_CONTEXT_API_KEY": "a-key", "BACKEND_PASSWORD": "a1b2c3"}
ALONE, TEAM, FULL = "compose.yaml", "compose.postgres.yaml", "compose.full.yaml"
SCHEMA = json.loads((Path(__file__).parent / "compose-spec" / "compose-spec.json").read_text(encoding="utf-8"))
READY = "/readyz"


def services(backends: str = FULL) -> dict[str, Any]:
    found: dict[str, Any] = compose(ALONE, backends, environment=GIVEN)["services"]
    return found


def settings_of(environment: dict[str, str], folder: Path) -> Settings:
    return load_settings(flags={}, environ={**image_environment(), **environment}, cwd=folder).settings


@pytest.mark.parametrize("names", [(ALONE,), (TEAM,), (FULL,), (ALONE, TEAM), (ALONE, FULL)])
def test_they_keep_to_the_compose_specification(names: tuple[str, ...]) -> None:
    validator = jsonschema_rs.validator_for(SCHEMA)

    assert [error.message for error in validator.iter_errors(compose(*names, environment=GIVEN))] == []


def test_the_schema_would_notice_a_misspelt_key() -> None:
    broken = compose(ALONE, environment=GIVEN)
    broken["services"]["rag-context"]["helthcheck"] = {}

    assert not jsonschema_rs.is_valid(SCHEMA, broken)


@pytest.mark.parametrize(
    ("names", "missing"),
    [((ALONE,), "RAG_CONTEXT_API_KEY"), ((ALONE, TEAM), "BACKEND_PASSWORD"), ((ALONE, FULL), "BACKEND_PASSWORD")],
)
def test_a_missing_key_is_rejected_by_name(names: tuple[str, ...], missing: str) -> None:
    with pytest.raises(KeyError, match=missing):
        compose(*names, environment={name: value for name, value in GIVEN.items() if name != missing})


def test_alone_it_is_the_embedded_default(tmp_path: Path) -> None:
    (alone,) = compose(ALONE, environment=GIVEN)["services"].values()
    stores = settings_of(alone["environment"], tmp_path).stores

    assert (stores.vectors, stores.documents, stores.cache) == ("embedded", "embedded", "memory")


def test_in_full_every_backend_is_a_server(tmp_path: Path) -> None:
    environment = services()["rag-context"]["environment"]
    stores = settings_of(environment, tmp_path).stores

    assert {name for name in environment if name not in SETTINGS} == set()
    assert (stores.vectors, stores.documents, stores.cache) == ("qdrant", "mongodb", "redis")
    assert all(name in services() for name in ("qdrant", "mongodb", "redis"))
    assert str(stores.qdrant_url) == "http://qdrant:6333"
    assert "@mongodb:27017/P4NTH30N" in str(stores.mongodb_uri)
    assert "@redis:6379/" in str(stores.redis_url)


def test_for_a_team_one_postgresql_holds_everything(tmp_path: Path) -> None:
    found = services(TEAM)
    stores = settings_of(found["rag-context"]["environment"], tmp_path).stores
    database = found["postgres"]["environment"]

    assert found.keys() == {"rag-context", "postgres"}
    assert (stores.vectors, stores.documents) == ("postgres", "postgres")
    user, password, name = (database[f"POSTGRES_{key}"] for key in ("USER", "PASSWORD", "DB"))
    assert str(stores.postgres_url) == f"postgresql://{user}:{password}@postgres:5432/{name}"
    assert int(found["postgres"]["shm_size"].removesuffix("m")) > int(BUILD_MEMORY.removesuffix("MB"))
    assert found["postgres"]["command"] == container("postgres")["args"]
    assert found["postgres"]["volumes"] == ["postgres:/var/lib/postgresql"]


def test_backends_and_server_share_their_secrets() -> None:
    found = services()
    server = found["rag-context"]["environment"]
    root = found["mongodb"]["environment"]

    assert server["RAG_CONTEXT_STORES__QDRANT_API_KEY"] == found["qdrant"]["environment"]["QDRANT__SERVICE__API_KEY"]
    user, password = root["MONGO_INITDB_ROOT_USERNAME"], root["MONGO_INITDB_ROOT_PASSWORD"]
    assert f"//{user}:{password}@" in server["MONGODB_URI"]
    assert f"//:{found['redis']['environment']['REDISCLI_AUTH']}@" in server["REDIS_URL"]
    assert found["redis"]["command"][-2:] == ["--requirepass", found["redis"]["environment"]["REDISCLI_AUTH"]]


def test_only_the_server_is_reached_and_only_from_this_machine() -> None:
    for backends in (TEAM, FULL):
        found = services(backends)
        published = {name: service["ports"] for name, service in found.items() if "ports" in service}

        assert published == {"rag-context": [f"127.0.0.1:3000:{instructions('EXPOSE')[0]}"]}
        networks = compose(ALONE, backends, environment=GIVEN)["networks"]
        inside = {name for name, network in networks.items() if (network or {}).get("internal")}
        assert all(set(service["networks"]) <= inside for name, service in found.items() if name != "rag-context")


@pytest.mark.parametrize("name", ["rag-context", "qdrant", "mongodb", "postgres", "redis"])
def test_each_service_is_pinned_bounded_watched_and_without_rights(name: str) -> None:
    service = {**services(), **services(TEAM)}[name]
    limits = service["deploy"]["resources"]["limits"]

    tag = service["image"].partition(":")[2]
    assert tag.removeprefix("v").split("-")[0].count(".") == 2, "an exact version"
    assert limits.keys() == {"cpus", "memory"}
    assert {"test", "interval", "timeout", "retries"} <= service["healthcheck"].keys()
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"


def test_the_server_waits_for_healthy_backends() -> None:
    waits = services()["rag-context"]["depends_on"]

    assert {name: wait["condition"] for name, wait in waits.items()} == dict.fromkeys(
        ("qdrant", "mongodb", "redis"), "service_healthy"
    )


def test_what_must_last_is_on_a_named_volume() -> None:
    merged = compose(ALONE, FULL, environment=GIVEN)
    mounts = {name: service.get("volumes", []) for name, service in merged["services"].items()}

    assert mounts == {
        "rag-context": [f"rag-context:{image_environment()['RAG_CONTEXT_DATA_DIR']}"],
        "qdrant": ["qdrant:/qdrant/storage"],
        "mongodb": ["mongodb:/data/db"],
        "redis": [],
    }
    assert set(merged["volumes"]) == {"rag-context", "qdrant", "mongodb"}


def test_there_is_time_to_finish_before_it_is_killed() -> None:
    assert services()["rag-context"]["stop_grace_period"] == "15s"


def test_it_embeds_with_as_many_threads_as_it_has_cores() -> None:
    server = services()["rag-context"]

    assert server["environment"]["RAG_CONTEXT_EMBEDDER__WORKERS"] == server["deploy"]["resources"]["limits"]["cpus"]


def test_images_are_those_of_the_cluster() -> None:
    assert services()["rag-context"]["image"] == f"rag-context:{__version__}"
    for name, service in {**services(), **services(TEAM)}.items():
        assert service["image"] == container(name)["image"]


def test_the_makers_support_the_locked_client_with_the_server_of_qdrant() -> None:
    server = services()["qdrant"]["image"].partition(":v")[2].partition("-")[0]
    locked = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    (client,) = re.findall(r"^qdrant-client==(\S+)", locked, re.MULTILINE)
    assert is_compatible(client, server)


class _Health(BaseHTTPRequestHandler):
    """Qdrant as far as its health is concerned."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == READY else 404)
        self.end_headers()
        self.wfile.write(b"all shards are ready")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class's name)
        pass


@pytest.fixture
def backend() -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), _Health) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "exit_status"), [(200, 0), (503, 1)])
def test_qdrants_health_check_needs_no_more_than_bash(backend: HTTPServer, status: int, exit_status: int) -> None:
    _Health.status = status
    form, *command = services()["qdrant"]["healthcheck"]["test"]
    command[-1] = command[-1].replace("6333", str(backend.server_port))

    assert form == "CMD"
    checked = subprocess.run(command, timeout=10, env={"PATH": os.environ["PATH"]}, check=False, capture_output=True)
    assert checked.returncode == exit_status


def test_qdrants_health_check_fails_where_no_server_listens(backend: HTTPServer) -> None:
    command = services()["qdrant"]["healthcheck"]["test"][1:]
    port = backend.server_port
    backend.server_close()
    command[-1] = command[-1].replace("6333", str(port))

    assert subprocess.run(command, timeout=10, check=False, capture_output=True).returncode != 0


def test_no_password_stands_in_the_files() -> None:
    for name in (ALONE, TEAM, FULL):
        text = (ROOT / name).read_text(encoding="utf-8")
        for service in yaml.safe_load(text)["services"].values():
            for key, value in service.get("environment", {}).items():
                if key.endswith(("KEY", "PASSWORD", "AUTH", "URI")) or key in {"REDIS_URL", "DATABASE_URL"}:
                    assert "${" in value, key
