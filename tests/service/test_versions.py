"""Which documents are still stored unchanged, queried in bulk (C-3)."""

from rag_context.api.index import BulkLine
from rag_context.api.wire import VersionsRequest
from rag_context.service.service import Service

from .harness import ServiceHarness


async def missing(service: Service, **versions: str) -> list[str]:
    return (await service.missing(VersionsRequest(versions=versions))).missing


async def test_a_receipt_names_the_version_until_it_is_replaced_or_deleted(harness: ServiceHarness) -> None:
    async def keep(content: str) -> tuple[str, str]:
        line = BulkLine(content=content, content_type="code", session_id="s", source="a.py", from_file=True)
        receipt = await harness.service.bulk(line, request_id="r")
        assert receipt.document_id is not None
        assert receipt.content_hash is not None
        return receipt.document_id, receipt.content_hash

    id_, first = await keep("x = 1")
    assert await missing(harness.service, **{id_: first}) == []
    assert await keep("x = 1") == (id_, first), "also where nothing changed"

    _, second = await keep("x = 2")
    assert await missing(harness.service, **{id_: first}) == [id_]
    assert await missing(harness.service, **{id_: second, "unknown": second}) == ["unknown"]

    await harness.indexer.remove(id_)
    assert await missing(harness.service, **{id_: second}) == [id_]
