"""Of what agents' clients write down, only what a person or the model said is taken (C-4)."""

import json
from datetime import datetime

import pytest

from rag_context.files.formats.converter import SNIFFED_BYTES, format_of
from rag_context.files.formats.exchange import ConversionError, Extracted
from rag_context.files.formats.worker import extract
from rag_context.files.histories.client_records import Marks, Preface, counted
from rag_context.resilience.confinement import ProcessLimits
from tests.files import transcripts
from tests.files.test_formats import spoken
from tests.files.transcripts import AGAIN, ANSWERED, ASKED, CLOSED, FILES, INJECTED


def taken(name: str, content: str) -> Extracted:
    data = content.encode()
    format_ = format_of(name, data[:SNIFFED_BYTES])
    assert format_ is not None
    (document,) = extract(format_, name, data, b"", ProcessLimits())
    return document


@pytest.mark.parametrize("name", FILES)
def test_what_both_sides_say_is_read_and_nothing_else(name: str) -> None:
    found = taken(name, FILES[name])
    assert spoken(found) == [("User", ASKED), ("Assistant", ANSWERED), ("User", AGAIN), ("Assistant", CLOSED)]
    assert INJECTED not in found.content
    assert found.content_type == "chat"


@pytest.mark.parametrize(
    ("name", "left_out"),
    [
        (
            "claude/claude-1.jsonl",
            {
                "other-record": 2, "injected-context": 4, "reasoning-block": 1, "tool-call": 1, "tool-output": 1,
                "subagent-message": 1, "compaction-summary": 2, "command-echo": 2, "client-notice": 2, "repetition": 1,
            },
        ),
        (
            "codex/rollout-2026-01-02-codex-1.jsonl",
            {
                "system-message": 3, "injected-context": 4, "other-record": 1, "reasoning-block": 1, "tool-call": 1,
                "tool-output": 1, "compaction-summary": 1,
            },
        ),
        (
            "gemini/session-2026-01-02-gemini-1.jsonl",
            {"injected-context": 3, "reasoning-block": 2, "tool-call": 1, "tool-output": 1, "client-notice": 1},
        ),
        (
            "copilot/events.jsonl",
            {
                "system-message": 1, "injected-context": 2, "other-record": 2, "tool-call": 1, "tool-output": 1,
                "subagent-message": 1, "compaction-summary": 1,
            },
        ),
        (
            "qwen/qwen-1.jsonl",
            {"other-record": 1, "injected-context": 1, "reasoning-block": 1, "tool-call": 1, "tool-output": 1},
        ),
        ("cline/cline-1.messages.json", {"tool-call": 1, "tool-output": 1}),
        (
            "roo/api_conversation_history.json",
            {"injected-context": 3, "tool-call": 1, "tool-output": 2, "reasoning-block": 1},
        ),
    ],
)  # fmt: skip
def test_what_is_left_out_is_counted(name: str, left_out: dict[str, int]) -> None:
    assert dict(taken(name, FILES[name]).left_out) == left_out


@pytest.mark.parametrize(
    "name", [name for name in FILES if not any(each in name for each in ("roo", "continue", "cursor", "aider"))]
)
def test_the_times_of_messages_are_kept(name: str) -> None:
    found = taken(name, FILES[name])
    assert found.extra["startedAt"] == "2026-01-02T03:04:05Z"
    began, ended = (datetime.fromisoformat(str(found.extra[name])) for name in ("startedAt", "endedAt"))
    times = [at for _, at in found.message_times]
    seconds = (min(times) // 1_000_000, max(times) // 1_000_000)
    assert seconds == (began.timestamp(), ended.timestamp())
    assert {found.content[start] for start, _ in found.message_times} == {"["}


def test_a_message_longer_than_what_is_sniffed_is_recognised_and_complete() -> None:
    long = 'A word. \\ "and" é 😀 ' * 17_500
    assert len(long) > 348_853
    for name, content in FILES.items():
        written = long.strip() if name.endswith(".md") else json.dumps(long.strip())[1:-1]
        found = taken(name, content.replace(ASKED, written))
        assert spoken(found)[0] == ("User", long.strip())


def test_a_file_without_messages_is_reported_with_what_it_contains() -> None:
    line = {"type": "user", "sessionId": "s", "isSidechain": True, "message": {"role": "user", "content": "Look."}}
    with pytest.raises(ConversionError, match=r"person or a model; left out: 1 subagent message") as caught:
        taken("agent-1.jsonl", transcripts.lines(line))
    assert caught.value.expected


def test_a_file_that_a_client_is_still_writing_is_read_as_far_as_it_goes() -> None:
    found = taken("s.jsonl", transcripts.claude_code()[:-40])
    assert spoken(found) == [("User", ASKED), ("Assistant", ANSWERED), ("User", AGAIN)]


MARKS = Marks(
    blocks={"note": "injected-context", "other": "command-echo", "private": "private-span"},
    prefaces=(Preface("# Setup", "# End", "injected-context"),),
    unwrapped=("result",),
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<note>a</note> Go.", "Go."),
        ("<note a='1'>a</note>\n\nGo.\n\n<note>b</note>", "Go."),
        ("Go. <note>b</note>", "Go."),
        ("<note>a <note>inner</note> b</note>\nGo.", "Go."),
        ("<note>a <note> inner</note>\nGo.", "Go."),
        ("<note>a</note><other>b</other>", ""),
        ("What does <note> do?", "What does <note> do?"),
        ("What do <note>this</note> and </note> do here?", "What do <note>this</note> and </note> do here?"),
        ("<note>never closed", "<note>never closed"),
        ("</note> Go.", "</note> Go."),
        ("<noted>a</noted>", "<noted>a</noted>"),
        ("The key <private>is 1</private> stays home.", "The key  stays home."),
        ("# Setup\nx\n# End\nGo.", "Go."),
        ("Go.\n# Setup\nx\n# End", "Go."),
        ("# Setup without an end", "# Setup without an end"),
        ("<result>\nGo.\n</result>", "Go."),
        ("", ""),
    ],
)
def test_marked_text_is_removed_and_other_text_stays(text: str, words: str) -> None:
    assert MARKS.words(text)[0] == words


def test_what_was_left_out_is_reported_in_plain_words() -> None:
    kinds = {"tool-output": 3, "compaction-summary": 2, "command-echo": 1, "subagent-message": 0}
    assert counted(kinds) == "1 command echo, 2 compaction summaries, 3 tool outputs"
