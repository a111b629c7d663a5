"""Open sets of conversations: with an assistant, between two people, corrections, dated events, instructions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from rag_context.evaluation.open_sets.rows import ASSISTANT, FIRST, USER, Memory, Message, OpenSet, read_data

OTHER_MEMORY = "unanswerable: other memory"
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
class Fact:
    """A fact of a topic: its statements, those that correct it, and its questions."""

    key: str
    say: Sequence[str]
    new: Sequence[str]
    values: Sequence[str]
    ask: Sequence[str]
    named: str

    def told(self, rng: Random, value: str) -> str:
        """The fact in one of its wordings."""
        return _on_subject(self.key, rng.choice(self.say).format(v=value), rng)

    def corrected(self, rng: Random, value: str) -> str:
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
        known, unknown = shuffled[:-2], shuffled[-2:]
        missing = {rng.choice(topic.facts).key for topic in known[:5]}
        for topic in known:
            _role_sessions(memory, topic, missing, rng)
        for topic in known:
            for fact in topic.facts:
                asked = rng.choice(fact.ask)
                if fact.key in missing:
                    memory.ask(asked, NEAR_TOPIC, [])
                else:
                    memory.ask(asked, "user", [fact.key])
            memory.ask(topic.recommend["ask"], "assistant", [topic.name])
            told = [fact.key for fact in topic.facts if fact.key not in missing]
            memory.ask(f"What have I told you about my {topic.name} so far?", "several", told)
        for fact in (fact for topic in unknown for fact in topic.facts):
            memory.ask(rng.choice(fact.ask), OTHER_MEMORY, [])
        _ask_for_events(memory, Random(f"events {number}"))
    return found


def names() -> OpenSet:
    """Two people with names and short messages; both state the same facts, with different values."""
    found = OpenSet("names")
    for number, pair in enumerate(PAIRS):
        rng = Random(f"names {number}")
        memory = Memory(found, "-".join(pair).lower())
        shuffled = topics()
        rng.shuffle(shuffled)
        known, unknown = shuffled[:-2], shuffled[-2:]
        told: dict[str, list[str]] = {}
        for topic in known:
            for facts in (topic.facts[:1], topic.facts[1:]):
                _named_session(memory, topic, facts, pair, told, rng)
        for fact in (fact for topic in known for fact in topic.facts):
            for name in pair:
                asked = fact.named.format(name=name)
                if name in told[fact.key]:
                    memory.ask(asked, "named", [f"{fact.key}/{name}"])
                else:
                    memory.ask(asked, OTHER_PERSON if told[fact.key] else NEAR_TOPIC, [])
            if len(told[fact.key]) == len(pair):
                asked = f"{fact.named.format(name=pair[0])} And what about {pair[1]}?"
                memory.ask(asked, "both", [f"{fact.key}/{name}" for name in pair])
        for fact in (fact for topic in unknown for fact in topic.facts):
            memory.ask(fact.named.format(name=rng.choice(PAIRS[number - 1])), OTHER_MEMORY, [])
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
            memory.ask(row["ask"], "value changed", [row["new"]], [row["old"]])
        for fact in facts:
            if fact.key in changed:
                memory.ask(rng.choice(fact.ask), "fact changed", [f"{fact.key}/new"], [f"{fact.key}/old"])
            elif rng.random() < UNCHANGED:
                memory.ask(rng.choice(fact.ask), "unchanged", [f"{fact.key}/old"])
    return found


def dated() -> OpenSet:
    """Events of the same kinds on many days; only the date in the question distinguishes them."""
    found = OpenSet("dated")
    rng = Random("dated")
    memory = Memory(found, "diary")
    kinds = read_data("events.toml")["kind"]
    told = [(number, _led(kind, text, rng)) for number, kind in enumerate(kinds) for text in kind["told"]]
    rng.shuffle(told)
    start = datetime(2025, 2, 1, 19, 30, tzinfo=UTC)
    days = sorted(rng.sample(range(DAYS), len(told)))
    all_topics = topics()
    by_kind: dict[int, list[tuple[datetime, str]]] = {}
    for day, (number, text) in zip(days, told, strict=True):
        at = start + timedelta(days=day)
        key = at.date().isoformat()
        by_kind.setdefault(number, []).append((at, key))
        memory.session(_with_assistant(rng.choice(all_topics), [(text, key)], rng, advice=(1, 2)), at)
    for number, kind in enumerate(kinds):
        for at, key in rng.sample(by_kind[number], 5):
            category, phrase, near = rng.choice(list(_phrases(at, [moment for moment, _ in by_kind[number]])))
            evidence = [k for moment, k in by_kind[number] if moment in near]
            memory.ask(rng.choice(kind["ask"]).format(on=phrase), category, evidence or [key])
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
        for place, topic in enumerate(drawn):
            mine = [(pair[0], pair[1]) for pair, _ in half[2 * place : 2 * place + 2]]
            near = [(other, "") for _, other in half[(2 * place + 7) % 20 :][:3]]
            memory.session(_with_assistant(topic, [*mine, *near], rng, advice=(1, 3)))
        for (_, request), _ in half:
            memory.ask(request, "instruction", [request])
    return found


def _before(memory: Memory, all_topics: Sequence[Topic], half: Sequence[Changes], changed: Values, rng: Random) -> None:
    """What was said first: every fact, and every value that changes later."""
    for place, topic in enumerate(all_topics):
        said = [
            (_mixed(fact.told(rng, changed.get(fact.key, fact.values)[0]), topic, rng), f"{fact.key}/old")
            for fact in topic.facts
        ]
        said += [(_mixed(row["old"], topic, rng), row["old"]) for row in half[place :: len(all_topics)]]
        said += [(row["near"][0], "") for row in half[(place + 5) % len(half) :][:2]]
        memory.session(_with_assistant(topic, said, rng))


def _after(memory: Memory, all_topics: Sequence[Topic], half: Sequence[Changes], changed: Values, rng: Random) -> None:
    """What was said later: only what changed."""
    for place, topic in enumerate(all_topics):
        said = [
            (_mixed(fact.corrected(rng, changed[fact.key][1]), topic, rng), f"{fact.key}/new")
            for fact in topic.facts
            if fact.key in changed
        ]
        said += [(_mixed(row["new"], topic, rng), row["new"]) for row in half[place :: len(all_topics)]]
        said += [(row["near"][1], "") for row in half[(place + 9) % len(half) :][:2]]
        memory.session(_with_assistant(topic, said, rng))


def _role_sessions(memory: Memory, topic: Topic, missing: set[str], rng: Random) -> None:
    facts = [fact for fact in topic.facts if fact.key not in missing]
    rng.shuffle(facts)
    said = [(_mixed(fact.told(rng, rng.choice(fact.values)), topic, rng), fact.key) for fact in facts]
    memory.session(_with_assistant(topic, said[:1], rng))
    memory.session(_with_assistant(topic, said[1:], rng, recommend=rng.choice(topic.recommend["values"])))
    for _ in range(QUIET_SESSIONS):
        memory.session(_with_assistant(topic, [], rng))


def _ask_for_events(memory: Memory, rng: Random) -> None:
    """Questions for events on days that the memory covers, none of which it holds."""
    for _ in range(DATED_QUESTIONS):
        at = FIRST + timedelta(days=rng.randrange((memory.at - FIRST).days))
        phrase = rng.choice([phrase for _, phrase, _ in _phrases(at, [at])])
        kind = rng.choice(read_data("events.toml")["kind"])
        memory.ask(rng.choice(kind["ask"]).format(on=phrase), OTHER_MEMORY_DATED, [])


def _with_assistant(
    topic: Topic, said: Sequence[tuple[str, str]], rng: Random, *, advice: tuple[int, int] = (3, 5), recommend: str = ""
) -> list[Message]:
    """A conversation in which the assistant answers each message of the user; `said` has texts and their keys."""
    pool = Sentences(topic.advice, rng)
    asked = [*said, *((text, "") for text in rng.sample(list(topic.chat), 3))]
    rng.shuffle(asked)
    found = [Message(USER, rng.choice(topic.openings)), Message(ASSISTANT, pool.take(rng.randint(*advice)))]
    for number, (text, key) in enumerate(asked):
        found.append(Message(USER, text, key))
        answer = pool.take(rng.randint(*advice))
        if recommend and number == len(asked) // 2:
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
    told: dict[str, list[str]],
    rng: Random,
) -> None:
    first, second = rng.sample(pair, 2)
    replies, chat = Sentences(read_data("topics.toml")["replies"], rng), Sentences(topic.chat, rng)
    found = [Message(first, rng.choice(topic.openings)), Message(second, chat.take(1))]
    for fact in facts:
        tellers = rng.choice([[first, second], [second, first], [first, second], [first], [second], []])
        told[fact.key] = tellers
        for name, value in zip(tellers, rng.sample(list(fact.values), len(tellers)), strict=True):
            found.append(Message(name, fact.told(rng, value), f"{fact.key}/{name}"))
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
    """Category, phrase and the moments that it covers, of every phrase that names a day or part of a month."""
    month, year = at.strftime("%B"), at.year
    yield "day", f"on {at.day} {month} {year}", [at]
    yield "day", f"on {month} {at.day}, {year}", [at]
    yield "day", f"on {at.date().isoformat()}", [at]
    same = [moment for moment in others if (moment.year, moment.month) == (year, at.month)]
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
        taken = []
        for _ in range(count):
            if not self._left:
                self._left = self._rng.sample(self._all, len(self._all))
            taken.append(self._left.pop())
        return " ".join(taken)
