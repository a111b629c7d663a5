"""What a text says of its own time, and which times count."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.documents import (
    Channel,
    DocumentInput,
    MessageTime,
    Stored,
    end_of,
    packed_times,
    unpacked_times,
)
from rag_context.domain.provenance import event_time, has_other_time, parsed, stated_message_times, stated_time, time_at

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> datetime:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("date: 2024-02-29", at(2024, 2, 29)),
        ('date: "2024-02-29"  # leap', at(2024, 2, 29)),
        ("date: 2024-02-29T10:20:30Z", at(2024, 2, 29, 10, 20, 30)),
        ("date: 2024-02-29 10:20:30 +02:00", at(2024, 2, 29, 8, 20, 30)),
        ("created: 2024-02-29", at(2024, 2, 29)),
        ("created: 2020-01-01\ndate: 2024-02-29", at(2024, 2, 29)),
        ("date: 2024-02-30", None),
        ("date: last spring", None),
        ("date: 2024-02-29 and later", None),
        ("  date: 2024-02-29", None),
        ("dated: 2024-02-29", None),
        ("date: 0001-01-01T00:00:00+05:00", None),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_front_matter_states_a_date(line: str, time: datetime | None, end: str) -> None:
    text = f"---\ntitle: x\n{line}\ntags: [a]\n---\nText.".replace("\n", end)
    assert stated_time(text, "documentation") == time


def test_a_date_counts_in_front_matter_only_and_never_in_code() -> None:
    assert stated_time("Text.\n---\ndate: 2024-02-29\n---\n", "documentation") is None
    assert stated_time("---\ndate: 2024-02-29\nno end", "documentation") is None
    assert stated_time("---\ndate: 2024-02-29\n---\n", "code") is None


def test_a_conversation_states_the_times_before_its_messages() -> None:
    text = (
        "[2023-11-14 22:13] [User] When?\n[Model] At nine.\n"
        "2023-11-15T00:43:10+01:00 Ana: Can I?\n(2023-11-16 01:00) <Ben> No."
    )
    times = stated_message_times(text)
    assert [each.at for each in times] == [at(2023, 11, 14, 22, 13), at(2023, 11, 14, 23, 43, 10), at(2023, 11, 16, 1)]
    assert [text[each.start :][:5] for each in times] == ["[2023", "2023-", "(2023"]
    assert stated_time(text, "chat") == at(2023, 11, 14, 22, 13)
    assert stated_time(text, "documentation") is None


@pytest.mark.parametrize(
    "line",
    [
        "2023-11-15 00:43:10 the server was started again",
        "22:13 Ana: Hi.",
        "See 2023-11-15 00:43 Ana: Hi.",
        "[2023-13-45 10:00] [Ana] Hi.",
    ],
)
def test_a_time_within_a_message_is_not_its_own(line: str) -> None:
    assert stated_message_times(f"[Ana] The log says:\n{line}\n") == ()


def test_a_conversation_of_an_earlier_version_states_when_it_began() -> None:
    assert stated_time("[Ana] Hi.", "chat", {"startedAt": "2025-04-05T06:07:08Z"}) == at(2025, 4, 5, 6, 7, 8)
    assert stated_time("[Ana] Hi.", "chat", {"startedAt": ["2025"]}) is None


def test_a_passage_has_the_time_of_its_first_message() -> None:
    times = (MessageTime(10, NOON), MessageTime(20, NOON + HOUR))
    assert time_at(times, 10, 30, at(2000, 1, 1)) == NOON
    assert time_at(times, 15, 30, at(2000, 1, 1)) == NOON, "inside the first message"
    assert time_at(times, 20, 30, at(2000, 1, 1)) == NOON + HOUR
    assert time_at(times, 0, 30, at(2000, 1, 1)) == NOON, "behind a title"
    assert time_at(times, 0, 10, at(2000, 1, 1)) == at(2000, 1, 1)
    assert time_at((), 0, 10, NOON) == NOON


def test_a_submitted_time_counts_before_a_stated_one_and_that_before_now() -> None:
    dated = DocumentInput("---\ndate: 2024-02-29\n---\nText.", "documentation", "s", "a.md", occurred_at=NOON)
    assert event_time(dated, NOON + HOUR) == NOON
    stated = DocumentInput(dated.content, "documentation", "s", "a.md")
    assert event_time(stated, NOON) == at(2024, 2, 29)
    assert event_time(DocumentInput("Text.", "documentation", "s", "a.md"), NOON) == NOON


def test_an_unchanged_file_is_only_ever_older_than_known() -> None:
    def other(time: datetime | None, channel: Channel) -> bool:
        draft = DocumentInput("x", "documentation", "s", "a.md", channel=channel, occurred_at=time)
        return has_other_time(draft, Stored("hash", True, (), NOON))

    assert [other(time, Channel.FILE) for time in (None, NOON - HOUR, NOON, NOON + HOUR)] == [False, True, False, False]
    assert [other(time, Channel.TOOL) for time in (None, NOON - HOUR, NOON, NOON + HOUR)] == [False, True, False, True]


@given(st.text("0123456789-:T Z+./", max_size=40))
def test_whatever_stands_for_a_time_is_read_or_left(text: str) -> None:
    found = parsed(text)
    assert found is None or found.utcoffset() == timedelta(0)


@given(st.lists(st.builds(MessageTime, st.integers(0, 10**7), st.datetimes(timezones=st.just(UTC))), max_size=5))
def test_times_come_back_as_they_were_packed(times: list[MessageTime]) -> None:
    assert unpacked_times(packed_times(times)) == tuple(times)


def test_times_of_other_zones_are_the_same_moments() -> None:
    there = MessageTime(0, NOON.astimezone(timezone(timedelta(hours=-7))))
    assert unpacked_times(packed_times([there])) == (MessageTime(0, NOON),)


@pytest.mark.parametrize(
    ("until", "as_of", "end"),
    [
        (None, None, None),
        (NOON, None, NOON),
        (None, NOON, NOON + timedelta(microseconds=1)),
        (NOON, NOON, NOON),
        (NOON + HOUR, NOON, NOON + timedelta(microseconds=1)),
        (NOON, datetime.max.replace(tzinfo=UTC), NOON),
    ],
)
def test_as_of_a_moment_is_up_to_and_with_it_and_the_earlier_bound_counts(
    until: datetime | None, as_of: datetime | None, end: datetime | None
) -> None:
    assert end_of(until, as_of) == end
