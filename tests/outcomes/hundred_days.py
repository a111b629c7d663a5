"""A hundred days of a memory that three agents and two people change, by a seeded script that knows what is true when.

A fact is a setting of a service with its value. It is stated, corrected, stated again elsewhere, forgotten, restored
and pinned, among remarks on other things. Now, and as of each earlier time, one value is right, or none is known.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from rag_context.client.async_client import AsyncClient

DAYS, CHANGES_A_DAY = 100, 20
FIRST = datetime(2025, 1, 1, 8, tzinfo=UTC)
AUTHORS = ("planner", "coder", "reviewer", "Mia", "Jonas")

SERVICES = (
    "billing gateway", "image resizer", "search crawler", "mail relay", "ticket board", "map renderer", "chat bridge",
    "audit collector", "price calendar", "parcel tracker", "visitor counter", "login portal",
)  # fmt: skip
SETTINGS = {
    "retry limit": "retries a request at most {} times", "cache lifetime": "keeps a cached answer for {} seconds",
    "port": "listens on port {}", "worker count": "runs {} workers", "page size": "returns {} rows on a page",
    "backup retention": "keeps its backups for {} days", "upload limit": "accepts files of {} megabytes at most",
    "session timeout": "closes a session after {} minutes",
}  # fmt: skip
ASIDES = (
    "Lunch number {} was moved to the terrace, because the kitchen is being painted.",
    "The badge reader at the east door failed with code {} and was reset.",
    "The printer on floor {} is out of toner again.",
)


@dataclass(eq=False)
class Fact:
    """One setting of one service, and what became of it."""

    service: str
    setting: str
    chance: random.Random
    """One of its own, so that the script is the same whatever is faster."""
    states: list[tuple[datetime, int]] = field(default_factory=list)
    """Since when which value is right."""
    live: list[str] = field(default_factory=list)
    """The documents that state it and are not superseded."""
    corrected: list[str] = field(default_factory=list)
    """What was live before the last correction, while nothing else became of the fact."""
    correction: int | None = None
    """The entry of that correction."""
    forgotten: int | None = None
    """The entry by which it was forgotten."""
    gone: list[int] = field(default_factory=list)
    """Values that were purged."""

    @property
    def tag(self) -> str:
        return f"{self.service}-{self.setting}".replace(" ", "-")

    @property
    def question(self) -> str:
        return f"What is the {self.setting} of the {self.service}?"

    def text(self, value: int) -> str:
        said = SETTINGS[self.setting].format(value)
        return f"The {self.setting} of the {self.service} is {value}: the {self.service} {said}."

    def value_at(self, moment: datetime) -> int | None:
        return next((value for since, value in reversed(self.states) if since <= moment), None)


@dataclass
class Story:
    """Makes the changes, puts the questions, and counts the right answers of each kind."""

    context: AsyncClient
    seed: int
    done: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    now: datetime = FIRST
    _values: int = 1000

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self.facts = [
            Fact(service, setting, random.Random(f"{self.seed} {service} {setting}"))
            for service in SERVICES
            for setting in SETTINGS
        ]

    async def run(self) -> None:
        for day in range(DAYS):
            self.now = FIRST + timedelta(days=day)
            # Together, as those of several people and agents are; each of another fact.
            await asyncio.gather(*map(self._change, self._random.sample(self.facts, CHANGES_A_DAY)))
            await self._note_corrections()
            self.now += timedelta(hours=10)
            await self._ask_now()
            await self._ask_now()
            await self._ask_as_of()
            await self._ask_for_forgotten()

    def share_right(self, kind: str) -> float:
        return 1 - sum(each.startswith(kind) for each in self.wrong) / self.asked[kind]

    async def _change(self, fact: Fact) -> None:
        chance = fact.chance
        if chance.random() < 0.25:
            kind = "aside"
            await self._index(fact, chance.choice(ASIDES).format(chance.randrange(10**6)))
        elif fact.forgotten is not None:
            kind = "restore"
            await self.context.undo(fact.forgotten)
            fact.forgotten = None
            fact.corrected = []
        elif not fact.live:
            kind = "state"
            await self._state(fact)
        else:
            kind = chance.choices(("correct", "elsewhere", "forget", "purge", "undo", "pin"), (50, 12, 12, 5, 8, 5))[0]
            await getattr(self, f"_{kind}")(fact)
        self.done[kind] += 1

    async def _state(self, fact: Fact, **fields: Any) -> None:
        self._values += self._random.randrange(1, 1000)  # no value is said twice
        value = self._values
        receipt = await self._index(fact, fact.text(value), tags=[fact.tag], **fields)
        superseded = fields.get("supersedes") or ()
        fact.live = [*(each for each in fact.live if each not in superseded), str(receipt["documentId"])]
        fact.states.append((self.now, value))
        fact.corrected = []

    async def _correct(self, fact: Fact) -> None:
        before = list(fact.live)
        await self._state(fact, supersedes=before, reason="measured again")
        fact.corrected = before

    async def _note_corrections(self) -> None:
        entries = (await self.context.log(limit=2 * CHANGES_A_DAY)).entries
        made = {
            move.after.document_id: entry.id
            for entry in entries
            if entry.operation == "index" and entry.count > 1
            for move in entry.moves
            if move.after is not None
        }
        for fact in self.facts:
            if fact.corrected:
                fact.correction = made.get(fact.live[-1], fact.correction)

    async def _elsewhere(self, fact: Fact) -> None:
        await self._state(fact)

    async def _undo(self, fact: Fact) -> None:
        if fact.corrected and fact.correction is not None:
            await self.context.undo(fact.correction)
            fact.states.pop()
            fact.live, fact.corrected = fact.corrected, []

    async def _forget(self, fact: Fact) -> None:
        fact.forgotten = (await self.context.forget(tag=fact.tag)).id

    async def _purge(self, fact: Fact) -> None:
        await self.context.forget(contains=f"The {fact.setting} of the {fact.service}".upper(), purge=True)
        fact.gone += [value for _, value in fact.states]
        fact.live, fact.states, fact.corrected = [], [], []

    async def _pin(self, fact: Fact) -> None:
        fact.corrected = []  # it is another version of the document
        stored = await self.context.get(fact.live[-1])
        await self._index(fact, stored.content, tags=[fact.tag], source=stored.source, sessionId=stored.session_id,
                          occurredAt=stored.occurred_at.isoformat(), pinned=True)  # fmt: skip

    async def _index(self, fact: Fact, content: str, *, tags: list[str] | None = None, **fields: Any) -> dict[str, Any]:
        author = fact.chance.choice(AUTHORS)
        said: dict[str, Any] = {
            "content": content, "contentType": "decision", "sessionId": f"{author}-{self.now:%j}",
            "source": f"{author}/{self.now:%m-%d}-{fact.chance.randrange(10**9)}.md",
            "occurredAt": self.now.isoformat(), "metadata": {"agent": author, "tags": tags or ["aside"]}, **fields,
        }  # fmt: skip
        receipt = await self.context.call("rag_context_index", **said)
        assert receipt["status"] != "forgotten", said
        return receipt

    async def _ask_now(self) -> None:
        fact = self._choose(lambda fact: bool(fact.live) and fact.forgotten is None)
        await self._expect("now", fact, fact.value_at(self.now))

    async def _ask_as_of(self) -> None:
        fact = self._choose(lambda fact: bool(fact.live) and fact.forgotten is None)
        moment = fact.states[0][0] - timedelta(days=2)
        moment += self._random.random() * (self.now - moment)
        await self._expect("as of", fact, fact.value_at(moment), asOf=moment.isoformat())

    async def _ask_for_forgotten(self) -> None:
        fact = self._choose(lambda fact: fact.forgotten is not None or bool(fact.gone))
        if fact is None:
            return
        values = {*fact.gone, *(value for _, value in fact.states if fact.forgotten is not None)}
        self.asked["forgotten"] += 1
        for fields in ({}, {"includeSuperseded": True}, {"asOf": (self.now - timedelta(days=3)).isoformat()}):
            for text in await self._found(fact.question, **fields):
                self.leaks += [f"{fact.tag}: {text}" for value in values if str(value) in text]

    def _choose(self, fits: Callable[[Fact], bool]) -> Any:
        fitting = [fact for fact in self.facts if fits(fact)]
        return self._random.choice(fitting) if fitting else None

    async def _expect(self, kind: str, fact: Fact, value: int | None, **fields: Any) -> None:
        texts = await self._found(fact.question, **fields)
        about = [text for text in texts if text.startswith(f"The {fact.setting} of the {fact.service} ")]
        is_right = about[:1] == ([] if value is None else [fact.text(value)])
        self.asked[kind] += 1
        if not is_right:
            self.wrong.append(f"{kind} {self.now:%j} {fact.tag} {fields} is {value}: {texts}, {fact}")

    async def _found(self, question: str, **fields: Any) -> list[str]:
        answer: Any = await self.context.call("rag_context_search", query=question, limit=5, **fields)
        return [result["content"] for result in answer["results"]]
