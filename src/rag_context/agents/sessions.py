"""What each session of an agent was shown, and what it may still be shown.

The record of what was shown is also the state: it survives a restart, and all processes of a data directory share it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rag_context.api.handlers import performs
from rag_context.api.maintenance import MAX_INJECTIONS, InjectedPassage, InjectionsRequest, InjectionsResponse
from rag_context.api.operations import memory
from rag_context.domain.reports import Injection
from rag_context.domain.search import Passage
from rag_context.ports.reading import DocumentStore
from rag_context.ports.writing import InjectionLog

LAST_SHARE = 0.8
"""Share of a session's tokens after which only the strongest passages are shown."""

STRONGEST = 0.85
"""Relevance of those."""

_EMPTIED = frozenset({"clear", "compact"})


@dataclass(frozen=True, slots=True)
class Budgets:
    """Most tokens that are shown at a prompt or an action, at the start of a session, and in a session in all."""

    prompt: int = 300
    start: int = 600
    session: int = 3000


@dataclass(frozen=True, slots=True)
class SessionState:
    """What a session was shown and still knows, the files and commands that were judged, and what may follow.

    `tokens_left` is what its next block may cost, `least_relevance` what a passage must have now.
    """

    chunk_ids: frozenset[str]
    subjects: frozenset[str]
    tokens_left: int
    least_relevance: float


class Sessions:
    def __init__(self, log: InjectionLog, budgets: Budgets) -> None:
        self._log = log
        self._budgets = budgets

    async def state(self, session_id: str) -> SessionState:
        return await asyncio.to_thread(self._state, session_id)

    def _state(self, session_id: str) -> SessionState:
        remembered = self._log.remembered(session_id)
        spent, total = self._log.tokens(session_id), self._budgets.session
        return SessionState(
            frozenset(chunk_id for each in remembered if not each.reason for chunk_id in each.chunk_ids),
            frozenset(each.subject for each in remembered if each.subject),
            max(min(self._budgets.prompt, total - spent), 0),
            STRONGEST if spent > LAST_SHARE * total else 0.0,
        )

    async def start(self, session_id: str, source: str) -> None:
        """Note that a session starts or goes on: where its context was emptied, it may be shown all again."""
        if source in _EMPTIED:
            await asyncio.to_thread(self._log.forget, session_id)

    async def record(self, injections: Sequence[Injection]) -> None:
        await asyncio.to_thread(self._log.add, injections)


class Receipts:
    """What agents were shown, for people who want to know. Records hold no text: what was deleted is shown nowhere."""

    def __init__(self, log: InjectionLog, documents: DocumentStore) -> None:
        self._log = log
        self._documents = documents

    @performs(memory.INJECTIONS)
    async def injections(self, request: InjectionsRequest) -> InjectionsResponse:
        """List what agents were shown unasked, and what was withheld. Raises: BackendError."""
        limit = MAX_INJECTIONS if request.shown_only else request.limit
        records = await asyncio.to_thread(self._log.latest, request.session_id, limit)
        if request.shown_only:
            records = [record for record in records if not record.reason][: request.limit]
        ids = {record.chunk_ids[-1] for record in records if record.chunk_ids}
        passages = await self._documents.passages(sorted(ids)) if ids else {}
        injected = [_injected(record, passages.get((record.chunk_ids or ("",))[-1])) for record in records]
        return InjectionsResponse(injections=injected, tokens=sum(record.tokens for record in records))


def _injected(record: Injection, passage: Passage | None) -> InjectedPassage:
    fields = {name: value for name, value in asdict(record).items() if name != "chunk_ids"}
    fields |= {name: fields[name] or None for name in ("subject", "reason", "document_id")}
    fields["shown"] = not record.reason
    if passage is not None:
        fields |= {"title": passage.title, "source": passage.source, "content": passage.chunk.text}
    return InjectedPassage.model_validate(fields)
