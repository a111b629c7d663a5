"""Chroma as a vector store: `open_chroma` connects to a server, or keeps one in this process over a folder.

It gives one object that fits both `ports.VectorStore` and `ports.VectorWriter`. Only a folder needs Chroma's library,
which is imported then.
"""

from rag_context.stores.chroma.chroma_vectors import ChromaVectors, open_chroma

__all__ = ["ChromaVectors", "open_chroma"]
