"""Collections go out with an export and come in on every provider, once; what is not valid changes nothing."""

import json
from typing import Any

import numpy as np
import pytest

from rag_context.domain.clauses import EVERYTHING
from rag_context.errors import InvalidInputError
from rag_context.ports.provider import Collection, Entry, Provider
from rag_context.transfer.beside_documents import BesideDocuments
from tests.collections.memory_collections import MemoryCollections
from tests.collections.test_copying import SAID, contents, filled, vectors


def beside(provider: Provider, *names: str) -> BesideDocuments:
    async def opened() -> Provider:
        return provider

    return BesideDocuments(opened, names=names)


async def lines_of(provider: Provider, *names: str) -> list[bytes]:
    return [line async for line in beside(provider, *names).lines()]


async def taken(provider: Provider, lines: list[bytes], *, overwrite: bool = False) -> int:
    into = beside(provider)
    for line in lines:
        await into.take_collection(line, overwrite=overwrite)
    return into.entries


async def test_what_goes_out_comes_in_on_every_provider(provider: Provider) -> None:
    source, back = await filled(1200), MemoryCollections()
    lines = await lines_of(source, "a")
    assert (len(lines), await taken(provider, lines)) == (3, 1200)
    assert await taken(provider, lines) == 0
    assert await taken(back, await lines_of(provider, "a")) == 1200
    assert repr(await contents(back, "a")) == repr(await contents(source, "a"))
    wanted = await source.vectors("a", [f"id {number}" for number in range(1200)])
    found = await back.vectors("a", list(wanted))
    assert found.keys() == wanted.keys()
    assert all(np.allclose(found[id_], wanted[id_], atol=1e-6) for id_ in wanted)
    described = await back.collection("a")
    assert described is not None
    assert (described.metadata, described.embedding_provider, described.embedding_model) == (
        SAID,
        "somewhere",
        "some-model",
    )


async def test_an_empty_collection_and_one_that_is_gone_meanwhile() -> None:
    source, target = await filled(0), MemoryCollections()
    assert await taken(target, await lines_of(source, "a", "gone")) == 0
    assert [each.name for each in await target.collections()] == ["a"]


async def test_what_is_there_stays_unless_it_is_to_be_overwritten() -> None:
    source, target = await filled(3), await filled(2)
    await target.upsert("a", [Entry("id 0", "newer", {})], vectors(1))
    lines = await lines_of(source, "a")
    assert await taken(target, lines) == 1
    assert (await contents(target, "a"))["id 0"].text == "newer"
    assert await taken(target, lines, overwrite=True) == 3
    assert (await contents(target, "a"))["id 0"].text == "text 0 é"


@pytest.mark.parametrize(
    "change",
    [{"vectors": "AAAA"}, {"vectors": "?"}, {"dimension": 7}, {"documents": [{}]}, {"embeddingModel": "another"}],
)
async def test_what_is_not_valid_or_not_the_same_collection_changes_nothing(change: dict[str, Any]) -> None:
    source, target = await filled(3), MemoryCollections()
    await target.create(Collection("a", {}, "somewhere", "some-model"))
    (line,) = await lines_of(source, "a")
    with pytest.raises(InvalidInputError):
        await taken(target, [json.dumps({**json.loads(line), **change}).encode()])
    assert (await target.entries("a", EVERYTHING, limit=9)).total == 0
