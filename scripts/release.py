"""Build a release into dist/, and try it: `make release`.

A wheel, a source distribution, a wheel of the client alone, and a list of components (SBOM, CycloneDX). The same commit
gives the same bytes: all times in them are the commit's. Then each wheel is installed into an empty environment of each
Python, with the newest dependencies that it allows, as users install it. The whole package must answer a question from
a file that it indexes, and the client must get the same answer from a server of the whole package.

    python scripts/release.py --repository https://example.org/rag-context [--python 3.11 --python 3.13] [--only-build]
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = ROOT / ".venv" / "bin"
TOOLS_LOCK = ROOT / "deploy" / "release.lock"
NOTE = "# Boats\n\nThe harbour master's boat is called Skerryvore.\n"
ASK = "import sys, rag_context; print(rag_context.Client(sys.argv[1]).search(sys.argv[2]).results[0].content)"
QUESTION = "what is the boat of the harbour master called?"


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """Run a command; returns its output. Its failure ends this program with what it said."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path, source: Path = ROOT) -> tuple[Path, Path]:
    """Build the wheel and the source distribution of a checkout into a folder."""
    epoch = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=source, SOURCE_DATE_EPOCH=epoch)
    (wheel,), (archive,) = folder.glob("rag_context-*.whl"), folder.glob("*.tar.gz")
    return wheel, archive


def build_client(folder: Path) -> Path:
    """Build the wheel of the client alone into a folder."""
    epoch = run("git", "log", "-1", "--format=%ct").strip()
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    run(*command, cwd=ROOT / "clients" / "python", SOURCE_DATE_EPOCH=epoch)
    (wheel,) = folder.glob("rag_context_client-*.whl")
    return wheel


def list_components(wheel: Path, scratch: Path) -> Path:
    """Write the list of components from the lock file, by a tool in an environment of its own."""
    tools = scratch / "tools"
    run(BIN / "uv", "venv", "--quiet", "--python", sys.executable, tools)
    install(tools, "--require-hashes", "--no-deps", "-r", TOOLS_LOCK)
    target = wheel.with_name(f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json")
    run(
        *(tools / "bin" / "cyclonedx-py", "requirements", ROOT / "requirements.lock"),
        *("--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--output-file", target),
    )
    return target


def install(environment: Path, *what: str | Path) -> None:
    """Install into a virtual environment."""
    run(BIN / "uv", "pip", "install", "--quiet", "--python", environment / "bin" / "python", *what)


def answers(wheel: Path, client: Path, python: str, folder: Path) -> str:
    """Install both wheels into empty environments and ask them; returns what answered. Exits where one does not."""
    folder.mkdir()
    environment, data_dir, note = folder / "environment", folder / "data", folder / "boats.md"
    for target, what in ((environment, wheel), (folder / "client", client)):
        run(BIN / "uv", "venv", "--quiet", "--python", python, target)
        install(target, what)
    note.write_text(NOTE, encoding="utf-8")
    program = environment / "bin" / "rag-context"
    run(program, "index", note, "--data-dir", data_dir, cwd=folder)
    said = json.loads(run(program, "search", QUESTION, "--json", "--data-dir", data_dir, cwd=folder))
    if said["fallbackLevel"] != 1 or "Skerryvore" not in said["results"][0]["content"]:
        sys.exit(f"The wheel does not answer on Python {python}: {said}")
    serve = (program, "serve", "--port", "0", "--data-dir", data_dir)
    with subprocess.Popen(serve, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://[\d.:]+\d", next(iter(server.stderr or ()), ""))
            asked = run(folder / "client" / "bin" / "python", "-c", ASK, address[0] if address else "", QUESTION)
        finally:
            server.terminate()
    if "Skerryvore" not in asked:
        sys.exit(f"The client's wheel gets no answer on Python {python}: {asked}")
    version = run(environment / "bin" / "python", "-c", "import platform; print(platform.python_version())").strip()
    return f"Python {version} answers at level 1"


def main(arguments: Sequence[str] | None = None) -> None:
    """Build, list, try."""
    parser = argparse.ArgumentParser(description="Build a release into dist/, and try it.")
    parser.add_argument("--python", action="append", metavar="VERSION", help="a Python to try it with; may be repeated")
    parser.add_argument("--only-build", action="store_true", help="neither list the components nor try it")
    parser.add_argument("--repository", required=True, metavar="URL", help="where the source is published")
    asked = parser.parse_args(arguments)
    os.environ["RAG_CONTEXT_REPOSITORY"] = asked.repository
    if changed := run("git", "status", "--porcelain"):
        sys.exit(f"A release is built from a commit, and these files differ from it:\n{changed}")
    dist = ROOT / "dist"
    if dist.exists() and any(dist.iterdir()):
        sys.exit(f"{dist} is not empty: move or remove it first")
    made = [*build(dist), build_client(dist)]
    del os.environ["RAG_CONTEXT_REPOSITORY"]  # only building reads it; rag-context takes it for a misspelt setting
    if not asked.only_build:
        with tempfile.TemporaryDirectory(prefix="rag-context-release-") as name:
            made.append(list_components(made[0], Path(name)))
            for number, python in enumerate(asked.python or ["3.11"]):
                print(answers(made[0], made[2], python, Path(name) / str(number)), flush=True)
    for path in made:
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
