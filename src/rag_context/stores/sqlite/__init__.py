"""The embedded store: documents, chunks, vectors, text index and metrics in one SQLite file.

`async with open_database(path) as store:` gives `store.documents`, `store.vectors`, `store.texts` and
`store.metrics`, each of which fits its port. Several processes may hold the same file open.
"""

from rag_context.stores.sqlite.store import FILE_NAME, SqliteStore, open_auditor, open_database

__all__ = ["FILE_NAME", "SqliteStore", "open_auditor", "open_database"]
