"""Open sets of conversations: with an assistant, between two people, corrections, dated events, instructions.

Everything is drawn from `random.Random` with a fixed seed, so that the same version writes the same bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from benchmarks.open_sets.document_sets import OTHER_MEMORY, OpenSet, Row, read_data

USER = "user"
ASSISTANT = "assistant"

FIRST = datetime(2025, 3, 8, 18, 0, tzinfo=UTC)
APART = timedelta(days=5)
"""When the first conversation of a memory takes place, and how long after each the next one."""


OTHER_MEMORY_DATED = "unanswerable: other memory, with a date"
NEAR_TOPIC = "unanswerable: near topic"
OTHER_PERSON = "unanswerable: other person"

ROLE_MEMORIES = 3
DATED_QUESTIONS = 16
"""In each of these memories, for events that another memory holds."""

PAIRS = (("Mara", "Jonas"), ("Priya", "Tom"), ("Elif", "Hugo"))
QUIET_SESSIONS = 3
"""Conversations on each topic that hold no evidence."""

UNCHANGED = 0.6
"""Share of the unchanged facts that have a question."""

NAMED_KIND = 0.8
"""Share of the events with a word for their kind."""

DAYS = 430

Changes = Mapping[str, Any]
Values = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Message:
    """What one speaker says; `key` names it, where it is evidence."""

    speaker: str
    text: str
    key: str = ""


@dataclass(slots=True)
class Memory:
    """The conversations of one user or of two people, in the order in which they took place."""

    target: OpenSet
    project: str
    at: datetime = FIRST - APART
    ids: dict[str, str] = field(default_factory=dict)
    """Id of each message that has a key."""
    sessions: int = 0

    def session(self, messages: Sequence[Message], at: datetime | None = None) -> None:
        """Add a conversation, by default five days after the one before."""
        self.sessions += 1
        self.at = at or self.at + APART
        for number, message in enumerate(messages, 1):
            id_ = f"{self.project}-{self.sessions:02}-{number:02}"
            if message.key:
                self.ids[message.key] = id_
            said = self.at + timedelta(minutes=2 * number)
            self.target.corpus.append(
                {
                    "_id": id_,
                    "text": message.text,
                    "speaker": message.speaker,
                    "sessionId": f"{self.project}-{self.sessions:02}",
                    "occurredAt": said.isoformat().replace("+00:00", "Z"),
                    "project": self.project,
                }
            )

    def add_question(self, text: str, category: str, evidence: Sequence[str], outdated: Sequence[str] = ()) -> None:
        """Add a question by the keys of what answers it, and of what that corrects."""
        fields: Row = {"outdated": [self.ids[key] for key in outdated]} if outdated else {}
        self.target.add_question(text, category, [self.ids[key] for key in evidence], project=self.project, **fields)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of a topic: its statements, those that correct it, and its questions."""

    key: str
    say: Sequence[str]
    new: Sequence[str]
    values: Sequence[str]
    ask: Sequence[str]
    named: str

    def statement(self, rng: Random, value: str) -> str:
        """The fact in one of its wordings."""
        return _on_subject(self.key, rng.choice(self.say).format(v=value), rng)

    def correction(self, rng: Random, value: str) -> str:
        """A later statement of the fact, with another value."""
        return _on_subject(self.key, rng.choice(self.new).format(v=value), rng)


@dataclass(frozen=True, slots=True)
class Topic:
    """What is said on one subject."""

    name: str
    openings: Sequence[str]
    chat: Sequence[str]
    advice: Sequence[str]
    facts: Sequence[Fact]
    recommend: dict[str, Any]


def topics() -> list[Topic]:
    """All topics, in the order of the file."""
    return [
        Topic(
            row["name"],
            row["open"],
            row["chat"],
            row["advice"],
            [Fact(f"{row['name']}/{number}", **fact) for number, fact in enumerate(row["fact"])],
            row["recommend"],
        )
        for row in read_data("topics.toml")["topic"]
    ]


