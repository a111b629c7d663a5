"""The image is small in what it trusts: pinned, hashed, without root; and it agrees with the package."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rag_context import __version__
from rag_context.server.middleware import OPEN_PATHS
from rag_context.settings.sources import load_settings
from tests.deploy.files import ROOT, SETTINGS, dockerfile, image_environment, instructions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = ("qdrant", "mongodb", "redis", "otel")
"""What the image has beyond the embedded default. Chroma's client brings a whole server with it."""


def pins(name: str) -> dict[str, str]:
    """Packages and versions of a lock file; where markers give one package two versions, both."""
    found: dict[str, str] = {}
    for package, version in re.findall(r"(?m)^([a-z0-9-]+)==(\S+)", (ROOT / name).read_text(encoding="utf-8")):
        found[package] = " ".join(sorted({*found.get(package, "").split(), version}))
    return found


def normalised(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


def test_hadolint_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("hadolint")
    linted = subprocess.run([linter, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, check=False)

    assert (linted.returncode, linted.stdout) == (0, "")


def test_both_stages_are_the_same_exact_python_that_the_package_is_for() -> None:
    images = [rest.split()[0] for rest in instructions("FROM")]

    assert len(set(images)) == 1
    version = re.fullmatch(r"python:((\d+\.\d+)\.\d+)-slim-[a-z]+", images[0])
    assert version is not None
    assert PROJECT["requires-python"] == f">={version[2]}"
    assert f"Programming Language :: Python :: {version[2]}" in PROJECT["classifiers"]


def test_everything_installed_is_pinned_by_hash_and_never_compiled() -> None:
    fetching = [
        part for run in instructions("RUN") for part in run.split("&&") if " install " in part and "-r " in part
    ]

    assert [part.split("-r ")[1].strip() for part in fetching] == ["requirements.lock", "build.lock"]
    assert all("--require-hashes" in part and "--only-binary :all:" in part for part in fetching)
    local = [part for run in instructions("RUN") for part in run.split("&&") if "pip" in part and "/dist" in part]
    assert len(local) == 2
    assert all("--no-index" in part for part in local)


@pytest.mark.parametrize("name", ["requirements.lock", "deploy/build.lock", "deploy/demo.lock"])
def test_what_is_shipped_is_what_is_tested(name: str) -> None:
    tested = pins("requirements-dev.lock")

    assert {package: tested.get(package) for package in pins(name)} == pins(name)


def test_every_pin_has_a_hash() -> None:
    for name in ("requirements.lock", "deploy/build.lock", "deploy/demo.lock"):
        blocks = re.split(r"(?m)^(?=[a-z0-9-]+==)", (ROOT / name).read_text(encoding="utf-8"))[1:]
        assert all("--hash=sha256:" in block for block in blocks)


def test_the_lock_file_covers_the_package_with_its_server_backends() -> None:
    wanted = [*PROJECT["dependencies"], *(each for extra in EXTRAS for each in PROJECT["optional-dependencies"][extra])]

    assert {normalised(each) for each in wanted} <= pins("requirements.lock").keys()
    assert "chromadb" not in pins("requirements.lock")


def test_the_build_backend_is_locked() -> None:
    (backend,) = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]

    assert normalised(backend) in pins("deploy/build.lock")


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {path for rest in instructions("COPY") if "--from" not in rest for path in rest.split()[:-1]}

    assert rules[0] == "*"
    assert copied == allowed
    assert all((ROOT / path).exists() for path in copied)


def test_what_the_package_is_built_from_is_copied() -> None:
    copied = {path for rest in instructions("COPY") for path in rest.split()}
    needed = {"README.md", "hatch_build.py", *PROJECT["license-files"]}

    assert all(path in copied or path.startswith("src/") for path in needed)


def test_it_runs_without_root_and_says_so_by_number() -> None:
    user, group = instructions("USER")[-1].split(":")

    assert min(int(user), int(group)) >= 10_000
    after = [name for name, _ in dockerfile()[[name for name, _ in dockerfile()].index("USER") :]]
    assert "RUN" not in after
    assert "USER" not in after[1:]


def test_it_starts_and_stops_without_a_shell() -> None:
    assert json.loads(instructions("ENTRYPOINT")[-1]) == ["rag-context"]
    assert json.loads(instructions("CMD")[-1]) == ["serve"]
    assert instructions("STOPSIGNAL") == ["SIGTERM"]


def test_its_environment_is_a_configuration_that_listens_to_others(tmp_path: Path) -> None:
    environment = image_environment()

    assert {name for name in environment if name.startswith("RAG_CONTEXT_")} <= SETTINGS
    settings = load_settings(flags={}, environ=environment, cwd=tmp_path).settings
    assert settings.server.host == "0.0.0.0"
    assert [str(settings.server.port)] == instructions("EXPOSE")
    assert [str(settings.data_dir)] == json.loads(instructions("VOLUME")[-1])


def test_its_health_check_calls_an_open_path_of_the_right_port() -> None:
    options, _, command = instructions("HEALTHCHECK")[-1].partition("CMD ")
    interpreter, _, program = json.loads(command)
    port, path = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", program)[0]

    assert interpreter == "python"
    assert "--start-period" in options
    assert [port] == instructions("EXPOSE")
    assert path in OPEN_PATHS


def test_it_carries_the_packages_version() -> None:
    assert f'org.opencontainers.image.version="{__version__}"' in instructions("LABEL")[-1]
