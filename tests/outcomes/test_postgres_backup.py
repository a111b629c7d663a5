"""An index in PostgreSQL comes back from its own tools, taken while a server writes."""

import subprocess
import threading
from pathlib import Path

from tests.end_to_end.process import command, served
from tests.servers.postgres import PASSWORD, binaries, postgres_database
from tests.servers.postgres_fixtures import empty, server

__all__ = ["empty", "server"]


def test_a_dump_under_load_comes_back_sound_in_another_database(empty: str, tmp_path: Path) -> None:
    dump, variables = tmp_path / "memory.dump", {"PGPASSWORD": PASSWORD}
    is_over, stored = threading.Event(), list[str]()
    with served(tmp_path / "data", DATABASE_URL=empty) as running:
        running.wait_ready()
        running.index("The crane of berth 3 lifts ten tons.", source="crane")

        def store() -> None:
            while not is_over.is_set():
                stored.append(
                    running.index(f"Berth {len(stored)} is free.", source=f"berth-{len(stored)}")["documentId"]
                )

        thread = threading.Thread(target=store)
        thread.start()
        try:
            run("pg_dump", "--format=custom", f"--file={dump}", f"--dbname={empty}", **variables)
        finally:
            is_over.set()
            thread.join()
    with postgres_database(empty) as other:
        run("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={other}", str(dump), **variables)
        checked = command("check", "--full", data_dir=tmp_path / "other", DATABASE_URL=other)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        with served(tmp_path / "other", DATABASE_URL=other) as again:
            again.wait_ready()
            assert again.search("What does the crane of berth 3 lift?")["results"][0]["source"] == "crane"


def run(program: str, *arguments: str, **variables: str) -> None:
    done = subprocess.run(
        [binaries() / program, *arguments], capture_output=True, text=True, env=variables, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