def roles() -> OpenSet:
    """Users with an assistant: short messages of the user, long ones of the assistant on the same subject."""
    found = OpenSet("roles")
    for number in range(ROLE_MEMORIES):
        rng = Random(f"roles {number}")
        memory = Memory(found, f"user-{number + 1}")
        shuffled = topics()
        rng.shuffle(shuffled)
        discussed, others = shuffled[:-2], shuffled[-2:]
        missing = {rng.choice(topic.facts).key for topic in discussed[:5]}
        for topic in discussed:
            _role_sessions(memory, topic, missing, rng)
        for topic in discussed:
            for fact in topic.facts:
                question = rng.choice(fact.ask)
                if fact.key in missing:
                    memory.add_question(question, NEAR_TOPIC, [])
                else:
                    memory.add_question(question, "user", [fact.key])
            memory.add_question(topic.recommend["ask"], "assistant", [topic.name])
            stated = [fact.key for fact in topic.facts if fact.key not in missing]
            memory.add_question(f"What have I told you about my {topic.name} so far?", "several", stated)
        for fact in (fact for topic in others for fact in topic.facts):
            memory.add_question(rng.choice(fact.ask), OTHER_MEMORY, [])
        _add_questions_on_events(memory, Random(f"events {number}"))
    return found


def names() -> OpenSet:
    """Two people with names and short messages; both state the same facts, with different values."""
    found = OpenSet("names")
    for number, pair in enumerate(PAIRS):
        rng = Random(f"names {number}")
        memory = Memory(found, "-".join(pair).lower())
        shuffled = topics()
        rng.shuffle(shuffled)
        discussed, others = shuffled[:-2], shuffled[-2:]
        stated_by: dict[str, list[str]] = {}  # the people, by fact
        for topic in discussed:
            for facts in (topic.facts[:1], topic.facts[1:]):
                _named_session(memory, topic, facts, pair, stated_by, rng)
        for fact in (fact for topic in discussed for fact in topic.facts):
            for name in pair:
                question = fact.named.format(name=name)
                if name in stated_by[fact.key]:
                    memory.add_question(question, "named", [f"{fact.key}/{name}"])
                else:
                    memory.add_question(question, OTHER_PERSON if stated_by[fact.key] else NEAR_TOPIC, [])
            if len(stated_by[fact.key]) == len(pair):
                question = f"{fact.named.format(name=pair[0])} And what about {pair[1]}?"
                memory.add_question(question, "both", [f"{fact.key}/{name}" for name in pair])
        for fact in (fact for topic in others for fact in topic.facts):
            memory.add_question(fact.named.format(name=rng.choice(PAIRS[number - 1])), OTHER_MEMORY, [])
    return found


def updates() -> OpenSet:
    """Facts that change: what holds now should stand above what it corrects; others stay as they are."""
    found = OpenSet("updates")
    changes = read_data("changes.toml")["change"]
    for number in range(2):
        rng = Random(f"updates {number}")
        memory = Memory(found, f"changes-{number + 1}")
        half = changes[number::2]
        all_topics = topics()
        facts = [fact for topic in all_topics for fact in topic.facts]
        changed = {fact.key: rng.sample(list(fact.values), 2) for fact in rng.sample(facts, 10)}
        _before(memory, all_topics, half, changed, rng)
        rng.shuffle(all_topics)
        _after(memory, all_topics, half, changed, rng)
        for row in half:
            memory.add_question(row["ask"], "value changed", [row["new"]], [row["old"]])
        for fact in facts:
            if fact.key in changed:
                memory.add_question(rng.choice(fact.ask), "fact changed", [f"{fact.key}/new"], [f"{fact.key}/old"])
            elif rng.random() < UNCHANGED:
                memory.add_question(rng.choice(fact.ask), "unchanged", [f"{fact.key}/old"])
    return found


