"""Documents that callers send one by one at the same time are indexed together, as those of a stream are.

The first call that is admitted takes those that wait behind it: one pass through each stage, one batch for the model
and one commit for all. Who waits for admission is rejected as before where that takes too long.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rag_context.domain.journal import Cause
from rag_context.errors import OverloadedError
from rag_context.files.sending import is_slice
from rag_context.ingest.submissions import Receipt, Submission
from rag_context.resilience.admission import Admission

IndexTogether = Callable[[Sequence[Submission], Sequence[str]], Awaitable[Sequence[Receipt | Exception]]]
"""Indexes documents together, given the ids of their requests."""


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    submission: Submission
    request_id: str
    result: asyncio.Future[Receipt | Exception]


class SingleWrites:
    def __init__(self, admission: Admission, index_together: IndexTogether) -> None:
        self._admission = admission
        self._index_together = index_together
        # By who changes the index: one batch is one cause in the journal.
        self._waiting: dict[str, list[_Write]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def index(self, submission: Submission, request_id: str) -> Receipt | Exception:
        """The result of indexing a document. Raises: OverloadedError; then nothing was begun."""
        write = _Write(submission, request_id, asyncio.get_running_loop().create_future())
        actor = Cause.now().by
        waiting = self._waiting.setdefault(actor, [])
        waiting.append(write)
        try:
            async with self._admission.admitted():
                if write in waiting:
                    # A task of its own: a caller that goes away does not take the documents of others with it.
                    task = asyncio.create_task(self._run(_taken(waiting, write)))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                    await asyncio.shield(task)
        except OverloadedError:
            if write in waiting:
                raise
        finally:
            with suppress(ValueError):
                waiting.remove(write)
            if not waiting and self._waiting.get(actor) is waiting:
                del self._waiting[actor]
        return await write.result

    async def _run(self, writes: Sequence[_Write]) -> None:
        try:
            done = await self._index_together(
                [each.submission for each in writes], [each.request_id for each in writes]
            )
        except Exception as error:  # noqa: BLE001  (a bug: it belongs to all callers)
            done = [error] * len(writes)
        for each, result in zip(writes, done, strict=True):
            if not each.result.done():  # else its caller was cancelled
                each.result.set_result(result)


def _taken(waiting: list[_Write], first: _Write) -> list[_Write]:
    """Take one that waits, and as many others as are indexed together."""
    waiting.remove(first)
    writes, chars = [first], len(first.submission.document.content)
    while waiting and not is_slice(len(writes), chars):
        writes.append(waiting.pop(0))
        chars += len(writes[-1].submission.document.content)
    return writes
