"""MongoDB as document store, text index, metrics store, model registry and auditor; vectors are kept elsewhere.

A document is one record, and each of its chunks is one. The document's record names the write whose chunks are its
own, so that a write is atomic on a lone server too. The state of the index (counters, version, model) is a record
of its own, beside it.
"""

from rag_context.stores.mongodb.mongo_store import MongoStore, open_mongodb

__all__ = ["MongoStore", "open_mongodb"]
