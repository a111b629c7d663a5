"""Files as earlier versions wrote them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from rag_context.domain.text import ANALYSER_VERSION
from rag_context.stores.sqlite import migration


@contextmanager
def older_file(path: Path, version: int) -> Iterator[sqlite3.Connection]:
    """A new file in the form of the first `version` migrations, to fill in the block."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        for script in migration._migrations()[:version]:
            for statement in migration._statements(script):
                connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES ('analyser', ?)", (str(ANALYSER_VERSION),))
        connection.execute(f"PRAGMA application_id = {migration.APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {version}")
        yield connection
