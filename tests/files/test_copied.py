"""Conversations that were exported or copied as text are read as conversations, with their speakers and times (C-7)."""

import json

import pytest

from rag_context.files.formats.converter import format_of
from rag_context.files.formats.exchange import ConversionError, Extracted, Format
from rag_context.files.formats.worker import extract
from rag_context.files.histories.conversation import written_time
from rag_context.resilience.confinement import ProcessLimits
from tests.files.test_formats import spoken

AT = "2024-12-31T22:59:00Z"
PEOPLE = [("Anna Berg", "Which pump failed?\nThe one of pontoon C?"), ("+49 170 1234567", "The bilge pump.")]
COPIES = {
    "android.txt": """12/31/24, 10:50 PM - Messages and calls are end-to-end encrypted.
12/31/24, 10:59 PM - Anna Berg: Which pump failed?
The one of pontoon C?
12/31/24, 11:00 PM - Anna Berg: <Media omitted>
1/1/25, 9:05 AM - +49 170 1234567: The bilge pump.
""",
    "german.txt": """31.12.24, 22:59 - Anna Berg: Which pump failed?
The one of pontoon C?
31.12.24, 23:00 - Anna Berg hat die Gruppe verlassen
01.01.25, 09:05 - +49 170 1234567: The bilge pump.
""",
    "ios.txt": """[31/12/2024, 22:59:00] Anna Berg: Which pump failed?
The one of pontoon C?
\u200e[31/12/2024, 23:01:09] Anna Berg: \u200eimage omitted
[01/01/2025, 09:05:00] +49 170 1234567: The bilge pump.
""",
    "slack.md": """31.12.2024

Anna Berg  10:59 PM
Which pump failed?
The one of pontoon C?
Ben  11:05 PM
The bilge pump.
""",
    "teams.txt": """[31/12/2024 10:59 PM] Anna Berg
Which pump failed?
The one of pontoon C?
[31/12/2024 11:05 PM] Ben
The bilge pump.
""",
    "chatml.txt": """<|im_start|>system
You know pumps.<|im_end|>
<|im_start|>user
Which pump failed?
The one of pontoon C?<|im_end|>
<|im_start|>assistant
The bilge pump.<|im_end|>
""",
    "page.txt": "You said:\nWhich pump failed?\nThe one of pontoon C?\nChatGPT said:\nThe bilge pump.\n",
    "tuning.md": "### Human: Which pump failed?\nThe one of pontoon C?\n### Assistant: The bilge pump.\n",
    "alpaca.md": "### Instruction:\nWhich pump failed?\nThe one of pontoon C?\n\n### Response:\nThe bilge pump.\n",
}


def taken(name: str, content: str) -> Extracted:
    format_ = format_of(name, content.encode()[:4096])
    assert format_ in (Format.COPIED, Format.TRANSCRIPT)
    (document,) = extract(format_, name, content.encode(), b"", ProcessLimits())
    return document


@pytest.mark.parametrize("name", COPIES)
def test_a_copied_conversation_is_read_with_its_speakers(name: str) -> None:
    found = taken(name, COPIES[name])
    (first, asked), (second, answered) = spoken(found)
    assert (asked.replace("\n    ", "\n"), answered) == (PEOPLE[0][1], PEOPLE[1][1])
    expected = {"User", "Assistant"} if name in ("chatml.txt", "page.txt", "tuning.md", "alpaca.md") else {"Anna Berg"}
    assert first in expected
    assert second in {"Assistant", "Ben", "User +49 170 1234567"}
    assert found.content_type == "chat"


@pytest.mark.parametrize("name", ["android.txt", "german.txt", "ios.txt", "slack.md", "teams.txt"])
def test_its_times_are_read_in_the_order_that_fits_all_of_them(name: str) -> None:
    assert taken(name, COPIES[name]).extra["startedAt"] == AT


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notes.md", "# Notes\n\n- 12/31/24, 10:59 PM - meeting\n- You said: nothing\n"),
        ("log.txt", "[31/12/2024 10:59:00] server started\n[31/12/2024 10:59:01] server stopped\n"),
        ("talk.txt", "Anna: Hello.\nBen: Hello.\n"),
        ("readme.md", "### Installation\n\nRun it.\n\n### Response codes\n\nMany.\n"),
        ("code.py", "You said:\nChatGPT said:\n"),
        ("times.txt", "Opening  10:00\nClosing: 11:00\n"),
        ("cut.txt", "12/31/24, 10:59 PM - Anna"),
    ],
)
def test_other_texts_are_no_copied_conversations(name: str, text: str) -> None:
    assert format_of(name, text.encode()) is None


def test_a_list_of_messages_with_other_times_is_a_conversation() -> None:
    said = [
        {"speaker": "Anna", "text": "Which pump failed?", "timestamp": "1:56 pm on 8 May, 2023"},
        {"speaker": "Ben", "text": "The bilge pump.", "timestamp": "2:01 pm on 8 May, 2023"},
    ]
    found = taken("talk.json", json.dumps(said))
    assert spoken(found) == [("Anna", "Which pump failed?"), ("Ben", "The bilge pump.")]
    assert found.extra["startedAt"] == "2023-05-08T13:56:00Z"


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1:56 pm on 8 May, 2023", "2023-05-08T13:56"),
        ("May 8th, 2023 12:05 AM", "2023-05-08T00:05"),
        ("8 May 2023", "2023-05-08T00:00"),
        ("Mon, 08 May 2023 13:56:00 +0200", "2023-05-08T11:56"),
        ("31.12.2024 23:59", "2024-12-31T23:59"),
        ("12/31/24, 11:59\u202fPM", "2024-12-31T23:59"),
        ("2024/12/31 23.59", "2024-12-31T23:59"),
        ("05/06/2024", "2024-06-05T00:00"),
        ("31.02.2024", None),
        ("May", None),
        ("version 1.2.3", None),
        ("8 May 2023 " * 10, None),
        ("", None),
    ],
)
def test_times_are_read_as_people_write_them(text: str, time: str | None) -> None:
    found = written_time(text)
    assert (found and f"{found:%Y-%m-%dT%H:%M}") == time


def test_hostile_texts_are_read_in_linear_time() -> None:
    for text in (
        "[1/1/24, 1:00] a" * 20_000,
        "A  " * 100_000,
        "A" + " " * 200_000 + "\n1:00",
        "1/1/24, 1:00 - " * 20_000,
    ):
        assert format_of("x.txt", text.encode()) in (None, Format.COPIED)
    with pytest.raises(ConversionError):
        taken("x.txt", "You said:\nChatGPT said:\n")
