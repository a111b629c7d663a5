"""Hooks of agents over the memory of this process: what answers them, and where what they name is taken in."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from rag_context.agents import answering, gate, histories, sessions
from rag_context.agents.digests import Digests
from rag_context.agents.workspace import Workspace
from rag_context.api.index import BulkLine, BulkReceipt, VersionsRequest
from rag_context.api.operations.memory import DELETE
from rag_context.api.stored_documents import DeleteRequest
from rag_context.domain.journal import Cause
from rag_context.errors import BackendError
from rag_context.files.sending import VersionOrder, sliced
from rag_context.files.target import OnReceipt, listed_below
from rag_context.memory import accesses
from rag_context.ports.writing import InjectionLog
from rag_context.references.repositories import Cited, Repositories

if TYPE_CHECKING:
    from rag_context.memory.service import Dependencies, Service

CAPTURED_AT_ONCE = 1
"""Slices of a session's documents that are indexed at once, beside the searches of the agent."""


@dataclass(frozen=True, slots=True)
class HookDependencies:
    log: InjectionLog
    digests: Digests
    budgets: sessions.Budgets
    capture: histories.Capture
    is_enabled: bool = True
    silent_projects: Collection[str] = ()


def hook_answers(
    service: "Service", parts: HookDependencies, dependencies: "Dependencies", now: Callable[[], datetime]
) -> answering.HookAnswers:
    target = LocalTarget(service, CAPTURED_AT_ONCE)
    repositories = dependencies.repositories

    def begin(project: Workspace) -> None:
        parts.digests.touch(project.tag)
        service.work_on(project)

    async def annotate(passages: Sequence[gate.Shown], project: Workspace) -> Sequence[gate.Shown]:
        return passages if repositories is None else await _annotated(repositories, passages, project)

    def capture(call: answering.Call, project: Workspace) -> None:
        if call.transcript is not None:
            parts.capture.begin(target, call.transcript, call.client, str(project.root))

    return answering.HookAnswers(
        gate.Gate(service.rank, service.tokenizer),
        sessions.Sessions(parts.log, parts.budgets),
        service.tokenizer,
        dependencies.redactor.text,
        is_enabled=parts.is_enabled,
        silent_projects=parts.silent_projects,
        on_project=begin,
        annotate=annotate,
        capture=capture,
        now=now,
    )


async def _annotated(
    repositories: Repositories, passages: Sequence[gate.Shown], project: Workspace
) -> Sequence[gate.Shown]:
    # What is shown of a unit is either of this project, or of none.
    cited = [Cited(each.text, each.occurred_at.timestamp(), (project.tag,)) for each in passages]
    checked = await repositories.check(cited, None) if cited else None
    if checked is None:
        return passages
    return [
        replace(each, note="; ".join(filter(None, (reference.sentence() for reference in found))))
        for each, found in zip(passages, checked.references, strict=True)
    ]


if TYPE_CHECKING:
    from rag_context.memory.service import Service


class LocalTarget:
    def __init__(self, service: "Service", concurrency: int) -> None:
        self._service = service
        self._turn = asyncio.Semaphore(concurrency)
        self._order = VersionOrder()

    async def bulk(self, lines: Sequence[BulkLine], on_receipt: OnReceipt) -> None:
        """Index here, a slice at a time and a few slices at once; those of one source one after the other."""
        async with asyncio.TaskGroup() as group:
            for start, part in sliced(lines):
                await self._turn.acquire()
                task = group.create_task(self._keep(start, part, on_receipt, self._order.earlier(part)))
                self._order.begin(task, part)

    async def _keep(
        self, start: int, lines: Sequence[BulkLine], on_receipt: OnReceipt, earlier: set[asyncio.Future[None]]
    ) -> None:
        try:
            if earlier:
                await asyncio.wait(earlier)
            with accesses.recording("bulk", client=Cause.now().by):
                receipts = await self._service.bulk_all(lines, request_id=new_request_id())
        finally:
            self._turn.release()
        for place, receipt in enumerate(receipts):
            if isinstance(receipt, BackendError):
                source = lines[place].source
                receipt = BulkReceipt(status="rejected", source=source, reason=str(receipt), retryable=True)
            elif isinstance(receipt, Exception):
                raise receipt
            on_receipt(start + place, receipt)

    async def missing(self, versions: Mapping[str, str]) -> Collection[str]:
        return (await self._service.missing(VersionsRequest(versions=dict(versions)))).missing

    async def remove(self, document_id: str) -> None:
        with accesses.recording(DELETE.name, client=Cause.now().by, target=[document_id]):
            await self._service.delete(DeleteRequest(document_id=document_id))

    def sources(self, prefix: str) -> AsyncIterator[tuple[str, str]]:
        return listed_below(prefix, self._service.listing)


def new_request_id() -> str:
    return os.urandom(12).hex()
