"""MongoDB as document store, text index, metrics store, model registry and auditor; vectors are kept elsewhere.

A document is one record, which names the write whose chunks are its own, so that a write is atomic on a lone server
too. Each of its chunks is a record. The state of the index (counters, version, model) is a record beside them.
"""

from rag_context.stores.mongodb.mongo_store import MongoStore, open_mongodb

__all__ = ["MongoStore", "open_mongodb"]
