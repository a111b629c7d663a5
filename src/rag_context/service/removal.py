"""Deleting on request: which documents are meant, in the tenant that was named, and taking them out."""

import asyncio
from collections.abc import Sequence

from rag_context.contract.delete import MAX_DELETED, DeleteRequest
from rag_context.indexing.indexer import Indexer
from rag_context.ports import DocumentStore
from rag_context.service.wording import tenant_of
from rag_context.types import Filter

TOGETHER = 32
"""Documents taken out at once; the store commits them together."""


async def meant(request: DeleteRequest, documents: DocumentStore) -> list[str]:
    """Ids of the documents that a request means, oldest first. Raises: BackendError."""
    tenant = tenant_of(request)
    if request.document_id is None:
        where = Filter(tenant, source=request.source, session_id=request.session_id)
        return await documents.matching(where, MAX_DELETED)
    document = await documents.get(request.document_id)
    return [document.id] if document is not None and document.tenant == tenant else []


async def remove(ids: Sequence[str], indexer: Indexer) -> list[str]:
    """Take documents out; returns those that were still there. Raises: BackendError (the rest is still there)."""
    removed: list[str] = []
    for start in range(0, len(ids), TOGETHER):
        part = ids[start : start + TOGETHER]
        were_there = await asyncio.gather(*(indexer.remove(id_) for id_ in part))
        removed.extend(id_ for id_, was_there in zip(part, were_there, strict=True) if was_there)
    return removed
