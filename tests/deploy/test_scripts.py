"""The deploy script goes step by step and stops where something is wrong; the roll-back keeps the data."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.deploy.cluster import Cluster
from tests.deploy.conftest import KEY, Deployment, port_of
from tests.deploy.files import ROOT
from tests.end_to_end.process import Served, wait_until

OWN_MONGODB, OWN_REDIS = "@mongodb:27017/P4NTH30N?authSource=admin", "@redis:6379/0"
OWN_POSTGRES = "@postgres:5432/rag_context"
SERVER_PARTS = (
    "configmap/rag-context",
    "deployment/rag-context",
    "service/rag-context",
    "horizontalpodautoscaler/rag-context",
    "poddisruptionbudget/rag-context",
)
WRITING = {"apply", "scale", "delete", "patch", "edit", "replace", "annotate", "set", "wait", "port-forward"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def steps(cluster: Cluster) -> list[str]:
    """What was changed, and what was waited for, in order."""
    found = []
    for call in cluster.calls:
        found += call["changed"]
        if call["words"][0] == "rollout":
            found.append(f"waits for {call['words'][2].partition('/')[2]} {call['words'][3].partition('=')[2]}")
        if call["words"][0] in {"wait", "port-forward"}:
            found.append(call["words"][0])
    return found


def test_it_deploys_in_order_validates_and_searches(deployment: Deployment, server: Served) -> None:
    ended = deployment.ended

    assert ended.status == 0, ended.err
    assert steps(deployment.cluster) == [
        "namespace/rag-context",
        "secret/rag-context",
        "secret/rag-context-backends",
        "persistentvolumeclaim/qdrant-pvc",
        "configmap/qdrant-config",
        "deployment/qdrant",
        "service/qdrant",
        "waits for qdrant 120s",
        "persistentvolumeclaim/mongodb-pvc",
        "deployment/mongodb",
        "service/mongodb",
        "networkpolicy/mongodb",
        "waits for mongodb 180s",
        "deployment/redis",
        "service/redis",
        "networkpolicy/redis",
        "waits for redis 60s",
        *SERVER_PARTS,
        "waits for rag-context 180s",
        "port-forward",
    ]
    assert "PRE-VALIDATION PASSED" in ended.out
    assert '"fallbackLevel":1' in ended.out.replace(": ", ":")
    answered = httpx2.get(f"{server.url}/tools/rag_context_stats", headers={"X-API-Key": KEY}).json()
    assert answered["totalQueries"] >= 1
    forwarding = int((deployment.cluster.folder / "forwarding").read_text())
    wait_until(lambda: not is_running(forwarding))


def test_with_postgresql_it_deploys_neither_qdrant_nor_mongodb(cluster: Cluster, server: Served) -> None:
    cluster.says(port=port_of(server))

    ended = cluster.run("deploy.sh", "--postgres", RAG_CONTEXT_API_KEY=KEY)

    assert ended.status == 0, ended.err
    assert steps(cluster) == [
        "namespace/rag-context",
        "secret/rag-context",
        "secret/rag-context-backends",
        "persistentvolumeclaim/postgres-pvc",
        "deployment/postgres",
        "service/postgres",
        "networkpolicy/postgres",
        "waits for postgres 180s",
        "deployment/redis",
        "service/redis",
        "networkpolicy/redis",
        "waits for redis 60s",
        *SERVER_PARTS,
        "waits for rag-context 180s",
        "port-forward",
    ]
    keys, passwords = cluster.secret("rag-context"), cluster.secret("rag-context-backends")
    assert keys["DATABASE_URL"] == f"postgresql://rag-context:{passwords['POSTGRES_PASSWORD']}{OWN_POSTGRES}"
    assert keys.keys() == {"RAG_CONTEXT_API_KEY", "DATABASE_URL", "REDIS_URL", "RAG_CONTEXT_STORES__REDIS_SECRET"}
    assert "RAG_CONTEXT_STORES__VECTORS: postgres\n" in cluster.objects["configmap/rag-context"]["text"]
    assert not any(passwords["POSTGRES_PASSWORD"] in word for call in cluster.calls for word in call["words"])

    cluster.forget_calls()
    again = cluster.run("deploy.sh")  # which knows it from the Secret

    assert again.status == 0, again.err
    assert cluster.changes == []


def test_a_database_elsewhere_is_used(cluster: Cluster) -> None:
    elsewhere = "postgresql://user:pass%40word@db.example:5432/memory?sslmode=verify-full"
    ended = cluster.run("deploy.sh", DATABASE_URL=elsewhere)

    assert cluster.secret("rag-context")["DATABASE_URL"] == elsewhere
    assert elsewhere not in ended.out + ended.err
    deployments = {name for name in cluster.objects if name.startswith("deployment/")}
    assert deployments == {"deployment/redis", "deployment/rag-context"}


def test_again_it_changes_nothing(deployed: Cluster, server: Served) -> None:
    deployed.says(port=port_of(server))
    before = deployed.objects

    again = deployed.run("deploy.sh")

    assert again.status == 0, again.err
    assert deployed.changes == []
    assert deployed.objects == before


def test_keys_are_made_and_shared_with_the_backends(deployment: Deployment) -> None:
    keys = deployment.cluster.secret("rag-context")
    passwords = deployment.cluster.secret("rag-context-backends")

    assert keys.keys() == {
        "RAG_CONTEXT_API_KEY",
        "RAG_CONTEXT_STORES__QDRANT_API_KEY",
        "RAG_CONTEXT_STORES__REDIS_SECRET",
        "MONGODB_URI",
        "REDIS_URL",
    }
    assert keys["RAG_CONTEXT_API_KEY"] == KEY
    assert keys["RAG_CONTEXT_STORES__QDRANT_API_KEY"] == passwords["QDRANT_API_KEY"]
    assert keys["MONGODB_URI"] == f"mongodb://rag-context:{passwords['MONGODB_PASSWORD']}{OWN_MONGODB}"
    assert keys["REDIS_URL"] == f"redis://:{passwords['REDIS_PASSWORD']}{OWN_REDIS}"
    assert len(set(passwords.values())) == 3
    assert all(len(password) == 64 and int(password, 16) for password in passwords.values())


def test_no_key_is_ever_an_argument_or_printed(deployment: Deployment) -> None:
    cluster, ended = deployment.cluster, deployment.ended
    secrets = {*cluster.secret("rag-context").values(), *cluster.secret("rag-context-backends").values()}

    assert not any(secret in word for secret in secrets for call in cluster.calls for word in call["words"])
    assert not any(secret in ended.out + ended.err for secret in secrets)


def test_what_is_elsewhere_is_used_and_remembered(cluster: Cluster) -> None:
    elsewhere = {
        "MONGODB_URI": "mongodb://u:p%40ss=1&x@db.example/P4NTH30N?replicaSet=rs0&w=majority",
        "REDIS_URL": "rediss://:x@cache.example:6380/1",
        "QDRANT_URL": "https://qdrant.example:6333",
        "LM_STUDIO_URL": "http://models:1234",
    }
    cluster.run("deploy.sh", **elsewhere)
    names = ("RAG_CONTEXT_API_KEY", "RAG_CONTEXT_STORES__REDIS_SECRET")
    made = {name: cluster.secret("rag-context")[name] for name in names}

    assert {len(key) for key in made.values()} == {64}
    assert cluster.secret("rag-context") == {**elsewhere, **made}
    cluster.run("deploy.sh", RAG_CONTEXT_API_KEY="another")
    assert cluster.secret("rag-context") == {**elsewhere, **made, "RAG_CONTEXT_API_KEY": "another"}
    assert {name for name in cluster.objects if name.startswith("deployment/")} == {"deployment/rag-context"}


def test_pods_restart_when_their_keys_change_and_only_then(deployed: Cluster) -> None:
    deployed.run("deploy.sh", RAG_CONTEXT_API_KEY="another")

    assert deployed.changes == ["secret/rag-context", "deployment/rag-context"]
    assert "rag-context/configuration: version-2-1\n" in deployed.objects["deployment/rag-context"]["text"]


def test_qdrant_restarts_with_another_key(deployed: Cluster) -> None:
    deployed.run("deploy.sh", RAG_CONTEXT_STORES__QDRANT_API_KEY="another")

    assert deployed.changes == [
        "secret/rag-context",
        "secret/rag-context-backends",
        "deployment/qdrant",
        "deployment/rag-context",
    ]


@pytest.mark.parametrize(
    ("name", "uri"),
    [
        ("MONGODB_URI", "mongodb://localhost:27017/P4NTH30N"),
        ("MONGODB_URI", "mongodb://u:p@127.0.0.1/P4NTH30N"),
        ("MONGODB_URI", "mongodb://one,localhost/P4NTH30N"),
        ("QDRANT_URL", "http://localhost:30333"),
        ("DATABASE_URL", "postgresql://u:p@db.example,localhost:5433/memory"),
        ("LM_STUDIO_URL", "http://[::1]:1234"),
    ],
)
def test_an_address_that_pods_cannot_reach_is_rejected(cluster: Cluster, name: str, uri: str) -> None:
    ended = cluster.run("deploy.sh", **{name: uri})

    assert ended.status == 1
    assert name in ended.err
    assert uri not in ended.err
    assert cluster.calls == []


def test_it_stops_where_qdrant_does_not_come_up(cluster: Cluster) -> None:
    cluster.says(broken=["qdrant"])

    ended = cluster.run("deploy.sh")

    assert ended.status == 1
    assert "qdrant is not up after 120s" in ended.err
    assert "deployment/rag-context" not in cluster.objects


def test_it_stops_where_the_server_does_not_come_up(deployed: Cluster) -> None:
    deployed.says(broken=["rag-context"])

    ended = deployed.run("deploy.sh")

    assert ended.status == 1
    assert "rag-context is not up" in ended.err
    assert "port-forward" not in steps(deployed)


def test_a_failing_validation_aborts_before_the_sample_search(deployed: Cluster) -> None:
    deployed.says(port=free_port())

    ended = deployed.run("deploy.sh")

    assert ended.status == 1
    assert "PRE-VALIDATION FAILED" in ended.out
    assert "validation failed" in ended.err
    assert "rollback.sh" in ended.err
    assert "7/7" not in ended.out


def test_a_pod_that_cannot_be_reached_is_reported(deployed: Cluster) -> None:
    ended = deployed.run("deploy.sh")

    assert ended.status == 1
    assert "unable to forward port" in ended.err


@pytest.mark.parametrize("script", ["deploy.sh", "rollback.sh"])
@pytest.mark.parametrize("words", [[], ["--dry-run"]])
def test_without_a_cluster_it_ends_at_the_first_step(cluster: Cluster, script: str, words: list[str]) -> None:
    cluster.says(down=True)

    ended = cluster.run(script, *words)

    assert ended.status != 0
    assert "refused" in ended.err
    assert "Stopped" not in ended.out
    assert len(cluster.calls) == 1


@pytest.mark.parametrize("script", ["deploy.sh", "rollback.sh"])
@pytest.mark.parametrize("state", ["cluster", "deployed"])
def test_a_dry_run_changes_nothing_and_says_what_it_would_do(
    script: str, state: str, request: pytest.FixtureRequest
) -> None:
    cluster: Cluster = request.getfixturevalue(state)
    before = cluster.objects

    ended = cluster.run(script, "--dry-run")

    assert ended.status == 0, ended.err
    assert cluster.objects == before
    assert cluster.calls
    assert not any(call["words"][0] in WRITING for call in cluster.calls)
    assert not any(call["words"][0] == "create" and "--dry-run=client" not in call["words"] for call in cluster.calls)
    assert ("would apply qdrant-deployment.yaml" if script == "deploy.sh" else "qdrant: ") in ended.out
    assert "Stopped" not in ended.out
    assert "Deployed" not in ended.out


def test_context_namespace_and_image_are_used_throughout(cluster: Cluster) -> None:
    cluster.run("deploy.sh", "--context", "rancher-desktop", "--namespace", "memory", "--image", "here/rag-context:9")
    cluster.run("rollback.sh", "--context", "rancher-desktop", "--namespace", "memory")

    assert {(call["context"], call["namespace"]) for call in cluster.calls} == {("rancher-desktop", "memory")}
    assert cluster.places == {"memory"}
    assert "namespace/memory" in cluster.objects
    assert "namespace/rag-context" not in cluster.objects
    assert "image: here/rag-context:9\n" in cluster.objects["deployment/rag-context"]["text"]
    assert "image: qdrant/qdrant:" in cluster.objects["deployment/qdrant"]["text"]


@pytest.mark.parametrize("script", ["deploy.sh", "rollback.sh"])
def test_what_is_not_understood_is_rejected(cluster: Cluster, script: str) -> None:
    for words in (["--dryrun"], ["--namespace"], ["--context", ""]):
        ended = cluster.run(script, *words)
        assert ended.status in {1, 2}
        assert ended.err
    assert cluster.calls == []
    assert cluster.run(script, "--help").out.startswith(f"Usage: deploy/{script}")


def test_a_namespace_cannot_smuggle_anything_in(cluster: Cluster) -> None:
    ended = cluster.run("deploy.sh", "--namespace", "x\nkind: Secret")

    assert ended.status == 1
    assert cluster.calls == []


def test_the_roll_back_stops_the_server_first_and_keeps_the_data(deployed: Cluster) -> None:
    before = set(deployed.objects)

    ended = deployed.run("rollback.sh")

    assert ended.status == 0, ended.err
    assert deployed.changes == [f"deployment/{name}=0" for name in ("rag-context", "qdrant", "mongodb", "redis")]
    assert steps(deployed)[1] == "wait", "its pods have ended before its stores go"
    assert set(deployed.objects) == before


def test_a_roll_back_whose_pods_do_not_end_says_so(deployed: Cluster) -> None:
    deployed.says(endless=["rag-context"])

    ended = deployed.run("rollback.sh")

    assert ended.status == 1
    assert "rag-context does not end" in ended.err
    assert deployed.changes == ["deployment/rag-context=0"], "its stores are left running for it"


def test_a_second_roll_back_changes_nothing(deployed: Cluster) -> None:
    deployed.run("rollback.sh")
    deployed.forget_calls()

    assert deployed.run("rollback.sh").status == 0
    assert deployed.changes == []


def test_a_roll_back_of_nothing_is_no_error(cluster: Cluster) -> None:
    ended = cluster.run("rollback.sh")

    assert ended.status == 0
    assert "rag-context: not there" in ended.out
    assert ended.out.endswith("There is nothing to stop in the namespace rag-context.\n")
    assert cluster.changes == []


def test_after_a_roll_back_it_comes_up_again_with_the_same_keys(deployed: Cluster) -> None:
    keys = deployed.secret("rag-context")
    deployed.run("rollback.sh")

    deployed.run("deploy.sh")

    replicas = {name: item["replicas"] for name, item in deployed.objects.items() if name.startswith("deployment/")}
    assert replicas == {
        "deployment/qdrant": 1,
        "deployment/mongodb": 1,
        "deployment/redis": 1,
        "deployment/rag-context": 2,
    }
    assert deployed.secret("rag-context") == keys


@pytest.mark.parametrize("script", ["deploy.sh", "rollback.sh"])
def test_a_missing_program_is_named(tmp_path: Path, script: str) -> None:
    for name in ("bash", "env"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)

    ended = subprocess.run(
        [ROOT / "deploy" / script], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 1
    assert "kubectl is not on the PATH" in ended.stderr
