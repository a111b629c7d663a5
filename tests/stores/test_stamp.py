"""A stamp names one state of a tenant in one file to every process that opened it."""

from pathlib import Path

from rag_context.domain.documents import DEFAULT_TENANT
from rag_context.stores.sqlite.embedded import FILE_NAME, open_database
from tests.stores.builders import axis, document, put


async def test_two_openings_of_one_file_have_one_stamp(path: Path) -> None:
    async with open_database(path) as one, open_database(path) as other:
        for number in range(3):
            await put(one, document(str(number)), vector=axis(number))
            await one.documents.ping()
            await other.documents.ping()
            states = [await each.documents.tenant_state(DEFAULT_TENANT) for each in (one, other)]
            assert states[0] == states[1]
        last = (await one.documents.tenant_state(DEFAULT_TENANT)).stamp
    async with open_database(path) as again:
        await again.documents.ping()
        assert (await again.documents.tenant_state(DEFAULT_TENANT)).stamp == last


async def test_another_file_has_other_stamps_though_as_much_happened_in_it(tmp_path: Path) -> None:
    stamps = []
    for name in ("a", "b"):
        async with open_database(tmp_path / name / FILE_NAME) as store:
            await put(store, document("same"))
            await store.documents.ping()
            stamps.append((await store.documents.tenant_state(DEFAULT_TENANT)).stamp)
    assert stamps[0] != stamps[1]
