"""The embedded store: documents, chunks, vectors, text index and metrics in one SQLite file.

`async with open_database(path) as store:` gives `store.documents`, `store.vectors`, `store.texts` and
`store.metrics`, each of which fits its port. Several processes may use the same file. `open_documents` and
`start_vectors` open a file that is one of two stores.
"""

from rag_context.stores.sqlite.embedded import (
    FILE_NAME,
    VECTORS_FILE_NAME,
    SqliteDocumentBackend,
    SqliteStore,
    begin_empty,
    open_auditor,
    open_database,
    open_documents,
    require_index,
    start_vectors,
    stored_names,
)

__all__ = [
    "FILE_NAME",
    "VECTORS_FILE_NAME",
    "SqliteDocumentBackend",
    "SqliteStore",
    "begin_empty",
    "open_auditor",
    "open_database",
    "open_documents",
    "require_index",
    "start_vectors",
    "stored_names",
]
