"""The version before, from Git's history, and a wall clock that can be moved, from a few lines of C."""

import io
import shutil
import struct
import subprocess
import sys
import tarfile
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.end_to_end.process import environment

ROOT = Path(__file__).parents[2]
SCHEMAS = tuple(f"src/rag_context/stores/{store}/migrations" for store in ("sqlite", "postgres"))


def older_source() -> tuple[str, Path] | None:
    """The last commit before the newest change of a schema, and the folder of its packages; None without a history.

    They are kept, compiled, beside the packages of the environment.
    """
    added = _git("log", "--diff-filter=A", "-1", "--format=%h", "--", *SCHEMAS)
    if not added or not (commit := _git("rev-parse", "--short", f"{added}^")):
        return None
    kept = Path(sys.prefix) / "older" / commit
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=kept.parent) as folder:
            archive = subprocess.run(
                ["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True
            ).stdout
            with tarfile.open(fileobj=io.BytesIO(archive)) as files:
                files.extractall(folder, filter="data")
            compiled = environment(PYTHONDONTWRITEBYTECODE="")
            subprocess.run([sys.executable, "-m", "compileall", "-q", folder], env=compiled, check=False)
            with suppress(OSError):  # another run was faster
                Path(folder, "src").rename(kept)
    return commit, kept


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


class Clock:
    """The wall clock of the processes that are started with its `environment`; nothing else's."""

    def __init__(self, folder: Path) -> None:
        self._file, library = folder / "clock", folder / "clock.so"
        self.set(0)
        self.environment: dict[str, str] = {}
        if compiler := shutil.which("cc"):
            source, place = str(Path(__file__).with_name("clock.c")), f'-DCLOCK_FILE="{self._file}"'
            words = [compiler, "-shared", "-fPIC", "-O2", place, source, "-o", str(library), "-ldl"]
            subprocess.run(words, check=True, capture_output=True)
            self.environment["LD_PRELOAD"] = str(library)

    def set(self, offset_s: int) -> None:
        """Move it, at once, in processes that run."""
        if not self._file.exists():
            self._file.write_bytes(bytes(8))
        with self._file.open("r+b") as file:  # in place: processes have mapped it
            file.write(struct.pack("@l", offset_s))
