"""A table in a small database of this machine beside the index: paths mean something on this machine only.

It is created again if it is damaged or of another version, and lives in memory where it cannot be opened.
"""

import logging
import sqlite3
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MachineTable:
    """A table, and how it is opened.

    Args:
        name: its name.
        columns: its columns, as they are selected and inserted.
        schema: the statements that make it.
        version: of the schema; a table of another version is made again, empty.
        timeout_s: how long a call waits for another process.
        when_lost: logged where a damaged one is replaced; "" says nothing.
    """

    name: str
    columns: str
    schema: tuple[str, ...]
    version: int
    timeout_s: float
    when_lost: str = ""

    @property
    def insert(self) -> str:
        """The statement that puts a row in place of an earlier one of its key."""
        marks = ", ".join("?" * len(self.columns.split()))
        return f"INSERT OR REPLACE INTO {self.name} ({self.columns}) VALUES ({marks})"  # noqa: S608

    def open(self, path: Path) -> sqlite3.Connection:
        """Open the file, which is made, or made again, if it has to be. Raises: sqlite3.Error, OSError."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return self._prepared(path)
        except sqlite3.OperationalError:  # locked, or no space: deleting the file would not help
            raise
        except sqlite3.DatabaseError:
            if self.when_lost:
                logger.warning("%s", self.when_lost)
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            return self._prepared(path)

    def in_memory(self) -> sqlite3.Connection:
        """An empty one, for as long as the process lives."""
        return self._prepared(":memory:")

    def _prepared(self, path: Path | str) -> sqlite3.Connection:
        connection = sqlite3.connect(path, timeout=self.timeout_s, check_same_thread=False)
        try:
            connection.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE;")
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version != self.version:
                connection.execute(f"DROP TABLE IF EXISTS {self.name}")
                for statement in self.schema:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {self.version}")
            connection.commit()
            # A file may be damaged behind a sound header: only reading a row's columns shows it.
            connection.execute(f"SELECT {self.columns} FROM {self.name} LIMIT 1").fetchone()  # noqa: S608
        except sqlite3.Error:
            connection.close()
            raise
        return connection
