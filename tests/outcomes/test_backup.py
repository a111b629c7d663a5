"""Backups of a server under load, and their return: whole or not at all."""

import json
import signal
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.loaded import Program
from tests.end_to_end.process import COMMAND, Served, command, environment, served

KILLS = 5


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("backup")


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Served]:
    with served(place / "data") as server:
        server.wait_ready()
        for number in range(20):
            server.index(sentence(number), source=f"first-{number}")
        yield server


@pytest.fixture(scope="module")
def whole(server: Served, place: Path) -> Path:
    """A backup of a server at rest."""
    file = place / "whole.tar"
    assert command("backup", str(file), data_dir=place / "data").returncode == 0
    return file


def sentence(number: int) -> str:
    return f"Berth {number} is painted green, and its crane lifts {number + 7} tons of cargo before the tide turns."


@contextmanager
def load(server: Served) -> Iterator[list[str]]:
    """Two clients that store documents all the time: the ids of those that are acknowledged, in their order."""
    stored: list[str] = []
    is_over = threading.Event()

    def store(client: int) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            answer = server.index(sentence(number), source=f"load-{client}-{number}-{time.monotonic_ns()}")
            stored.append(answer["documentId"])

    threads = [threading.Thread(target=store, args=(client,)) for client in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield stored
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def ids(data: Path) -> set[str]:
    exported = command("export", "-", data_dir=data)
    assert exported.returncode == 0, exported.stderr
    lines = (json.loads(line) for line in exported.stdout.splitlines())
    return {line["id"] for line in lines if "id" in line}


def test_a_backup_under_load_holds_what_was_acknowledged_before_and_comes_back_sound(
    server: Served, place: Path, tmp_path: Path
) -> None:
    with load(server) as stored:
        while len(stored) < 20:
            time.sleep(0.01)
        before = set(stored)
        made = command("backup", str(tmp_path / "b.tar"), "--json", data_dir=place / "data")
    assert made.returncode == 0, made.stderr
    receipt = json.loads(made.stdout)
    assert (tmp_path / "b.tar").stat().st_mode & 0o077 == 0
    restored = command("restore", str(tmp_path / "b.tar"), data_dir=tmp_path / "new")
    assert restored.returncode == 0, restored.stderr
    assert f"{receipt['documents']} documents" in restored.stdout
    assert sorted(each.name for each in tmp_path.iterdir()) == ["b.tar", "new"]  # no copies are left
    found = ids(tmp_path / "new")
    assert before <= found <= {*stored, *ids(place / "data")} and len(found) == receipt["documents"]
    assert command("check", "--full", data_dir=tmp_path / "new").returncode == 0
    with served(tmp_path / "new") as again:
        again.wait_ready()
        question = "What does the crane of berth 3 lift?"
        assert again.search(question)["results"][0]["content"] in {sentence(number) for number in range(1000)}


def test_a_backup_that_is_killed_leaves_no_file_of_its_name(server: Served, place: Path, tmp_path: Path) -> None:
    with load(server):
        for number in range(KILLS):
            target = tmp_path / f"{number}.tar"
            process = Program(
                [COMMAND, "backup", str(target), "--data-dir", str(place / "data")],
                env=environment(),
                stderr=subprocess.DEVNULL,
            )
            while process.poll() is None and not any(tmp_path.glob(f".{number}.tar.*")):
                time.sleep(0.001)
            time.sleep(number * 0.01)
            process.send_signal(signal.SIGKILL)
            process.wait()
            if target.exists():  # it was complete by then
                assert command("restore", str(target), data_dir=tmp_path / f"d{number}").returncode == 0
    for number, part in enumerate(tmp_path.glob(".*.part")):
        done = command("restore", str(part), data_dir=tmp_path / f"p{number}")
        assert (done.returncode == 0) == (tmp_path / f"p{number}").exists()  # it was whole, or nothing was made


def _cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def _changed(data: bytes) -> bytes:
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "spoil", [_cut, _changed, lambda data: b"", lambda data: b"no archive" * 200, lambda data: data[:-12_000]]
)
def test_a_file_that_is_not_whole_is_rejected_and_nothing_is_changed(
    whole: Path, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    bad = tmp_path / "bad.tar"
    bad.write_bytes(spoil(whole.read_bytes()))
    failed = command("restore", str(bad), data_dir=tmp_path / "new")
    assert failed.returncode != 0
    assert "no whole backup" in failed.stderr and "Traceback" not in failed.stderr
    assert not (tmp_path / "new").exists()


def test_an_archive_with_other_files_is_rejected(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("x")
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        archive.add(tmp_path / "key", "../../key")
    failed = command("restore", str(tmp_path / "bad.tar"), data_dir=tmp_path / "new")
    assert "it holds '../../key'" in failed.stderr
    assert not (tmp_path / "new").exists()


def test_what_is_there_is_only_set_aside_when_that_is_requested_and_no_process_uses_it(
    server: Served, place: Path, whole: Path, tmp_path: Path
) -> None:
    used = command("restore", str(whole), "--overwrite", data_dir=place / "data")
    assert used.returncode != 0 and "A process uses" in used.stderr
    data = tmp_path / "data"
    assert command("restore", str(whole), data_dir=data).returncode == 0
    assert command("remember", "The lock of the harbour is blue.", data_dir=data).returncode == 0
    before = ids(data)
    rejected = command("restore", str(whole), data_dir=data)
    assert rejected.returncode != 0 and "--overwrite" in rejected.stderr
    assert ids(data) == before
    done = command("restore", str(whole), "--overwrite", "--json", data_dir=data)
    assert done.returncode == 0, done.stderr
    aside = Path(json.loads(done.stdout)["setAside"])
    assert ids(data) < before
    (tmp_path / "old").mkdir()
    for each in aside.iterdir():
        each.replace(tmp_path / "old" / each.name)
    assert ids(tmp_path / "old") == before


def test_keys_are_in_a_backup_only_if_requested(server: Served, place: Path, tmp_path: Path) -> None:
    configuration = tmp_path / "rag-context.toml"
    configuration.write_text("[server]\nport = 8123\n")
    options = ("--config", str(configuration))
    for name, more in (("without", ()), ("with", ("--with-configuration",))):
        made = command("backup", str(tmp_path / name), *options, *more, data_dir=place / "data")
        assert made.returncode == 0, made.stderr
    with tarfile.open(tmp_path / "without") as without, tarfile.open(tmp_path / "with") as whole:
        assert set(whole.getnames()) - set(without.getnames()) == {"rag-context.toml"}


def test_documents_elsewhere_and_a_missing_index_are_named(tmp_path: Path) -> None:
    nowhere = command("backup", str(tmp_path / "b.tar"), data_dir=tmp_path / "none")
    assert nowhere.returncode == 78 and "There is no index" in nowhere.stderr
    elsewhere = command(
        "backup", str(tmp_path / "b.tar"), data_dir=tmp_path / "none", DATABASE_URL="postgresql://localhost:1/x"
    )
    assert elsewhere.returncode == 78 and "pg_dump" in elsewhere.stderr
    assert list(tmp_path.iterdir()) == []
