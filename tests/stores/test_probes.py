"""The versions of backends on servers, and why one is not known."""

import pytest

from rag_context.errors import BackendError, BackendRejectedError, BackendUnavailableError
from rag_context.settings import Settings
from rag_context.wiring.probes import Probe, answers_of_all, mongodb_version
from tests.servers.process import free_port
from tests.servers.qdrant import running
from tests.servers.redis import redis_server


def answers(found: list[tuple[Probe, str | BackendError]]) -> dict[str, str]:
    return {probe.name: f"{type(answer).__name__}: {answer}" for probe, answer in found}


async def test_each_backend_reports_its_version(shared_mongodb: str) -> None:
    with redis_server() as redis, running("key") as qdrant:
        stores = {
            "documents": "mongodb",
            "mongodb_uri": shared_mongodb,
            "vectors": "qdrant",
            "qdrant_url": qdrant.url,
            "qdrant_api_key": "key",
            "cache": "redis",
            "redis_url": f"redis://127.0.0.1:{redis.port}/0",
        }
        found = answers(await answers_of_all(Settings.model_validate({"stores": stores})))
        without_key = Settings.model_validate({"stores": {**stores, "qdrant_api_key": None}})
        rejected = answers(await answers_of_all(without_key))

    assert set(found) == {"Qdrant", "MongoDB", "Redis"}
    assert all(answer.startswith("str: ") and answer[5].isdigit() for answer in found.values()), found
    assert rejected["Qdrant"] == "BackendRejectedError: it rejects the key"


async def test_postgresql_reports_its_version_and_that_of_pgvector(shared_postgres: str) -> None:
    stores = {"documents": "postgres", "vectors": "postgres", "postgres_url": shared_postgres}
    found = answers(await answers_of_all(Settings.model_validate({"stores": stores})))

    assert found["PostgreSQL"].startswith("str: 1")
    assert " with pgvector 0." in found["PostgreSQL"]


async def test_every_node_of_a_qdrant_must_answer() -> None:
    with running() as qdrant:
        dead = f"127.0.0.1:{free_port()}"
        for other, kind in ((qdrant.url[7:], "str: 1"), (dead, "BackendUnavailableError")):
            stores = {"vectors": "qdrant", "qdrant_url": f"{qdrant.url},{other}"}
            found = answers(await answers_of_all(Settings.model_validate({"stores": stores})))
            assert found["Qdrant"].startswith(kind)


async def test_a_dead_backend_is_reported_and_not_raised() -> None:
    dead = f"127.0.0.1:{free_port()}"
    stores = {
        "documents": "embedded",
        "vectors": "chroma",
        "chroma_url": f"http://{dead}",
        "cache": "redis",
        "redis_url": f"redis://{dead}/0",
    }

    assert answers(await answers_of_all(Settings.model_validate({"stores": stores}))) == {
        "Chroma": "BackendUnavailableError: it cannot be reached",
        "Redis": "BackendUnavailableError: it cannot be reached",
    }


async def test_a_mongodb_that_is_not_there_is_reported_without_its_password() -> None:
    with pytest.raises(BackendUnavailableError) as gone:
        await mongodb_version(f"mongodb://u:secret@127.0.0.1:{free_port()}/db", 0.2)
    with pytest.raises(BackendRejectedError) as invalid:
        await mongodb_version("mongodb://h:secret", 0.2)

    assert [str(gone.value), str(invalid.value)] == ["it cannot be reached", "its address is not valid"]
