"""What the image is made of, without the image: the wheel, in an environment of its own, run as the Dockerfile says."""

import json
import os
import shutil
import signal
import site
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.deploy.files import ROOT, image_environment, instructions
from tests.end_to_end.process import TIMEOUT_S, wait_until

KEY = "the-key-of-all-clients"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel; what it depends on, it borrows from this one."""
    folder = tmp_path_factory.mktemp("image")
    source, wheels, environment = folder / "src", folder / "dist", folder / "environment"
    source.mkdir()
    for path in instructions("COPY")[1].split()[:-1]:
        shutil.copy(ROOT / path, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", wheels, source)
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    run(*pip, "--python", python, "install", "--no-deps", "--no-index", *wheels.glob("*.whl"))
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")
    return environment / "bin"


def run(*words: str | Path) -> str:
    ended = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def variables(programs: Path, data_dir: Path, **extra: str) -> dict[str, str]:
    """The image's own environment, in another place."""
    kept = {name: value for name, value in image_environment().items() if name not in {"PATH", "HOME"}}
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    return {**kept, "PATH": path, "HOME": str(data_dir), "RAG_CONTEXT_DATA_DIR": str(data_dir), **extra}


@contextmanager
def container(programs: Path, data_dir: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The image's command, but on a free port of the loopback address."""
    words = [*json.loads(instructions("ENTRYPOINT")[-1]), *json.loads(instructions("CMD")[-1])]
    process = subprocess.Popen(
        [programs / words[0], *words[1:], "--host", "127.0.0.1", "--port", "0"],
        cwd=data_dir,
        env=variables(programs, data_dir, RAG_CONTEXT_API_KEY=KEY),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(TIMEOUT_S)


def is_healthy(programs: Path, url: str) -> bool:
    """What the image's health check says of a server."""
    check = json.loads(instructions("HEALTHCHECK")[-1].partition("CMD ")[2])
    program = check[-1].replace("http://127.0.0.1:3000", url)
    return (
        subprocess.run([programs / check[0], *check[1:-1], program], capture_output=True, check=False).returncode == 0
    )


def test_it_is_the_wheel_that_runs(installed: Path) -> None:
    where = run(installed / "python", "-c", "import rag_context; print(rag_context.__file__)")

    assert Path(where.strip()).is_relative_to(installed.parent)


def test_it_serves_finds_and_stops_when_requested(installed: Path, tmp_path: Path) -> None:
    announcement, headers = tmp_path / "server.json", {"X-API-Key": KEY}
    with container(installed, tmp_path) as process:
        wait_until(lambda: announcement.exists() or process.poll() is not None)
        url = json.loads(announcement.read_text())["url"]
        wait_until(lambda: is_healthy(installed, url))
        wait_until(lambda: httpx2.get(f"{url}/ready").status_code == 200)
        document = {"content": "Volumes are kept.", "contentType": "decision", "sessionId": "s", "source": "adr-1"}
        httpx2.post(f"{url}/tools/rag_context_index", json=document, headers=headers).raise_for_status()
        question = {"query": "what happens to volumes?"}
        found = httpx2.post(f"{url}/tools/rag_context_search", json=question, headers=headers).json()
        page = httpx2.get(f"{url}/").text
        process.send_signal(signal.Signals[instructions("STOPSIGNAL")[-1]])
        assert process.wait(TIMEOUT_S) == 0

    assert (found["fallbackLevel"], found["results"][0]["content"]) == (1, "Volumes are kept.")
    assert "<html" in page
    assert not is_healthy(installed, url)


def test_without_a_key_it_says_what_is_missing(installed: Path, tmp_path: Path) -> None:
    ended = subprocess.run(
        [installed / "rag-context", "serve"],
        env=variables(installed, tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 78
    assert "RAG_CONTEXT_API_KEY" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_what_kubernetes_adds_for_services_would_be_rejected(installed: Path, tmp_path: Path) -> None:
    added = {"RAG_CONTEXT_PORT": "tcp://10.0.0.1:3000", "RAG_CONTEXT_API_KEY": KEY}
    ended = subprocess.run(
        [installed / "rag-context", "config"],
        env=variables(installed, tmp_path, **added),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 78
    assert "RAG_CONTEXT_PORT" in ended.stderr
