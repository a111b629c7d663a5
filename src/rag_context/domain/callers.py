"""Who makes a call, and what of the memory there is for them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from itertools import chain

from rag_context.domain.documents import DEFAULT_TENANT, DocumentInput, Tenant
from rag_context.domain.search import Filter
from rag_context.errors import FieldError, ForbiddenError, InvalidInputError

AGENT_TAG = "agent:"
"""Begins the tag of what was stored with a key that is bound to an agent; its name follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What there is for a key: projects, collections, and of the agents' memory the documents with certain tags.

    Of `agents` a document was stored with a key of one, and of `tags` it has one; without either the agents' memory
    does not exist. Where that is said of whole tenants, their statistics tell nothing of others; where it is said of a
    part of one, `memory.bounded` counts that part alone.
    """

    projects: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Of each of these groups of tags a document of the agents' memory has one."""
        return tuple(group for group in (tuple(AGENT_TAG + each for each in self.agents), self.tags) if group)

    def joined(self, others: Iterable["Bounds"]) -> "Bounds":
        """These bounds with those of groups: of each kind the names of all."""
        every = (self, *others)
        names = {
            each.name: tuple(dict.fromkeys(chain(*(getattr(one, each.name) for one in every)))) for each in fields(self)
        }
        return Bounds(**names)

    def has(self, tenant: Tenant) -> bool:
        """Whether any document of a tenant exists for the key."""
        visible = tenant.visible
        return visible.project in self.projects if visible.project else visible == DEFAULT_TENANT and bool(self.groups)

    def is_part_of(self, tenant: Tenant) -> bool:
        """Whether only some documents of the tenant exist for the key."""
        return not tenant.project

    def admits(self, tenant: Tenant, tags: tuple[str, ...]) -> bool:
        if self.is_part_of(tenant) and not all(set(group) & set(tags) for group in self.groups):
            return False
        return self.has(tenant)

    def narrowed(self, where: Filter) -> Filter | None:
        """The filter within the bounds; None where nothing can pass it."""
        if not self.has(where.tenant):
            return None
        return replace(where, any_tags=(*where.any_tags, *self.groups)) if self.is_part_of(where.tenant) else where

    def stamped(self, document: DocumentInput) -> DocumentInput:
        """A document as this key stores it: within its bounds, and under an id that no other key's document has.

        Raises: ForbiddenError (another project, or agent), InvalidInputError (it has none of the key's several tags or
        agents).
        """
        if not self.has(document.tenant):
            raise ForbiddenError("This API key is bound to other parts of the memory: it cannot store this here")
        if not self.is_part_of(document.tenant):
            return document
        metadata = document.metadata
        if any(tag.startswith(AGENT_TAG) and tag[len(AGENT_TAG) :] not in self.agents for tag in metadata.tags):
            raise ForbiddenError(f"This API key cannot store a tag of another agent ({AGENT_TAG}NAME)")
        if self.agents:
            agent = self.agents[0] if len(self.agents) == 1 else metadata.agent
            if agent not in self.agents:
                raise _missing("agent", self.agents)
            metadata = replace(metadata, agent=agent, tags=_with(metadata.tags, f"{AGENT_TAG}{agent}"))
        if self.tags and not set(self.tags) & set(metadata.tags):
            if len(self.tags) > 1:
                raise _missing("metadata.tags", self.tags)
            metadata = replace(metadata, tags=_with(metadata.tags, self.tags[0]))
        own = (document.id_space,) if document.id_space else ()  # of a key that may only add
        return replace(document, metadata=metadata, id_space="\0".join((*own, *(self.agents or self.tags))))


def _with(tags: tuple[str, ...], tag: str) -> tuple[str, ...]:
    return tags if tag in tags else (*tags, tag)


def _missing(field: str, allowed: tuple[str, ...]) -> InvalidInputError:
    message = f"{field} must name one that this API key is bound to: {', '.join(allowed)}"
    return InvalidInputError(message, [FieldError(field, message)])


@dataclass(frozen=True, slots=True)
class CallerId:
    """The identity of a caller, as the server knows it.

    `session` is an MCP session or a stdio process, verified to be the caller's; `key` the name of the API key, None if
    the server needs none; `bounds` what there is for the key, None: everything. Who `only_adds` may store documents,
    and do nothing to those of others.
    """

    session: str | None = None
    key: str | None = None
    bounds: Bounds | None = None
    only_adds: bool = False


ANONYMOUS = CallerId()
"""A caller without a session and without a key."""

_CACHED_FOR: ContextVar[str] = ContextVar("rag_context_cached_for", default="")


@contextmanager
def cached_apart(bounds: Bounds) -> Iterator[None]:
    """Inside the block what is cached is the bounds' own, so that no time tells what others searched for."""
    token = _CACHED_FOR.set(repr(bounds))
    try:
        yield
    finally:
        _CACHED_FOR.reset(token)


def cached_for() -> str:
    """For whom something is cached: a part of every key of a cache of what callers sent."""
    return _CACHED_FOR.get()
