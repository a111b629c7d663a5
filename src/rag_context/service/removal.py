"""Deleting on request: which documents are meant, in the tenant that was named, and taking them out."""

import asyncio
from collections.abc import Sequence

from rag_context.api.delete import MANY, MAX_DELETED, DeleteRequest
from rag_context.domain.documents import Tenant
from rag_context.domain.search import Filter
from rag_context.errors import FieldError, InvalidInputError
from rag_context.ingest.indexer import Indexer
from rag_context.ports.reading import DocumentStore
from rag_context.service.wording import tenant_of

TOGETHER = 32
"""Documents taken out at once; the store commits them together."""


async def meant(request: DeleteRequest, documents: DocumentStore) -> list[str]:
    """Ids of the documents that a request means, oldest first.

    Raises:
        InvalidInputError: they are many, and nobody confirmed that they shall go.
        BackendError: it cannot be read which they are.
    """
    tenant = tenant_of(request)
    if request.document_id is None:
        where = Filter(tenant, source=request.source, session_id=request.session_id)
        ids = await documents.matching(where, MAX_DELETED)
        if not (request.dry_run or request.confirm):
            await _check_few(ids, tenant, documents)
        return ids
    document = await documents.get(request.document_id)
    return [document.id] if document is not None and document.tenant == tenant else []


async def _check_few(ids: Sequence[str], tenant: Tenant, documents: DocumentStore) -> None:
    """A session or a source may hold far more than whoever names it has in mind. One document is always meant."""
    if len(ids) <= 1:
        return
    share = ""
    if len(ids) <= MANY:
        twice = 2 * len(ids)
        if len(everything := await documents.matching(Filter(tenant), twice)) >= twice:
            return
        share = f" of {len(everything)}"
    message = (
        f"This would delete {len(ids)}{share} documents: send confirm true to delete them, or dryRun true to see "
        "which they are"
    )
    raise InvalidInputError(message, [FieldError("confirm", message)])


async def remove(ids: Sequence[str], indexer: Indexer) -> list[str]:
    """Take documents out; returns those that were still there. Raises: BackendError (the rest is still there)."""
    removed: list[str] = []
    for start in range(0, len(ids), TOGETHER):
        part = ids[start : start + TOGETHER]
        were_there = await asyncio.gather(*(indexer.remove(id_) for id_ in part))
        removed.extend(id_ for id_, was_there in zip(part, were_there, strict=True) if was_there)
    return removed
