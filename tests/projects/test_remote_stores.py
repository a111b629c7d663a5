"""Project documents on Qdrant and MongoDB, from activation to an answer, and the same on the embedded store."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from rag_context.api.handlers import CallContext
from rag_context.api.project_queries import RagQueryRequest, RagQueryResponse, SemanticSearchRequest
from rag_context.api.projects import (
    ActivateProjectRequest,
    ActivateProjectResponse,
    DeleteDocumentsRequest,
    UpdatePromotionLevelRequest,
)
from rag_context.domain.callers import CallerId
from rag_context.projects.project_service import ProjectService
from rag_context.settings import load_settings
from rag_context.wiring.opening import open_service
from tests.projects.sync_harness import configure, write
from tests.servers.mongodb_fixtures import database, kept, server
from tests.servers.qdrant import running

__all__ = ["database", "kept", "server"]


SLOW = {"RAG_CONTEXT_SEARCH__DEADLINE_MS": "10000"}


@asynccontextmanager
async def opened(data_dir: Path, environ: Mapping[str, str]) -> AsyncIterator[ProjectService]:
    loaded = load_settings(flags={"data_dir": data_dir}, environ={**SLOW, **environ}, cwd=data_dir)
    async with open_service(loaded.settings) as service:
        assert await service.wait_ready(60)
        assert service.projects is not None
        yield service.projects


ME = CallContext("r", caller=CallerId("one"))


async def visited(projects: ProjectService, config: Path) -> tuple[ActivateProjectResponse, RagQueryResponse]:
    """Everything once: activate, ask, promote, filter, ask again, delete."""
    activated = await projects.activate(ActivateProjectRequest(config_path=str(config)), ME)
    promotion = UpdatePromotionLevelRequest(document_path="tools/driver.md", promotion_level="important")
    await projects.update_promotion_level(promotion, ME)
    important = SemanticSearchRequest(query="database", min_relevance_score=0.0, promotion_levels=["important"])
    found = await projects.questions.search(important, ME)
    assert [result.path for result in found.results] == ["tools/driver.md"]
    question = RagQueryRequest(query="Why do database connections run out?", doc_types=["problem"])
    answer = await projects.questions.query(question, ME)
    deleted = await projects.delete_documents(DeleteDocumentsRequest(project_name="shop"), ME)
    assert (deleted.deleted_count, deleted.status) == (4, "deleted")
    return activated, answer


def project(root: Path) -> Path:
    write(root / "docs/problems/pool.md", "# Pool\n\nDatabase connections run out. See [it](../tools/driver.md).\n")
    write(root / "docs/problems/old.md", "# Old\n\nDatabase connections ran out.\n")
    write(root / "docs/problems/new.md", "---\nsupersedes: old.md\n---\n# New\n\nDatabase connections leak.\n")
    write(root / "docs/tools/driver.md", "# Driver\n\nThe driver of the database.\n")
    return configure(root)


async def test_servers_and_the_embedded_store_answer_alike(tmp_path: Path, database: str) -> None:
    with running() as qdrant:
        environ = {"QDRANT_URL": qdrant.url, "MONGODB_URI": database}
        async with opened(tmp_path, environ) as projects:
            on_servers = await visited(projects, project(tmp_path / "one"))
    async with opened(tmp_path, {}) as projects:
        embedded = await visited(projects, project(tmp_path / "two"))
    for activated, answer in (on_servers, embedded):
        assert activated.total_docs == 4
        assert (answer.fallback_level, answer.warnings) == (1, [])
        assert {source.path for source in answer.sources} == {"problems/pool.md", "problems/new.md"}
        assert [(link.path, link.linked_from) for link in answer.linked_docs] == [
            ("tools/driver.md", "problems/pool.md")
        ]
    assert on_servers[1].context == embedded[1].context
