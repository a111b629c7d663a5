"""A call is repeated when its answer is lost: what the first attempt did is no fault of the second."""

from datetime import UTC, datetime

import numpy as np
import pytest

from rag_context.collections.collections import Collections
from rag_context.collections.provider_connections import DEFAULT, CollectionRef
from rag_context.errors import BackendUnavailableError, ConflictError, NotFoundError
from rag_context.ports.provider import Collection, Entry
from tests.collections.memory_collections import MemoryCollections

from .services import connections_to

NAME = "notes"
LOST = BackendUnavailableError("qdrant", "the connection was reset")


class Forgetful(MemoryCollections):
    """Loses the next answer: of a call that was done, or of one that never arrived."""

    def __init__(self, *, is_done: bool) -> None:
        super().__init__()
        self.is_done = is_done
        self.loses = False

    async def create(self, collection: Collection) -> bool:
        self._arrive(is_late=False)
        made = await super().create(collection)
        self._arrive(is_late=True)
        return made

    async def drop(self, name: str) -> None:
        self._arrive(is_late=False)
        await super().drop(name)
        self._arrive(is_late=True)

    async def empty(self, name: str) -> int:
        self._arrive(is_late=False)
        gone = await super().empty(name)
        self._arrive(is_late=True)
        return gone

    def _arrive(self, *, is_late: bool) -> None:
        if self.loses and is_late is self.is_done:
            self.loses = False
            raise LOST


def over(provider: MemoryCollections) -> Collections:
    return Collections(connections_to({DEFAULT: provider}))


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_collection_whose_making_was_not_answered_is_made(*, is_done: bool) -> None:
    provider = Forgetful(is_done=is_done)
    provider.loses = True
    made = await over(provider).create(Collection(NAME, {"a": 1}), DEFAULT)
    assert (made.name, made.metadata) == (NAME, {"a": 1})


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_name_in_use_stays_in_use_when_a_response_is_lost(*, is_done: bool) -> None:
    provider = Forgetful(is_done=is_done)
    await provider.create(Collection(NAME, {"a": 1}, created=datetime(2020, 1, 1, tzinfo=UTC)))
    provider.loses = True
    with pytest.raises(ConflictError):
        await over(provider).create(Collection(NAME, {"a": 1}), DEFAULT)


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_collection_whose_removal_was_not_answered_is_removed(*, is_done: bool) -> None:
    provider = Forgetful(is_done=is_done)
    await provider.create(Collection(NAME))
    provider.loses = True
    await over(provider).drop(CollectionRef(NAME))
    assert await provider.collections() == []


async def test_what_was_never_there_is_not_removed_though_an_answer_is_lost() -> None:
    provider = Forgetful(is_done=False)
    provider.loses = True
    with pytest.raises(NotFoundError, match="Collection 'notes' not found"):
        await over(provider).drop(CollectionRef(NAME))


@pytest.mark.parametrize("is_done", [True, False])
async def test_documents_that_are_gone_are_counted_though_an_answer_is_lost(*, is_done: bool) -> None:
    provider = Forgetful(is_done=is_done)
    await provider.create(Collection(NAME))
    await provider.upsert(NAME, [Entry("a", "one"), Entry("b", "two")], np.eye(2, dtype=np.float32))
    provider.loses = True
    assert await over(provider).empty(CollectionRef(NAME)) == 2
    assert await over(provider).empty(CollectionRef(NAME)) == 0
