"""What is known of the tenants whose documents are searched, read again once the index has changed.

Cached answers and counts belong to a tenant's own state: what others store makes no difference that could be seen.
"""

from dataclasses import dataclass

from cachetools import LRUCache

from rag_context.domain.documents import Tenant, TenantState
from rag_context.ports.reading import DocumentStore

REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class KnownState:
    """A tenant's state, and the version of the index at which this process first saw it."""

    state: TenantState
    version: int
    """Grows with every change of the tenant that this process notices."""


class TenantStates:
    """Reads a tenant's state from the index when this has changed, and keeps it until it changes again."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents
        self._known: LRUCache[Tenant, KnownState] = LRUCache(REMEMBERED)
        self._read_at: LRUCache[Tenant, int] = LRUCache(REMEMBERED)

    def last(self, tenant: Tenant) -> KnownState | None:
        """What was read last; None before that. No I/O."""
        return self._known.get(tenant)

    def current(self, tenant: Tenant) -> KnownState | None:
        """What was read of the index as it is now, as far as this process knows; None if it must be read. No I/O."""
        return self._known.get(tenant) if self._read_at.get(tenant) == self._documents.version else None

    async def read(self, tenant: Tenant) -> KnownState:
        """The current state. Raises: BackendError."""
        known = self.current(tenant)
        if known is not None:
            return known
        version = self._documents.version  # before reading: what changes meanwhile is read again
        state = await self._documents.tenant_state(tenant)
        last = self._known.get(tenant)
        # An index that was replaced by an older copy passes through its states again, under greater versions.
        is_same = last is not None and last.state.stamp == state.stamp
        known = KnownState(state, last.version if last is not None and is_same else version)
        self._known[tenant], self._read_at[tenant] = known, version
        return known
