"""Collections in the embedded store's file: the provider that needs nothing but a data directory.

Texts, metadata and vectors are rows of the file; the data for filters and searches is cached in memory and follows
the file by sequence number, so that several processes share it.
"""

from rag_context.stores.sqlite.collections.provider import SqliteCollections, open_collections

__all__ = ["SqliteCollections", "open_collections"]
