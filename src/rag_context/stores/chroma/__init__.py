"""Chroma as a vector store: `open_chroma_server` connects to a server, `open_chroma_dir` keeps one in this process.

Either gives one object that fits both `ports.VectorStore` and `ports.VectorWriter`. Only the second needs Chroma's
library, which it imports when it is called.
"""

from rag_context.stores.chroma.chroma_vectors import ChromaVectors, open_chroma_dir, open_chroma_server

__all__ = ["ChromaVectors", "open_chroma_dir", "open_chroma_server"]
