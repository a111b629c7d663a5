"""PostgreSQL with pgvector: documents, chunks, vectors, keyword index and metrics in one database.

Any number of servers share it. A write is one transaction, so nothing is ever stored in part.
"""

from rag_context.stores.postgres.store import PostgresStore, open_postgres

__all__ = ["PostgresStore", "open_postgres"]
