"""Qdrant as a vector store, over HTTP or gRPC.

`async with open_qdrant(url, CollectionPlan("name")) as vectors:` gives one object that fits both `ports.VectorStore`
and `ports.VectorWriter`. Importing this package imports the client library, which takes about a second.
"""

from rag_context.stores.qdrant.qdrant_api import Transport
from rag_context.stores.qdrant.qdrant_vectors import QdrantVectors, open_qdrant
from rag_context.stores.qdrant.vector_collection import CollectionPlan, Quantization

__all__ = ["CollectionPlan", "QdrantVectors", "Quantization", "Transport", "open_qdrant"]
