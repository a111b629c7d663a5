"""Project documents over the service's own parts: what follows files, what retrieves, and what writes answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from rag_context.errors import ConfigurationError
from rag_context.ports.models import ChatModel
from rag_context.projects.activation import Projects
from rag_context.projects.housekeeping import Rules
from rag_context.projects.rendering import Renderer
from rag_context.projects.retrieval import Works
from rag_context.search.chain import SearchChain
from rag_context.service.projects import ProjectParts
from rag_context.service.service import Parts
from rag_context.settings import Settings
from rag_context.settings.models import ChatSettings
from rag_context.stores.project_registry import SqliteProjectRegistry

SEARCH_SHARE = 0.8
"""Share of a search's deadline in which a project's search answers; the rest is for reading whole documents."""


@asynccontextmanager
async def open_projects(parts: Parts, settings: Settings) -> AsyncIterator[ProjectParts]:
    """What the use cases of project documents are made of.

    Raises:
        ConfigurationError: the chat model cannot be used as it is configured.
    """
    deadline_s = settings.search.deadline_ms / 1000.0
    sources = parts.sources
    chain = SearchChain(sources, parts.chain.breaker, deadline_s=SEARCH_SHARE * deadline_s)
    registry = SqliteProjectRegistry(settings.data_dir)
    projects = Projects(parts.indexer, sources.documents, registry=registry, max_bytes=settings.indexing.max_file_bytes)
    works = Works(
        ask=chain.search,
        documents=sources.documents,
        document_store=sources.document_store,
        catalogues=projects.catalogues,
        renderer=Renderer(parts.embedder.tokenizer),
        model=lambda: parts.embedder.model,
        deadline_s=deadline_s,
    )
    async with _open_chat(settings.chat) as chat:
        try:
            yield ProjectParts(projects, works, chat, _rules(settings))
        finally:
            await projects.aclose()
            registry.close()


def _rules(settings: Settings) -> Rules:
    """A data directory is this machine's alone; a document store on a server may hold other machines' projects."""
    return Rules(
        follow=settings.projects.follow,
        grace=timedelta(days=settings.projects.forget_after_days),
        adopts=settings.stores.documents == "embedded",
    )


@asynccontextmanager
async def _open_chat(chosen: ChatSettings) -> AsyncIterator[ChatModel | None]:
    """The configured chat model; None where none is."""
    if chosen.url is None:
        yield None
        return
    if chosen.model is None:
        raise ConfigurationError("chat.url is set, but no model: set chat.model to one that the chat server has.")
    from rag_context.generation.openai_compatible import OpenAIChat  # noqa: PLC0415  (only where chosen)

    key = chosen.api_key.get_secret_value() if chosen.api_key is not None else None
    chat = OpenAIChat(chosen.url, model=chosen.model, api_key=key, timeout_s=chosen.timeout_s)
    try:
        yield chat
    finally:
        await chat.close()
