"""A cluster as far as the scripts see one: a small program called `kubectl` that records its calls and answers."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.files import ROOT

_PROGRAM = Path(__file__).with_name("kubectl.py")
_PLACE = re.compile(r"(?m)^  namespace: (\S+)$")


@dataclass(frozen=True)
class Ended:
    """A script that has ended."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Cluster:
    """Its folder: the calls, the objects, and what a test says about it."""

    folder: Path
    variables: dict[str, str]

    def run(self, script: str, *words: str, **variables: str) -> Ended:
        """Run a script of `deploy/` to its end."""
        ended = subprocess.run(
            [ROOT / "deploy" / script, *words],
            env={**self.variables, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Each call: `words`, `context`, `namespace`, `changed` (what it changed) and `applied` (what it was given)."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def changes(self) -> list[str]:
        """What was changed, in order."""
        return [change for call in self.calls for change in call["changed"]]

    def forget_calls(self) -> None:
        """Look at the next calls only."""
        (self.folder / "calls.jsonl").unlink(missing_ok=True)

    @property
    def objects(self) -> dict[str, dict[str, Any]]:
        """By `kind/name`: `text`, `version`, and `replicas` of deployments."""
        path = self.folder / "objects.json"
        found: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def secret(self, name: str) -> dict[str, str]:
        """What a Secret holds."""
        pairs = re.findall(r"(?m)^  (\w+): (\S+)$", self.objects[f"secret/{name}"]["text"].partition("kind:")[0])
        return {key: b64decode(value).decode() for key, value in pairs}

    @property
    def places(self) -> set[str]:
        """Namespaces that objects say they are in."""
        return {place for item in self.objects.values() for place in _PLACE.findall(item["text"])}

    def says(self, **facts: object) -> None:
        """Set facts: `port` that is forwarded to, `down` for no cluster, `broken` deployments that never come up, and
        `endless` ones whose pods never end.

        Without a port, a deployment ends where the server would be reached.
        """
        path = self.folder / "facts.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**known, **facts}))

    def copy(self, folder: Path) -> "Cluster":
        """Another one with the same objects, and no calls yet."""
        other = make_cluster(folder)
        shutil.copy(self.folder / "objects.json", folder)
        return other


def make_cluster(folder: Path) -> Cluster:
    """A cluster with nothing in it, and its `kubectl` first on the path."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    kubectl = programs / "kubectl"
    # Isolated and without site packages it starts in some twenty milliseconds, and it is called often.
    kubectl.write_text(f"#!{sys.executable} -IS\n" + _PROGRAM.read_text(encoding="utf-8"), encoding="utf-8")
    kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    (folder / "home").mkdir()
    return Cluster(folder, {"PATH": path, "HOME": str(folder / "home"), "KUBECTL_FOLDER": str(folder)})
