"""Installs the chosen clients from npm, each at its version, and runs the tests of this package.

python -m tests.clients                        all of them, some minutes
python -m tests.clients claude-code,codex      these
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.clients.agents import CLIENTS, AgentClient
from tests.clients.machine import installed_clients

OWN_STEP = {"@anthropic-ai/claude-code": "install.cjs"}
"""What a package runs after it was unpacked, beside those that compile something for windows."""


def is_installed(client: AgentClient, folder: Path) -> bool:
    """Whether a client is there at its version."""
    file = folder / "node_modules" / client.package / "package.json"
    return file.is_file() and json.loads(file.read_text())["version"] == client.version


def install(clients: list[AgentClient], folder: Path) -> None:
    """Install what is missing, without the scripts of packages."""
    missing = [each for each in clients if not is_installed(each, folder)]
    if not missing:
        return
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is missing: install Node.js 20 or newer, or leave the clients out by `CLIENTS=none`.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").touch()
    if not (folder / "package.json").read_text():
        (folder / "package.json").write_text('{"private": true}\n')
    packages = [f"{each.package}@{each.version}" for each in missing]
    subprocess.run(
        [npm, "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", *packages], check=True
    )
    for client in missing:
        if step := OWN_STEP.get(client.package):
            subprocess.run(["node", step], cwd=folder / "node_modules" / client.package, check=True)


def tested(module: str, *options: str) -> int:
    """Run one of the modules; returns how it ended."""
    words = [sys.executable, "-m", "pytest", str(Path(__file__).with_name(module)), "--durations=10", *options]
    return subprocess.run([*words, *sys.argv[2:]], check=False).returncode


def main() -> int:
    """Install, and test."""
    chosen = sys.argv[1] if len(sys.argv) > 1 else ",".join(CLIENTS)
    if chosen == "none":
        print("No client is driven: CLIENTS=none.")
        return 0
    unknown = set(chosen.split(",")) - set(CLIENTS)
    if unknown:
        sys.exit(f"Unknown clients: {', '.join(sorted(unknown))}. Known are {', '.join(CLIENTS)}.")
    install([CLIENTS[name] for name in chosen.split(",")], installed_clients())
    os.environ["RAG_TEST_CLIENTS"] = chosen
    # Two clients at once, except where a test is about how soon one of them sees the tools.
    runs = (["test_hooks.py", "-n", "2", "--dist", "loadgroup"], ["test_tools_are_seen.py"])
    return max(tested(*each) for each in runs)


if __name__ == "__main__":
    sys.exit(main())
