"""Qdrant as a vector store, over HTTP or gRPC.

`async with open_qdrant(url, CollectionPlan("name")) as vectors:` gives one object that fits both `ports.VectorStore`
and `ports.VectorWriter`. Importing this package imports the client library, which takes about a second.
"""

from rag_context.stores.qdrant.qdrant_api import Transport
from rag_context.stores.qdrant.qdrant_vectors import CollectionPlan, QdrantVectors, Quantization, open_qdrant

__all__ = ["CollectionPlan", "QdrantVectors", "Quantization", "Transport", "open_qdrant"]
