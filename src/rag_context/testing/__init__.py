"""Fakes for our tests and for those of programs that use this package. Not for production."""

from rag_context.testing.cache import MemoryCache
from rag_context.testing.clock import FrozenClock
from rag_context.testing.embedder import FakeEmbedder, WordTokenizer
from rag_context.testing.faults import Fault, Faulty
from rag_context.testing.memory import MemoryStore

__all__ = ["FakeEmbedder", "Fault", "Faulty", "FrozenClock", "MemoryCache", "MemoryStore", "WordTokenizer"]
