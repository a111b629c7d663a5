"""What the deployment files say, read as their tools read them."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rag_context.settings.keys import ALIASES, KEYS, variable

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy" / "k8s"
POSTGRES_CONFIG = MANIFESTS / "postgres" / "server-config.yaml"
"""Takes the place of the other ConfigMap of the same name."""

SETTINGS = frozenset({*ALIASES, *map(variable, KEYS)})
"""Every name of a setting in the environment."""

_VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::[-?]([^}]*))?\}")


def dockerfile() -> list[tuple[str, str]]:
    """Instructions and what follows them, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\s*\\\n\s*", " ", re.sub(r"(?m)^#.*\n", "", text)).splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines if line.strip()]


def instructions(name: str) -> list[str]:
    """What follows each instruction of a name."""
    return [rest for instruction, rest in dockerfile() if instruction == name]


def image_environment() -> dict[str, str]:
    """The last stage's `ENV`."""
    return dict(pair.split("=", 1) for pair in instructions("ENV")[-1].split())


def compose(*names: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Compose files over each other, variables filled in: mappings are merged, anything else is replaced.

    Raises:
        KeyError: A variable that must be set is not.
    """
    merged: dict[str, Any] = {}
    for name in names:
        text = _VARIABLE.sub(lambda found: _filled(found, environment), (ROOT / name).read_text(encoding="utf-8"))
        merged = _merged(merged, yaml.safe_load(text))
    return merged


def _filled(found: "re.Match[str]", environment: Mapping[str, str]) -> str:
    name, otherwise = found[1], found[2]
    if name not in environment and (otherwise is None or ":?" in found[0]):
        raise KeyError(name)
    return environment.get(name, otherwise or "")


def _merged(under: Any, over: Any) -> Any:
    if isinstance(under, dict) and isinstance(over, dict):
        return {**under, **{key: _merged(under.get(key), value) for key, value in over.items()}}
    return over


def manifest_files() -> list[Path]:
    """All manifests; the kustomization is none."""
    return sorted(path for path in MANIFESTS.rglob("*.yaml") if path.name != "kustomization.yaml")


@cache
def resources() -> Sequence[dict[str, Any]]:
    """All objects of all manifests but `POSTGRES_CONFIG`; read once, and not to be changed."""
    texts = [path.read_text(encoding="utf-8") for path in manifest_files() if path != POSTGRES_CONFIG]
    return [item for text in texts for item in yaml.safe_load_all(text)]


def resource(kind: str, name: str) -> dict[str, Any]:
    """The one object of a kind and name."""
    (found,) = (item for item in resources() if item["kind"] == kind and item["metadata"]["name"] == name)
    return found


def pod(name: str) -> dict[str, Any]:
    """What a Deployment says of its pods."""
    spec: dict[str, Any] = resource("Deployment", name)["spec"]["template"]["spec"]
    return spec


def container(name: str) -> dict[str, Any]:
    """The one container of a Deployment."""
    (found,) = pod(name)["containers"]
    found_container: dict[str, Any] = found
    return found_container
