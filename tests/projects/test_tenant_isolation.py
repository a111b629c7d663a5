"""Near-duplicates of many tenants in one index: no request of one tenant ever returns another's."""

import asyncio
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from rag_context.domain.documents import (
    DOCUMENTATION,
    Channel,
    Chunk,
    Document,
    DocumentInput,
    Span,
    Tenant,
    chunk_ids,
    content_hash,
    document_id,
)
from rag_context.domain.vectors import Vector
from rag_context.ports.writing import Version
from rag_context.projects.assembly import Renderer
from rag_context.projects.project_documents import DocsFolder, project_input
from rag_context.projects.records import PromotionLevel, RetrievalOptions
from rag_context.projects.retrieval import RetrievalDependencies, RetrievalService
from rag_context.resilience.dependency import Breaker, Dependency, constant_cooldown
from rag_context.search.chain import SearchChain
from rag_context.search.retrievers import Backends
from tests.projects.sync_harness import SyncHarness, built_in, open_sync_harness

SEED = 20260131
WORDS = ["pool", "cache", "index", "retry", "socket", "query", "branch", "tenant", "money", "webhook", "order", "stock"]
TENANTS = [
    Tenant(project, branch, digit * 16)
    for project in ("shop", "shop-2")
    for branch in ("main", "feature")
    for digit in "0f"
]
PER_TENANT = 300
ROOT = Path("/repo/docs")


@dataclass
class ManyTenants:
    """Thousands of documents of many tenants, and what reads them."""

    harness: SyncHarness
    works: RetrievalDependencies

    async def fill(self) -> None:
        """Give every tenant the same documents, but for a word that tells whose they are."""
        draw = random.Random(SEED)
        texts = [" ".join(draw.choices(WORDS, k=8)) for _ in range(PER_TENANT)]
        vectors = await self.harness.embedder.embed_documents(texts)
        for tenant in TENANTS:
            drafts = [self._draft(tenant, number, text) for number, text in enumerate(texts)]
            await asyncio.gather(*(self._write(draft, vector) for draft, vector in zip(drafts, vectors, strict=True)))

    def _draft(self, tenant: Tenant, number: int, text: str) -> DocumentInput:
        level = ("standard", "important", "critical")[0 if number % 40 else number // 40 % 3]
        link = f"[next](doc-{(number + 1) % PER_TENANT}.md)"
        content = f"---\npromotion_level: {level}\n---\n# {text}\n\n{text}, {link} of {mark(tenant)}.\n"
        path = f"doc-{number}.md"
        draft = DocumentInput(content, DOCUMENTATION, "files", f"{ROOT}/{path}", tenant=tenant, channel=Channel.FILE)
        return project_input(draft, path, DocsFolder(tenant, ROOT, built_in())).document

    async def _write(self, draft: DocumentInput, vector: Vector) -> None:
        """Past the indexer, which would cut and look for duplicates one document after the other."""
        id_ = document_id(draft)
        (chunk_id,) = chunk_ids(id_, [("", draft.content)])
        document = Document(
            id=id_,
            tenant=draft.tenant,
            content_type=draft.content_type,
            session_id=draft.session_id,
            source=draft.source,
            title=mark(draft.tenant),
            content=draft.content,
            content_hash=content_hash(draft),
            timestamp=datetime(2026, 1, 1, tzinfo=UTC),
            occurred_at=datetime(2026, 1, 1, tzinfo=UTC),
            metadata=draft.metadata,
        )
        chunk = Chunk(
            chunk_id, id_, 0, draft.content, Span(0, len(draft.content), 1, 6), occurred_at=document.timestamp
        )
        await self.harness.documents.write(Version(document, [chunk], vector[np.newaxis]))


def mark(tenant: Tenant) -> str:
    """A word that only this tenant's documents hold."""
    return f"owner-{TENANTS.index(tenant)}-owner"


@pytest.fixture
async def tenants_index(tmp_path: Path) -> AsyncIterator[ManyTenants]:
    async with open_sync_harness(tmp_path) as harness:
        store = harness.store
        sources = Backends(
            embedder=harness.bound,
            vectors=store.vectors,
            texts=store.texts,
            documents=store.documents,
            embedding=Dependency("embedder", harness.bound.ping),
            vector_store=Dependency("vectors", store.vectors.ping),
            document_store=Dependency("documents", store.documents.ping),
        )
        breaker = Breaker("search", threshold=5, cooldown=constant_cooldown(60.0))
        works = RetrievalDependencies(
            search=SearchChain(sources, breaker, deadline_s=10.0).search,
            documents=sources.document_store.guard(store.documents, 20.0),
            document_lists=sources.document_store.guard(harness.document_lists, 20.0),
            renderer=Renderer(harness.embedder.tokenizer),
            model=lambda: harness.embedder.model,
            deadline_s=20.0,
        )
        made = ManyTenants(harness, works)
        await made.fill()
        yield made


async def test_no_question_of_a_tenant_is_answered_with_another_tenants_documents(tenants_index: ManyTenants) -> None:
    draw = random.Random(SEED)
    for _ in range(6):
        for tenant in TENANTS:
            other = draw.choice([each for each in TENANTS if each != tenant])
            words = f"{' '.join(draw.choices(WORDS, k=3))} {mark(other)}"
            question: str | Vector = (
                words if draw.random() < 0.5 else await tenants_index.harness.embedder.embed_query(words)
            )
            options = RetrievalOptions(
                min_relevance_score=0.0,
                max_results=draw.choice([1, 20]),
                max_linked_docs=50,
                max_link_depth=3,
                min_promotion_level=draw.choice(list(PromotionLevel)),
            )
            context = await RetrievalService(tenants_index.works, tenant).assemble_context(question, options)
            found = list(context.documents)
            assert found
            assert all(f"of {mark(tenant)}." in document.content for document in found)
            assert set(re.findall(r"owner-\d-owner", context.formatted_context)) == {mark(tenant)}
