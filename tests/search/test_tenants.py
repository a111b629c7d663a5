"""The shipped stores in memory answer each tenant as if it were alone, as every store does."""

from dataclasses import dataclass, field

import pytest

from rag_context.testing import MemoryStore
from rag_context.testing.memory_stores import MemoryTexts, MemoryVectors
from tests.stores import test_tenants
from tests.stores.test_tenants import memory

__all__ = ["memory"]

for _name, _test in vars(test_tenants).items():
    if _name.startswith("test_"):
        globals()[_name] = _test


@dataclass
class Fakes:
    """The ports of one `MemoryStore`."""

    documents: MemoryStore = field(default_factory=MemoryStore)

    @property
    def vectors(self) -> MemoryVectors:
        return self.documents.vectors

    @property
    def texts(self) -> MemoryTexts:
        return self.documents.texts


@pytest.fixture
def store() -> Fakes:
    return Fakes()
