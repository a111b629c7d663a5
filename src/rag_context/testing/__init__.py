"""Fakes for our tests and for those of programs that use this package. Not for production."""

from rag_context.testing.fakes import FakeEmbedder, FakeReranker, Fault, Faulty, FrozenClock, MemoryCache, WordTokenizer

__all__ = ["FakeEmbedder", "FakeReranker", "Fault", "Faulty", "FrozenClock", "MemoryCache", "WordTokenizer"]
