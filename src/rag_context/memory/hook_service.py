"""Hooks of agents over the memory of this process: what answers them, and where what they name is taken in."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from rag_context.agents.answering import HookAnswers
from rag_context.agents.calls import Call
from rag_context.agents.digests import Digests
from rag_context.agents.gate import Gate, Shown
from rag_context.agents.histories import Capture
from rag_context.agents.sessions import Budgets, Sessions
from rag_context.agents.workspace import Workspace
from rag_context.memory.local_target import LocalTarget
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
    budgets: Budgets
    capture: Capture
    is_enabled: bool = True
    silent_projects: Collection[str] = ()


def hook_answers(
    service: "Service", parts: HookDependencies, dependencies: "Dependencies", now: Callable[[], datetime]
) -> HookAnswers:
    target = LocalTarget(service, CAPTURED_AT_ONCE)
    repositories = dependencies.repositories

    def begin(project: Workspace) -> None:
        parts.digests.touch(project.tag)
        service.work_on(project)

    async def annotate(passages: Sequence[Shown], project: Workspace) -> Sequence[Shown]:
        return passages if repositories is None else await _annotated(repositories, passages, project)

    def capture(call: Call, project: Workspace) -> None:
        if call.transcript is not None:
            parts.capture.begin(target, call.transcript, call.client, str(project.root))

    return HookAnswers(
        Gate(service.rank, service.tokenizer),
        Sessions(parts.log, parts.budgets),
        service.tokenizer,
        dependencies.redactor.text,
        is_enabled=parts.is_enabled,
        silent_projects=parts.silent_projects,
        on_project=begin,
        annotate=annotate,
        capture=capture,
        now=now,
    )


async def _annotated(repositories: Repositories, passages: Sequence[Shown], project: Workspace) -> Sequence[Shown]:
    # What is shown of a unit is either of this project, or of none.
    cited = [Cited(each.text, each.occurred_at.timestamp(), (project.tag,)) for each in passages]
    checked = await repositories.check(cited, None) if cited else None
    if checked is None:
        return passages
    return [
        replace(each, note="; ".join(filter(None, (reference.sentence() for reference in found))))
        for each, found in zip(passages, checked.references, strict=True)
    ]
