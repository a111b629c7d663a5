"""Operations on many documents for providers without them: page by page, with the calls that every provider has."""

from collections.abc import Sequence

from rag_context.domain.clauses import EVERYTHING, Clause
from rag_context.ports.provider import BulkCalls, Entry, Provider
from rag_context.where import matches

_PAGE = 1000


def bulk(provider: Provider) -> BulkCalls:
    """The provider's own bulk calls, or the same operations page by page."""
    return provider if isinstance(provider, BulkCalls) else _Paged(provider)


class _Paged:
    """Implements `BulkCalls` with several calls per operation."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def ids(self, name: str, where: Clause) -> list[str]:
        return [entry.id for entry in await self._all(name, where)]

    async def get(self, name: str, ids: Sequence[str]) -> dict[str, Entry]:
        requested = set(ids)
        return {entry.id: entry for entry in await self._all(name, EVERYTHING) if entry.id in requested}

    async def delete_many(self, name: str, ids: Sequence[str], where: Clause) -> int:
        stored = await self.get(name, ids)
        matching = [entry.id for entry in stored.values() if matches(where, entry.metadata)]
        return sum([await self._provider.delete(name, id_) for id_ in matching])

    async def _all(self, name: str, where: Clause) -> list[Entry]:
        found: list[Entry] = []
        while True:
            page = await self._provider.entries(name, where, limit=_PAGE, offset=len(found))
            found += page.entries
            if len(page.entries) < _PAGE:
                return found
