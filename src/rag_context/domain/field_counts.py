"""How many documents have which value of a field."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rag_context.domain.documents import Origin

DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class DocumentGroup:
    """How many documents of a tenant agree in all of this. `day` counts from 1970, `last_us` is in microseconds."""

    content_type: str
    agent: str | None
    session_id: str
    tags: tuple[str, ...]
    day: int
    count: int
    last_us: int


@dataclass(slots=True)
class SessionCount:
    session_id: str
    count: int = 0
    last_us: int = 0
    agents: set[str] = field(default_factory=set)
    content_types: set[str] = field(default_factory=set)
    tags: set[str] = field(default_factory=set)


@dataclass(slots=True)
class FieldCounts:
    """Documents by each of their fields, and passages by origin."""

    origins: Mapping[Origin, int]
    content_types: Counter[str] = field(default_factory=Counter)
    agents: Counter[str] = field(default_factory=Counter)
    tags: Counter[str] = field(default_factory=Counter)
    days: Counter[int] = field(default_factory=Counter)
    sessions: int = 0
    latest: list[SessionCount] = field(default_factory=list)
    """The latest sessions, as many as were requested."""

    @classmethod
    def of(cls, groups: Iterable[DocumentGroup], origins: Mapping[Origin, int], most: int) -> "FieldCounts":
        counts, sessions = cls(origins), dict[str, SessionCount]()
        for group in groups:
            counts.content_types[group.content_type] += group.count
            counts.days[group.day] += group.count
            if group.agent:
                counts.agents[group.agent] += group.count
            for tag in group.tags:
                counts.tags[tag] += group.count
            session = sessions.setdefault(group.session_id, SessionCount(group.session_id))
            session.count += group.count
            session.last_us = max(session.last_us, group.last_us)
            session.content_types.add(group.content_type)
            session.agents.update(filter(None, [group.agent]))
            session.tags.update(group.tags)
        counts.sessions = len(sessions)
        counts.latest = sorted(sessions.values(), key=lambda each: (-each.last_us, each.session_id))[:most]
        return counts