def dated() -> OpenSet:
    """Events of the same kinds on many days; only the date in the question distinguishes them."""
    found = OpenSet("dated")
    rng = Random("dated")
    memory = Memory(found, "diary")
    kinds = read_data("events.toml")["kind"]
    events = [(number, _led(kind, text, rng)) for number, kind in enumerate(kinds) for text in kind["told"]]
    rng.shuffle(events)
    start = datetime(2025, 2, 1, 19, 30, tzinfo=UTC)
    days = sorted(rng.sample(range(DAYS), len(events)))
    all_topics = topics()
    by_kind: dict[int, list[tuple[datetime, str]]] = {}
    for day, (number, text) in zip(days, events, strict=True):
        at = start + timedelta(days=day)
        key = at.date().isoformat()
        by_kind.setdefault(number, []).append((at, key))
        memory.session(_with_assistant(rng.choice(all_topics), [(text, key)], rng, advice=(1, 2)), at)
    for number, kind in enumerate(kinds):
        for at, key in rng.sample(by_kind[number], 5):
            category, phrase, near = rng.choice(list(_phrases(at, [time for time, _ in by_kind[number]])))
            evidence = [k for time, k in by_kind[number] if time in near]
            memory.add_question(rng.choice(kind["ask"]).format(on=phrase), category, evidence or [key])
    return found


def standing() -> OpenSet:
    """Instructions given once; a later request does not repeat them, and other messages share its words."""
    found = OpenSet("standing")
    data = read_data("standing.toml")
    rng = Random("standing")
    pairs = list(zip(data["pairs"], data["others"], strict=True))
    rng.shuffle(pairs)
    for number, half in enumerate((pairs[:20], pairs[20:])):
        memory = Memory(found, f"habits-{number + 1}")
        drawn = rng.sample(topics(), 10)
        for index, topic in enumerate(drawn):
            mine = [(pair[0], pair[1]) for pair, _ in half[2 * index : 2 * index + 2]]
            near = [(other, "") for _, other in half[(2 * index + 7) % 20 :][:3]]
            memory.session(_with_assistant(topic, [*mine, *near], rng, advice=(1, 3)))
        for (_, request), _ in half:
            memory.add_question(request, "instruction", [request])
    return found


def _before(memory: Memory, all_topics: Sequence[Topic], half: Sequence[Changes], changed: Values, rng: Random) -> None:
    """What was said first: every fact, and every value that changes later."""
    for index, topic in enumerate(all_topics):
        said = [
            (_mixed(fact.statement(rng, changed.get(fact.key, fact.values)[0]), topic, rng), f"{fact.key}/old")
            for fact in topic.facts
        ]
        said += [(_mixed(row["old"], topic, rng), row["old"]) for row in half[index :: len(all_topics)]]
        said += [(row["near"][0], "") for row in half[(index + 5) % len(half) :][:2]]
        memory.session(_with_assistant(topic, said, rng))


def _after(memory: Memory, all_topics: Sequence[Topic], half: Sequence[Changes], changed: Values, rng: Random) -> None:
    """What was said later: only what changed."""
    for index, topic in enumerate(all_topics):
        said = [
            (_mixed(fact.correction(rng, changed[fact.key][1]), topic, rng), f"{fact.key}/new")
            for fact in topic.facts
            if fact.key in changed
        ]
        said += [(_mixed(row["new"], topic, rng), row["new"]) for row in half[index :: len(all_topics)]]
        said += [(row["near"][1], "") for row in half[(index + 9) % len(half) :][:2]]
        memory.session(_with_assistant(topic, said, rng))


def _role_sessions(memory: Memory, topic: Topic, missing: set[str], rng: Random) -> None:
    facts = [fact for fact in topic.facts if fact.key not in missing]
    rng.shuffle(facts)
    said = [(_mixed(fact.statement(rng, rng.choice(fact.values)), topic, rng), fact.key) for fact in facts]
    memory.session(_with_assistant(topic, said[:1], rng))
    memory.session(_with_assistant(topic, said[1:], rng, recommend=rng.choice(topic.recommend["values"])))
    for _ in range(QUIET_SESSIONS):
        memory.session(_with_assistant(topic, [], rng))


def _add_questions_on_events(memory: Memory, rng: Random) -> None:
    """Questions for events on days that the memory covers, none of which it holds."""
    for _ in range(DATED_QUESTIONS):
        at = FIRST + timedelta(days=rng.randrange((memory.at - FIRST).days))
        phrase = rng.choice([phrase for _, phrase, _ in _phrases(at, [at])])
        kind = rng.choice(read_data("events.toml")["kind"])
        memory.add_question(rng.choice(kind["ask"]).format(on=phrase), OTHER_MEMORY_DATED, [])


