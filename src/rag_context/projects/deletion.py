"""Deletes all documents of a project: selects its tenants, counts their documents, deletes them."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rag_context.domain.documents import Tenant
from rag_context.domain.search import Filter
from rag_context.errors import FieldError, InvalidInputError
from rag_context.ingest.indexer import Indexer
from rag_context.ports.reading import DocumentStore
from rag_context.projects.root import external_tenant

TOGETHER = 32
"""Documents that are counted or deleted at once; the store commits them together."""

MANY = 10_000


@dataclass(frozen=True, slots=True)
class Deletion:
    """The tenants and numbers of documents that were, or would be, deleted."""

    tenants: tuple[Tenant, ...]
    documents: int
    chunks: int


def matching_tenants(
    tenants: Collection[Tenant], project: str, branch: str | None, path_hash: str | None
) -> tuple[Tenant, ...]:
    """The tenants of a project, with those of its external documents.

    Raises:
        InvalidInputError: the name of the project is empty.
    """
    if not project:
        message = "project_name must not be empty"
        raise InvalidInputError(message, [FieldError("project_name", message)])
    of_project = [each for each in tenants if each.project == project and branch in (None, each.branch)]
    if path_hash is None:
        return tuple(of_project)
    own = [Tenant(project, each.branch, path_hash) for each in of_project]
    return tuple(each for each in of_project if each in own or each in map(external_tenant, own))


async def sized(tenants: Sequence[Tenant], documents: DocumentStore) -> Deletion:
    """Count what a deletion would delete. Raises: BackendError."""
    found = chunks = 0
    for tenant in tenants:
        ids = await documents.matching(Filter(tenant), 1_000_000)
        found += len(ids)
        for start in range(0, len(ids), TOGETHER):
            states = await asyncio.gather(*(documents.stored(id_) for id_ in ids[start : start + TOGETHER]))
            chunks += sum(len(state.chunk_ids) for state in states if state is not None)
    return Deletion(tuple(tenants), found, chunks)


async def delete(tenants: Sequence[Tenant], documents: DocumentStore, indexer: Indexer) -> None:
    """Delete all documents of some tenants. Raises: BackendError (the rest is still stored)."""
    for tenant in tenants:
        while ids := await documents.matching(Filter(tenant), MANY):
            for start in range(0, len(ids), TOGETHER):
                await asyncio.gather(*(indexer.remove(id_) for id_ in ids[start : start + TOGETHER]))
