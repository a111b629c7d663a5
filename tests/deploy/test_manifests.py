"""The Kubernetes manifests: valid, restricted, at one with each other and with the server's settings."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_context import __version__
from rag_context.server.middleware import OPEN_PATHS
from rag_context.server.options import ServerOptions
from rag_context.settings.sources import load_settings
from rag_context.stores.postgres.vector_search import BUILD_MEMORY
from tests.deploy.files import (
    MANIFESTS,
    POSTGRES_CONFIG,
    SETTINGS,
    container,
    image_environment,
    instructions,
    manifest_files,
    pod,
    resource,
    resources,
)

DEPLOYMENTS = ("rag-context", "qdrant", "mongodb", "postgres", "redis")


@pytest.mark.parametrize("version", ["1.25", "1.37"])
def test_every_object_keeps_to_its_schema(version: str) -> None:
    program = Path(sys.executable).with_name("kubernetes-validate")
    checked = subprocess.run(
        [program, "--strict", "--kubernetes-version", version, *manifest_files()],
        capture_output=True,
        text=True,
        check=False,
    )
    output = [line for line in (checked.stdout + checked.stderr).splitlines() if line[:4] in {"INFO", "WARN", "ERRO"}]

    assert checked.returncode == 0, checked.stdout
    assert [line for line in output if " passed for resource " not in line] == []
    assert len(output) == len(resources()) + 1


def test_the_schemas_would_notice_a_misspelt_field(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text((MANIFESTS / "redis.yaml").read_text(encoding="utf-8").replace("readOnlyRoot", "readOnlyRot"))
    program = Path(sys.executable).with_name("kubernetes-validate")

    assert subprocess.run([program, "--strict", broken], capture_output=True, check=False).returncode == 1


def test_everything_is_in_one_namespace() -> None:
    for item in resources():
        place = item["metadata"]["name" if item["kind"] == "Namespace" else "namespace"]
        assert place == "rag-context"


def kustomized(folder: Path) -> dict[tuple[str, str], Path]:
    """The objects that a kustomization makes, and the file of each."""
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    paths = [(folder / name).resolve() for name in listed]
    return {
        (item["kind"], item["metadata"]["name"]): path
        for path in paths
        for item in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    }


def test_the_kustomizations_have_every_manifest_and_each_has_the_configuration_of_its_stores() -> None:
    default, with_qdrant = kustomized(MANIFESTS), kustomized(MANIFESTS / "qdrant")
    optional = {MANIFESTS / "postgres" / "backup.yaml", MANIFESTS / "ingress.yaml"}

    assert {*default.values(), *with_qdrant.values()} == {*manifest_files()} - optional
    assert default["ConfigMap", "rag-context"] == POSTGRES_CONFIG
    assert {name for kind, name in default if kind == "Deployment"} == {"rag-context", "postgres", "redis"}
    assert with_qdrant["ConfigMap", "rag-context"] == MANIFESTS / "server-config.yaml"
    names = {name for kind, name in with_qdrant if kind == "Deployment"}
    assert names == {"rag-context", "qdrant", "mongodb", "redis"}


def test_qdrant_runs_at_the_requested_address() -> None:
    service = resource("Service", "qdrant")["spec"]
    claim = resource("PersistentVolumeClaim", "qdrant-pvc")["spec"]

    assert service["type"] == "NodePort"
    assert {port["name"]: (port["port"], port["nodePort"]) for port in service["ports"]} == {
        "http": (6333, 30333),
        "grpc": (6334, 30334),
    }
    assert (claim["accessModes"], claim["resources"]["requests"]["storage"]) == (["ReadWriteOnce"], "10Gi")
    assert resource("Deployment", "qdrant")["spec"]["strategy"] == {"type": "Recreate"}
    assert container("qdrant")["resources"]["limits"] == {"cpu": "2", "memory": "2Gi"}


def test_qdrants_configuration_is_the_requested_one() -> None:
    config = yaml.safe_load(resource("ConfigMap", "qdrant-config")["data"]["production.yaml"])

    assert config["storage"]["hnsw_index"] == {"m": 16, "ef_construct": 100}
    assert config["service"] == {"max_request_size_mb": 32, "max_workers": 0}
    assert config["log_level"] == "INFO"


def test_qdrant_is_a_version_that_is_supported() -> None:
    version = container("qdrant")["image"].partition(":v")[2].partition("-")[0]

    assert tuple(map(int, version.split("."))) >= (1, 15, 0)


def test_an_open_port_requires_a_key() -> None:
    for item in resources():
        if item["kind"] == "Service" and item["spec"].get("type") == "NodePort":
            environment = {entry["name"]: entry for entry in container(item["metadata"]["name"])["env"]}
            assert (
                environment["QDRANT__SERVICE__API_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "rag-context-backends"
            )


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_every_pod_keeps_to_the_restricted_standard(name: str) -> None:
    spec, only = pod(name), container(name)

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["automountServiceAccountToken"] is False
    labels = resource("Namespace", "rag-context")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_every_pod_is_pinned_bounded_and_probed(name: str) -> None:
    only = container(name)

    assert only["image"].partition(":")[2].count(".") == 2
    assert only["resources"].keys() == {"requests", "limits"}
    assert {"livenessProbe", "readinessProbe"} <= only.keys()
    ports = {port["name"] for port in only["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = only.get(probe, {})
        assert asked.get("httpGet", asked.get("tcpSocket", {"port": only["ports"][0]["name"]}))["port"] in ports


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_service_selector_and_ports_lead_to_the_pods(name: str) -> None:
    service, deployment = resource("Service", name)["spec"], resource("Deployment", name)["spec"]

    assert service["selector"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert deployment["selector"]["matchLabels"] == service["selector"]
    assert {port["targetPort"] for port in service["ports"]} <= {port["name"] for port in container(name)["ports"]}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_every_mount_has_its_volume_and_every_claim_exists(name: str) -> None:
    volumes = {volume["name"]: volume for volume in pod(name)["volumes"]}

    assert {mount["name"] for mount in container(name)["volumeMounts"]} == set(volumes)
    for volume in volumes.values():
        if "persistentVolumeClaim" in volume:
            resource("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])
        if "configMap" in volume:
            resource("ConfigMap", volume["configMap"]["name"])


@pytest.mark.parametrize("name", ["qdrant", "mongodb", "postgres"])
def test_two_pods_never_open_one_volume(name: str) -> None:
    spec = resource("Deployment", name)["spec"]

    assert (spec["replicas"], spec["strategy"]["type"]) == (1, "Recreate")


def server_settings(folder: Path, **secret: str) -> Any:
    environment = {**image_environment(), **resource("ConfigMap", "rag-context")["data"], **secret}
    return load_settings(flags={}, environ=environment, cwd=folder).settings


def test_the_servers_settings_exist_and_name_server_backends(tmp_path: Path) -> None:
    stores = server_settings(tmp_path).stores

    assert resource("ConfigMap", "rag-context")["data"].keys() <= SETTINGS
    assert (stores.vectors, stores.documents, stores.cache) == ("qdrant", "mongodb", "redis")
    assert container("rag-context")["envFrom"] == [
        {"configMapRef": {"name": "rag-context"}},
        {"secretRef": {"name": "rag-context"}},
    ]
    port = resource("Service", "qdrant")["spec"]["ports"][0]["port"]
    assert stores.qdrant_url == f"http://qdrant:{port}"


def test_with_postgresql_one_database_holds_all_but_the_cache(tmp_path: Path) -> None:
    config = yaml.safe_load(POSTGRES_CONFIG.read_text(encoding="utf-8"))
    port = resource("Service", "postgres")["spec"]["ports"][0]["port"]
    secret = {"DATABASE_URL": f"postgresql://rag-context:x@postgres:{port}/rag_context"}
    environment = {**image_environment(), **config["data"], **secret}
    stores = load_settings(flags={}, environ=environment, cwd=tmp_path).settings.stores

    assert (stores.vectors, stores.documents, stores.cache) == ("postgres", "postgres", "redis")
    assert config["metadata"] == resource("ConfigMap", "rag-context")["metadata"]
    others = resource("ConfigMap", "rag-context")["data"]
    differ = {name for name in {*others, *config["data"]} if others.get(name) != config["data"].get(name)}
    assert differ == {"RAG_CONTEXT_STORES__VECTORS", "RAG_CONTEXT_STORES__DOCUMENTS", "QDRANT_URL"}


def shared_memory_mb(name: str) -> int:
    (volume,) = (each["emptyDir"] for each in pod(name)["volumes"] if each["name"] == "shm")
    assert {"name": "shm", "mountPath": "/dev/shm"} in container(name)["volumeMounts"]
    assert volume["medium"] == "Memory"
    return int(volume["sizeLimit"].removesuffix("Mi"))


def test_postgresql_has_the_shared_memory_that_building_an_index_takes() -> None:
    built_in = int(BUILD_MEMORY.removesuffix("MB"))

    assert shared_memory_mb("postgres") > built_in
    buffers = next(word for word in container("postgres")["args"] if word.startswith("shared_buffers="))
    reserved = 1024 * int(buffers.removeprefix("shared_buffers=").removesuffix("GB")) + shared_memory_mb("postgres")
    assert reserved <= 0.5 * 1024 * int(container("postgres")["resources"]["limits"]["memory"].removesuffix("Gi"))


def test_postgresql_has_connections_for_every_server_that_the_autoscaler_starts(tmp_path: Path) -> None:
    (found,) = (word for word in container("postgres")["args"] if word.startswith("max_connections="))
    pool = server_settings(tmp_path).stores.postgres_pool_size
    servers = resource("HorizontalPodAutoscaler", "rag-context")["spec"]["maxReplicas"]
    replaced = resource("Deployment", "rag-context")["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
    superusers, backup = 3, 1

    assert int(found.removeprefix("max_connections=")) >= (servers + replaced) * (2 * pool + 2) + superusers + backup


def test_postgresql_reads_its_password_from_a_file() -> None:
    (volume,) = (each["secret"] for each in pod("postgres")["volumes"] if "secret" in each)
    (mount,) = (each for each in container("postgres")["volumeMounts"] if each["name"] == "password")
    (item,) = volume["items"]
    environment = {entry["name"]: entry["value"] for entry in container("postgres")["env"]}

    assert (volume["secretName"], item["key"]) == ("rag-context-backends", "POSTGRES_PASSWORD")
    assert environment["POSTGRES_PASSWORD_FILE"] == f"{mount['mountPath']}/{item['path']}"


def test_the_backup_is_restricted_and_made_by_the_servers_own_version() -> None:
    job = resource("CronJob", "postgres-backup")["spec"]
    spec = job["jobTemplate"]["spec"]["template"]["spec"]
    (only,) = spec["containers"]

    assert only["image"] == container("postgres")["image"]
    assert job["concurrencyPolicy"] == "Forbid"
    assert only["securityContext"] == container("postgres")["securityContext"]
    for name in ("runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "seccompProfile"):
        assert spec["securityContext"][name] == pod("postgres")["securityContext"][name]
    environment = {entry["name"]: entry for entry in only["env"]}
    assert environment["PGPASSWORD"]["valueFrom"]["secretKeyRef"]["key"] == "POSTGRES_PASSWORD"
    assert environment["PGHOST"]["value"] == resource("Service", "postgres")["metadata"]["name"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    assert {mount["name"] for mount in only["volumeMounts"]} == volumes


def test_an_address_in_the_secret_wins_over_the_clusters_own(tmp_path: Path) -> None:
    settings = server_settings(tmp_path, QDRANT_URL="https://qdrant.example:6333", LM_STUDIO_URL="http://models:1234")

    assert settings.stores.qdrant_url == "https://qdrant.example:6333"
    assert settings.embedder.kind == "openai_compatible"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_kubernetes_adds_no_variables_that_are_no_settings(name: str) -> None:
    assert pod(name)["enableServiceLinks"] is False


def test_what_is_secret_is_not_in_a_config_map() -> None:
    for item in resources():
        assert item["kind"] != "Secret"
        if item["kind"] == "ConfigMap":
            assert not any(
                "KEY" in name or name in {"MONGODB_URI", "DATABASE_URL", "REDIS_URL"} for name in item["data"]
            )


def test_the_server_answers_to_its_names_in_the_cluster(tmp_path: Path) -> None:
    allowed = server_settings(tmp_path).server.allowed_hosts

    assert set(allowed) == {"rag-context", "*.svc", "*.svc.cluster.local"}
    assert resource("Service", "rag-context")["metadata"]["name"] in allowed


def test_an_outage_of_a_backend_takes_no_pod_out() -> None:
    only = container("rag-context")

    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert only[probe]["httpGet"]["path"] == "/live"
    assert "/live" in OPEN_PATHS


def test_the_server_has_time_to_leave_and_to_finish() -> None:
    leaves = int(container("rag-context")["lifecycle"]["preStop"]["exec"]["command"][1])

    assert pod("rag-context")["terminationGracePeriodSeconds"] > leaves + ServerOptions().grace_s + 2


def test_the_server_is_the_image_that_was_built() -> None:
    only, context = container("rag-context"), pod("rag-context")["securityContext"]

    assert only["image"] == f"rag-context:{__version__}"
    assert f"{context['runAsUser']}:{context['runAsGroup']}" == instructions("USER")[-1]
    assert [str(port["containerPort"]) for port in only["ports"]] == instructions("EXPOSE")
    mounts = {mount["mountPath"] for mount in only["volumeMounts"]}
    assert mounts == {image_environment()["RAG_CONTEXT_DATA_DIR"], "/tmp"}


def test_it_embeds_with_as_many_threads_as_it_has_cores(tmp_path: Path) -> None:
    workers = server_settings(tmp_path).embedder.workers

    assert str(workers) == container("rag-context")["resources"]["limits"]["cpu"]


def test_the_autoscaler_alone_says_how_many_servers_there_are() -> None:
    scaler = resource("HorizontalPodAutoscaler", "rag-context")["spec"]
    budget = resource("PodDisruptionBudget", "rag-context")["spec"]

    assert "replicas" not in resource("Deployment", "rag-context")["spec"]
    assert scaler["scaleTargetRef"]["name"] == "rag-context"
    assert 2 <= scaler["minReplicas"] < scaler["maxReplicas"]
    assert budget["selector"]["matchLabels"] == {"app": "rag-context"}
    assert budget["maxUnavailable"] < scaler["minReplicas"]
    assert resource("Deployment", "rag-context")["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


@pytest.mark.parametrize("name", ["mongodb", "postgres", "redis"])
def test_only_the_server_reaches_the_stores_without_a_node_port(name: str) -> None:
    policy = resource("NetworkPolicy", name)["spec"]
    (sources,) = ([peer["podSelector"]["matchLabels"]["app"] for peer in rule["from"]] for rule in policy["ingress"])

    assert policy["podSelector"]["matchLabels"] == {"app": name}
    assert sources == (["rag-context", "postgres-backup"] if name == "postgres" else ["rag-context"])
    assert "type" not in resource("Service", name)["spec"]


def test_the_ingress_leads_to_the_servers_port_and_has_a_certificate_for_its_host() -> None:
    spec, service = resource("Ingress", "rag-context")["spec"], resource("Service", "rag-context")
    (rule,) = spec["rules"]
    (path,) = rule["http"]["paths"]
    assert path["backend"]["service"]["name"] == service["metadata"]["name"]
    assert path["backend"]["service"]["port"]["name"] in [port["name"] for port in service["spec"]["ports"]]
    assert [each["hosts"] for each in spec["tls"]] == [[rule["host"]]]