def _with_assistant(
    topic: Topic, said: Sequence[tuple[str, str]], rng: Random, *, advice: tuple[int, int] = (3, 5), recommend: str = ""
) -> list[Message]:
    """A conversation in which the assistant answers each message of the user; `said` has texts and their keys."""
    pool = Sentences(topic.advice, rng)
    messages = [*said, *((text, "") for text in rng.sample(list(topic.chat), 3))]
    rng.shuffle(messages)
    found = [Message(USER, rng.choice(topic.openings)), Message(ASSISTANT, pool.take(rng.randint(*advice)))]
    for number, (text, key) in enumerate(messages):
        found.append(Message(USER, text, key))
        answer = pool.take(rng.randint(*advice))
        if recommend and number == len(messages) // 2:
            answer = f"{pool.take(1)} {topic.recommend['say'].format(v=recommend)} {answer}"
            found.append(Message(ASSISTANT, answer, topic.name))
        else:
            found.append(Message(ASSISTANT, answer))
    return found


def _named_session(
    memory: Memory,
    topic: Topic,
    facts: Sequence[Fact],
    pair: tuple[str, str],
    stated_by: dict[str, list[str]],
    rng: Random,
) -> None:
    first, second = rng.sample(pair, 2)
    replies, chat = Sentences(read_data("topics.toml")["replies"], rng), Sentences(topic.chat, rng)
    found = [Message(first, rng.choice(topic.openings)), Message(second, chat.take(1))]
    for fact in facts:
        speakers = rng.choice([[first, second], [second, first], [first, second], [first], [second], []])
        stated_by[fact.key] = speakers
        for name, value in zip(speakers, rng.sample(list(fact.values), len(speakers)), strict=True):
            found.append(Message(name, fact.statement(rng, value), f"{fact.key}/{name}"))
            other = second if name == first else first
            found.append(Message(other, rng.choice([replies.take(1), chat.take(1)])))
    found += [Message(first, chat.take(1)), Message(second, replies.take(1))]
    memory.session(found)


def _led(kind: Mapping[str, Any], text: str, rng: Random) -> str:
    """The event, mostly after a few words that name its kind."""
    return f"{rng.choice(kind['lead'])} {text}" if rng.random() < NAMED_KIND else text


def _on_subject(key: str, text: str, rng: Random) -> str:
    """The text, in half of the cases after words that name its subject."""
    head = rng.choice(("", "", "", "About my {}: ", "As for my {}: ", "One more thing on my {}: "))
    return head.format(key.partition("/")[0]) + text


def _mixed(text: str, topic: Topic, rng: Random) -> str:
    """The text alone, or before or after something else in the same message."""
    chat = rng.choice(topic.chat)
    return rng.choice([text, f"{text} {chat}", f"{chat} {text}"])


def _phrases(at: datetime, others: Sequence[datetime]) -> Iterator[tuple[str, str, list[datetime]]]:
    """Category, phrase and the times that it covers, of every phrase that names a day or part of a month."""
    month, year = at.strftime("%B"), at.year
    yield "day", f"on {at.day} {month} {year}", [at]
    yield "day", f"on {month} {at.day}, {year}", [at]
    yield "day", f"on {at.date().isoformat()}", [at]
    same = [time for time in others if (time.year, time.month) == (year, at.month)]
    part = ("early", "mid", "late")[min((at.day - 1) // 10, 2)]
    if len(same) == 1:
        yield "month", f"in {part} {month} {year}", same
    if len(same) <= 2:
        yield "month", f"in {month} {year}", same


class Sentences:
    """Sentences in a random order, each of them again only after all the others."""

    def __init__(self, sentences: Sequence[str], rng: Random) -> None:
        self._all, self._rng, self._left = list(sentences), rng, list[str]()

    def take(self, count: int) -> str:
        """So many of them, as one text."""
        sentences = []
        for _ in range(count):
            if not self._left:
                self._left = self._rng.sample(self._all, len(self._all))
            sentences.append(self._left.pop())
        return " ".join(sentences)
