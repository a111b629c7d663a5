"""What lies in a data directory, for commands that look at it without opening the index."""

from pathlib import Path

from rag_context.stores.machine_tables import open_file_manifest, open_history_manifest
from rag_context.stores.sqlite.embedded import FILE_NAME
from rag_context.stores.sqlite.mark import IndexMark, IndexSize
from rag_context.stores.sqlite.migration import file_problem, sqlite_version

__all__ = ["file_problem", "index_path", "lost_index", "open_file_manifest", "open_history_manifest", "sqlite_version"]


def index_path(data_dir: Path) -> Path:
    return data_dir / FILE_NAME


def lost_index(path: Path) -> IndexSize | None:
    """What the index in this file held when it was last written; None if nothing is known."""
    return IndexMark(path.with_name(f"{path.name}.json")).last_size()
