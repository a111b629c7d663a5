"""A whole service with project documents, over memory and a fake embedder, and its HTTP API without a socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from rag_context.api.operations import Access
from rag_context.client.parameters import activation_of, in_project
from rag_context.memory.service import Service
from rag_context.ports.models import ChatModel
from rag_context.projects.activation import Projects
from rag_context.projects.assembly import Renderer
from rag_context.projects.project_service import ProjectDependencies
from rag_context.projects.retrieval import RetrievalDependencies
from rag_context.server.app import create_app
from rag_context.server.options import HashedKey, ServerOptions, hash_key
from tests.collections.services import memory_service
from tests.memory.harness import ServiceHarness

KEYS = tuple(
    HashedKey.parse(name, hash_key(name), access)
    for name, access in (("alice", Access.WRITE), ("bob", Access.WRITE), ("reader", Access.READ))
)
"""Three callers; each one's key is its name."""


@dataclass
class HttpHarness:
    """The service, what it is made of, and a client of its HTTP API."""

    service_harness: ServiceHarness
    projects: Projects
    service: Service
    client: httpx2.AsyncClient
    activation: str | None = None
    """Handle of a caller without a key; passed on to every tool that takes it."""

    async def call(self, tool: str, /, *, key: str | None = None, status: int = 200, **fields: Any) -> Any:
        """Run a tool over HTTP."""
        headers = {"X-API-Key": key} if key is not None else {}
        arguments = in_project(tool, fields, self.activation) if key is None else fields
        reply = await self.client.post(f"/tools/{tool}", json=arguments, headers=headers)
        assert reply.status_code == status, reply.text
        if key is None:
            self.activation = activation_of(tool, reply.json()) or self.activation
        return reply.json()


@asynccontextmanager
async def open_http_harness(chat: ChatModel | None = None, **options: Any) -> AsyncIterator[HttpHarness]:
    """A harness without any project yet."""
    service_harness = ServiceHarness()
    await service_harness.bound.bind()
    projects = Projects(service_harness.indexer, service_harness.documents.port)
    guard = service_harness.sources.document_store.guard
    works = RetrievalDependencies(
        search=service_harness.service.rank,
        documents=guard(service_harness.documents.port, 30.0),
        document_lists=guard(projects.document_lists, 30.0),
        renderer=Renderer(service_harness.fake.tokenizer),
        model=lambda: service_harness.bound.model,
        deadline_s=2.0,
    )
    parts = replace(
        service_harness.service._dependencies,
        projects=ProjectDependencies(projects, works, chat),
        collections=memory_service(),
    )
    service = Service(parts, now=lambda: service_harness.now)
    transport = httpx2.ASGITransport(create_app(service, ServerOptions(**options)), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        try:
            yield HttpHarness(service_harness, projects, service, client)
        finally:
            await projects.aclose()
