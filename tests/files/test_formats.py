"""What is taken out of files of other formats (C-4)."""

import json
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_context.files.formats.converter import format_of
from rag_context.files.formats.exchange import ConversionError, Extracted, Format
from rag_context.files.formats.worker import extract
from rag_context.ingest.chunk_context import own_title
from rag_context.ingest.chunking.prose import conversation
from rag_context.resilience.confinement import ProcessLimits
from tests.files import samples
from tests.outcomes.hostile_files import LAUGHS

NINE = 1_700_038_800.0  # 2023-11-15 09:00 UTC
HOUR = 3600.0


def taken(name: str, data: bytes, beside: bytes = b"") -> list[Extracted]:
    format_ = format_of(name, data)
    assert format_ is not None
    return list(extract(format_, name, data, beside, ProcessLimits()))


def one(name: str, data: bytes) -> str:
    (document,) = taken(name, data)
    return document.content


def reason(name: str, data: bytes) -> str:
    with pytest.raises(ConversionError) as caught:
        taken(name, data)
    return str(caught.value)


def spoken(document: Extracted) -> list[tuple[str, str]]:
    """Speaker and text of each message, read back as the index reads them."""
    text = document.content
    found = [(".".join(block.path), text[block.start : block.end]) for block in conversation(text).turns if block.path]
    assert all(f"[{speaker}] " in said for speaker, said in found)
    return [(speaker, said.split(f"[{speaker}] ", 1)[1].strip()) for speaker, said in found]


def lines(*items: Mapping[str, object]) -> bytes:
    return "\n".join(map(json.dumps, items)).encode()


# PDF


def test_a_pdf_is_a_section_per_page_under_its_title() -> None:
    text = one("a.pdf", samples.pdf(["First page.\nIts second line.", "Second page."], title="The (whole) plan"))
    assert text == (
        '---\ntitle: "The (whole) plan"\n---\n\n'
        "## Page 1\n\nFirst page.\nIts second line.\n\n## Page 2\n\nSecond page.\n\n"
    )
    assert own_title(text, "documentation") == "The (whole) plan"


def test_a_page_of_a_pdf_is_named_after_its_chapter() -> None:
    text = one("a.pdf", samples.pdf(["One.", "Two.", "Three."], chapters={0: "Begin", 2: "End"}))
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "## Page 1: Begin",
        "## Page 2: Begin",
        "## Page 3: End",
    ]


def test_a_sentence_that_continues_over_the_page_is_not_split() -> None:
    text = one("a.pdf", samples.pdf(["It begins here and", "ends there. Another one."]))
    assert text == "## Page 1\n\nIt begins here and\nends there.\n\n## Page 2\n\nAnother one.\n\n"


def test_lines_of_a_pdf_are_no_markup() -> None:
    text = one("a.pdf", samples.pdf(["# include\n```\ncode", "More."]))
    assert "\n\\# include\n\\```\ncode\n\n## Page 2" in text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (samples.pdf(["Secret."], locked=True), "protected by a password"),
        (samples.pdf(["", ""]), "holds no text; scanned pages must be made readable (OCR) first"),
        (samples.pdf(["Whole."])[:200], "not a whole PDF file"),
        (b"%PDF-1.7 and nothing else", "not a whole PDF file"),
        (b"", "empty"),
    ],
)
def test_a_pdf_that_cannot_be_read_says_why(data: bytes, said: str) -> None:
    assert reason("a.pdf", data) == said


# HTML


def test_html_is_what_a_reader_sees_of_it() -> None:
    page = b"""<html><head><title>Shop - Plan</title><style>p {color: red}</style></head><body>
    <nav><a href="/">Home</a></nav><script>steal()</script><div hidden>unseen</div>
    <main><h1>Plan<a class="headerlink" href="#plan">\xc2\xb6</a></h1>
    <p>Use <b>snake_case</b>, see <a href="/x">x</a> and <a href="https://a.example/b">b</a>.</p>
    <ul><li>one</li><li>two</li></ul><img src="http://a.example/pixel.png">
    <pre><code class="language-py">if a:\n    b()</code></pre>
    <table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table></main>
    <footer>All rights</footer></body></html>"""
    assert one("a.html", page) == (
        "# Plan\n\nUse **snake_case**, see x and [b](https://a.example/b).\n\n- one\n- two\n\n"
        "```py\nif a:\n    b()\n```\n\n| k | v |\n| --- | --- |\n| 1 | 2 |\n"
    )


def test_a_page_without_a_heading_has_the_title_of_its_window() -> None:
    text = one("a.htm", b'<title>About "us"</title><p>We are.')
    assert text == '---\ntitle: "About \\"us\\""\n---\n\nWe are.\n'
    assert own_title(text, "documentation") == 'About "us"'


def test_html_is_read_in_the_encoding_it_names() -> None:
    assert one("a.html", '<meta charset="iso-8859-1"><p>café'.encode("latin-1")) == "café\n"
    assert one("a.xhtml", '<?xml version="1.0"?><html><body><p>grün</p></body></html>'.encode()) == "grün\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<html><script>x</script></html>", "holds no text"),
        (b"<p>\0\0\0\x07", "binary, not text"),
        (b"<div>" * 2000 + b"x", "nested too deeply to be for readers"),
        (b"<![foo[x", "not HTML that can be read"),
    ],
)
def test_html_that_cannot_be_read_says_why(data: bytes, said: str) -> None:
    assert reason("a.html", data) == said


def test_an_invalid_address_does_no_harm_to_its_page() -> None:
    page = b'<p>See <a href="http://[your-domain]/x">x</a>, <a href="http://[bad">y</a> and <a href="ftp://[z">z</a>.'
    assert one("a.html", page) == "See [x](http://[your-domain]/x), [y](http://[bad) and z.\n"


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_as_html_end_in_a_text_or_a_reason(data: bytes) -> None:
    try:
        found = taken("a.html", b"<p>" + data)
    except ConversionError:
        return
    assert all(document.content.strip() for document in found)


# Word


def test_a_word_document_keeps_headings_and_tables() -> None:
    cell = "<w:tc>{}</w:tc>"
    row = f"<w:tr>{cell.format(samples.paragraph('k'))}{cell.format(samples.paragraph('v'))}</w:tr>"
    words = samples.paragraph("Plan", "Heading1") + samples.paragraph("We begin &amp; end.")
    body = f"{words}<w:tbl>{row}{row}</w:tbl>"
    text = one("a.docx", samples.word(body))
    assert text.startswith("# Plan\n\nWe begin & end.\n\n|")
    assert "| k | v |" in text


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (samples.word(samples.paragraph("Whole."))[:300], "not a whole Word document"),
        (samples.archive({"a.txt": "no document"}), "not a whole Word document"),
        (samples.word(""), "holds no text"),
        (b"\xd0\xcf\x11\xe0" + "EncryptedPackage".encode("utf-16-le"), "protected by a password"),
        (b"\xd0\xcf\x11\xe0 old", "in Word's format of before 2007"),
        (samples.word("&a;", prologue='<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hosts">]>'), "holds no text"),
        (samples.word(samples.paragraph("&a9;"), prologue=LAUGHS), "not a whole Word document"),
        (
            samples.word("<w:tbl><w:tr><w:tc>" * 999 + "</w:tc></w:tr></w:tbl>" * 999),
            "nested too deeply to be for readers",
        ),
    ],
)
def test_a_word_document_that_cannot_be_read_says_why(data: bytes, said: str) -> None:
    assert reason("a.docx", data) == said


def test_a_word_document_with_entities_that_stand_for_little_is_read() -> None:
    assert one("a.docx", samples.word(samples.paragraph("&a1; and &a0;"), prologue=LAUGHS)) == f"{'ha' * 10} and ha\n"


# Notebooks


def test_a_notebook_is_text_code_and_what_was_printed() -> None:
    data = samples.notebook(
        {"cell_type": "markdown", "source": ["# Title\n", "Some words."]},
        {
            "cell_type": "code",
            "source": "print(1)\n",
            "outputs": [
                {"output_type": "stream", "text": ["1\n"]},
                {"output_type": "display_data", "data": {"image/png": "iVBOR", "text/plain": "<Figure>"}},
                {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["..."]},
            ],
        },
        {"cell_type": "code", "source": "", "outputs": []},
    )
    assert one("a.ipynb", data) == (
        "# Title\nSome words.\n\n```python\nprint(1)\n```\n\n```\n1\n```\n\n```\n<Figure>\n```\n\n"
        "```\nValueError: no\n```\n"
    )


def test_a_notebook_of_the_older_format_is_read_too() -> None:
    cells = [{"cell_type": "heading", "level": 2, "source": "Old"}, {"cell_type": "code", "input": "1 + 1"}]
    assert one("a.ipynb", json.dumps({"worksheets": [{"cells": cells}]}).encode()) == "## Old\n\n```\n1 + 1\n```\n"


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"{", "not a whole notebook"), (b"[" * 99999, "not a whole notebook"), (b"{}", "not a notebook"),
     (samples.notebook(), "holds no text")],
)  # fmt: skip
def test_a_notebook_that_cannot_be_read_says_why(data: bytes, said: str) -> None:
    assert reason("a.ipynb", data) == said


# Conversations


def test_each_conversation_of_a_chatgpt_export_is_a_document() -> None:
    first = samples.conversation(
        "c1",
        'Trip to "Rome"',
        ("system", "be nice", NINE),
        ("user", "When does it leave?\n[draft] of\nNote: mine", NINE),
        ("assistant", "At nine.", NINE + 60),
        ("user", "Thanks", NINE + 2 * HOUR),
    )
    second = samples.conversation("c2", "Other", ("user", "Hi", NINE), ("assistant", "Ho", NINE))
    rome, other = taken("conversations.json", samples.chatgpt(first, second))
    assert rome.content == (
        '---\ntitle: "Trip to \\"Rome\\""\n---\n\n'
        "[2023-11-15 09:00] [User] When does it leave?\n    [draft] of\nNote: mine\n"
        "[Assistant] At nine.\n"
        "[2023-11-15 11:00] [User] Thanks\n"
    )
    assert (rome.content_type, rome.part, rome.session_id) == ("chat", "c1", "c1")
    assert rome.extra == {
        "startedAt": "2023-11-15T09:00:00Z",
        "endedAt": "2023-11-15T11:00:00Z",
        "speakers": ["User", "Assistant"],
        "turns": 3,
    }
    starts = [rome.content.index(said) for said in ("[2023-11-15 09:00]", "[Assistant]", "[2023-11-15 11:00]")]
    at = [int(seconds) * 1_000_000 for seconds in (NINE, NINE + 60, NINE + 2 * HOUR)]
    assert list(rome.message_times) == list(zip(starts, at, strict=True))
    assert own_title(rome.content, "chat") == 'Trip to "Rome"'
    assert spoken(rome)[0] == ("User", "When does it leave?\n    [draft] of\nNote: mine")
    assert spoken(other) == [("User", "Hi"), ("Assistant", "Ho")]


def test_of_an_edited_conversation_the_branch_that_was_open_counts() -> None:
    talk = samples.conversation("c", "T", ("user", "first try", NINE), ("user", "second try", NINE + 1))
    mapping = talk["mapping"]
    assert isinstance(mapping, dict)
    mapping["c-1"]["parent"] = "root"
    (found,) = taken("conversations.json", samples.chatgpt(talk))
    assert spoken(found) == [("User", "second try")]
    mapping["root"]["parent"] = "c-1"  # a loop, which no export should have
    del talk["current_node"]
    (found,) = taken("conversations.json", samples.chatgpt(talk))
    assert spoken(found) == [("User", "second try")]


def test_a_claude_export_carries_attached_texts() -> None:
    messages = [
        {
            "sender": "human",
            "text": "See this",
            "content": [{"type": "text", "text": "See this"}],
            "created_at": "2024-03-01T08:00:00.000000Z",
            "attachments": [{"file_name": "a.txt", "extracted_content": "Inside."}],
        },
        {"sender": "assistant", "text": "Seen", "created_at": "2024-03-01T08:00:10Z"},
    ]
    export = [{"uuid": "u1", "name": "Reading", "created_at": "", "chat_messages": messages}]
    (found,) = taken("conversations.json", json.dumps(export).encode())
    assert spoken(found) == [("User", "See this\n\n<attachment>\nInside.\n</attachment>"), ("Assistant", "Seen")]
    assert (found.session_id, found.extra["startedAt"]) == ("u1", "2024-03-01T08:00:00Z")


def test_a_session_of_claude_code_becomes_its_messages() -> None:
    def message(role: str, content: object, **more: object) -> dict[str, object]:
        said = {"role": role, "content": content}
        return {"type": role, "sessionId": "s1", "timestamp": "2025-05-01T10:00:00Z", "message": said, **more}

    data = lines(
        {"type": "summary", "summary": "Fix the build"},
        message("user", "Why red?"),
        message("assistant", [{"type": "text", "text": "I look."}, {"type": "tool_use", "name": "Bash", "input": {}}]),
        message("user", [{"type": "tool_result", "content": "logs"}]),
        message("assistant", [{"type": "text", "text": "A typo."}]),
        message("user", "hidden", isMeta=True),
        message("assistant", "of another agent", isSidechain=True),
    )
    (found,) = taken("s1.jsonl", data)
    assert spoken(found) == [("User", "Why red?"), ("Assistant", "I look.\n\nA typo.")]
    assert (found.session_id, own_title(found.content, "chat")) == ("s1", "Fix the build")


def test_a_session_of_codex_becomes_its_messages() -> None:
    def message(role: str, kind: str, text: str) -> dict[str, object]:
        payload = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        return {"timestamp": "2025-06-01T10:00:00.000Z", "type": "response_item", "payload": payload}

    data = lines(
        {"timestamp": "2025-06-01T10:00:00.000Z", "type": "session_meta", "payload": {"id": "x1", "cwd": "/w"}},
        message("user", "input_text", "Run it"),
        {"type": "response_item", "payload": {"type": "function_call", "name": "shell"}},
        message("assistant", "output_text", "Done"),
    )
    (found,) = taken("rollout-1.jsonl", data)
    assert (found.session_id, spoken(found)) == ("x1", [("User", "Run it"), ("Assistant", "Done")])


def test_a_day_of_slack_has_names_and_answers_behind_what_they_answer() -> None:
    users = [{"id": "U1", "name": "ann", "profile": {"display_name": "Ann"}}, {"id": "U2", "real_name": "Bob B"}]

    def message(at: int, text: str, user: str, **more: str) -> dict[str, str]:
        return {"type": "message", "user": user, "text": text, "ts": f"{1700038800 + at}.000100", **more}

    thread = {"thread_ts": "1700038800.000100"}
    day = [
        message(0, "Who &amp; when? <@U2>", "U1", **thread),
        message(10, "Lunch?", "U2"),
        message(20, "Me", "U2", **thread),
        {"type": "message", "subtype": "bot_message", "bot_id": "B1", "text": "Built", "ts": "1700038830.000100"},
    ]
    (found,) = taken("export/general/2023-11-15.json", json.dumps(day).encode(), json.dumps(users).encode())
    assert found.session_id == "general"
    assert spoken(found) == [("Ann", "Who & when? @Bob B"), ("Bob B", "Me"), ("Bob B", "Lunch?"), ("Bot", "Built")]


@pytest.mark.parametrize("users", [b"", b"lost", b'[{"id": "U1", "name": "Ann"}, {"id":'])
def test_a_day_of_slack_is_read_without_its_users_too(users: bytes) -> None:
    day = [{"type": "message", "user": "U1", "text": "Lunch?", "ts": "1700038800.000100"}]
    (found,) = taken("general/2023-11-15.json", json.dumps(day).encode(), users)
    assert spoken(found) == [("Ann" if b"Ann" in users else "U1", "Lunch?")]


SECOND = 1_704_161_045  # 2024-01-02 02:04:05 UTC


@pytest.mark.parametrize(
    "transcript",
    [
        [
            {"speaker": "Ann", "text": "hi", "time": "2024-01-02T03:04:05+01:00"},
            {"speaker": "Bob", "text": "ho", "time": "2024-01-02 02:05"},
        ],
        {
            "title": "A talk",
            "messages": [
                {"author": {"username": "Ann"}, "content": "hi", "timestamp": SECOND},
                {"author": {"name": "Bob"}, "content": "ho", "timestamp": SECOND * 1000 + 1},
            ],
        },
        {
            "name": "A group",
            "messages": [
                {"date": "2024-01-02T02:04:05", "from": "Ann", "text": ["h", {"type": "bold", "text": "i"}]},
                {"date": "2024-01-02T02:05:05", "from": "Bob", "text": "ho"},
            ],
        },
        [{"sender": "@Ann", "body": "hi", "ts": f"{SECOND}.5"}, {"sender": "Bob", "body": "ho", "ts": SECOND}],
    ],
)
def test_a_transcript_is_read_whatever_its_fields_are_called(transcript: object) -> None:
    (found,) = taken("a.json", json.dumps(transcript).encode())
    assert spoken(found) == [("Ann", "hi"), ("Bob", "ho")]
    assert "[2024-01-02 02:04] [Ann] hi\n" in found.content
    assert found.session_id == "a"
    if isinstance(transcript, list):
        assert taken("a.jsonl", lines(*transcript)) == [found]


@pytest.mark.parametrize("name", ["talk.json", "talk.jsonl"])
def test_a_tool_call_is_a_message_without_text(name: str) -> None:
    talk: list[dict[str, object]] = [
        {"role": "user", "content": "How deep is it?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "9 m"},
        {"role": "assistant", "content": "Nine metres."},
    ]
    (found,) = taken(name, json.dumps(talk).encode() if name == "talk.json" else lines(*talk))
    assert spoken(found) == [("User", "How deep is it?"), ("Assistant", "Nine metres.")]
    assert found.left_out == {"tool-output": 1}


def test_each_line_that_contains_a_conversation_is_one() -> None:
    data = lines(
        {"id": "t1", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        {"conversations": [{"from": "human", "value": "c"}, {"from": "gpt", "value": "d"}]},
    )
    first, second = taken("talks.jsonl", data)
    assert (first.part, spoken(first)) == ("t1", [("User", "a"), ("Assistant", "b")])
    assert (second.part, spoken(second)) == ("talks-2", [("User", "c"), ("Assistant", "d")])


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("package.json", b'{"name": "x", "version": "1", "scripts": {"a": "b"}}'),
        ("data.json", b'[{"name": "Rome", "text": "a town"}]'),
        ("data.json", b'[1, 2, 3]'),
        ("data.json", b'"text"'),
        ("data.json", b""),
        ("corpus.jsonl", b'{"_id": "1", "title": "t", "text": "words"}\n'),
        ("ours.jsonl", b'{"content": "x", "contentType": "chat", "sessionId": "s", "source": "a", "role": "user"}\n'),
        ("log.ndjson", b'{"level": "info", "message": "started", "ts": 1}\n'),
        ("log.ndjson", b'{"role": "db", "content": null}\n'),
        ("users.json", b'[{"id": "U1", "name": "ann", "profile": {}}]'),
        ("a.txt", b"[Ann] hi"),
        ("a.md", b"# hi"),
        ("a.py", b"print()"),
    ],
)  # fmt: skip
def test_other_files_stay_as_they_are(name: str, data: bytes) -> None:
    assert format_of(name, data) is None


def test_an_export_that_breaks_off_gives_what_precedes() -> None:
    talks = [samples.conversation(f"c{number}", "T", ("user", f"turn {number}", NINE)) for number in range(3)]
    data = samples.chatgpt(*talks)[:-100]
    found: list[Extracted] = []
    reading: Iterator[Extracted] = extract(Format.CHATGPT, "conversations.json", data, b"", ProcessLimits())
    with pytest.raises(ConversionError, match="breaks off or is broken; what precedes that was indexed"):
        for document in reading:
            found.append(document)  # noqa: PERF402  # what came before the error is what counts
    assert [document.part for document in found] == ["c0", "c1"]


def test_a_conversation_longer_than_a_document_comes_in_parts_of_whole_messages() -> None:
    said = "word " * 100_000
    talk = samples.conversation("c", "Long", *[("user", f"{number} {said}", NINE) for number in range(7)])
    found = taken("conversations.json", samples.chatgpt(talk))
    assert [document.part for document in found] == ["c", "c-2", "c-3"]
    assert [text.split(" ", 1)[0] for document in found for _, text in spoken(document)] == list("0123456")
    assert {document.session_id for document in found} == {"c"}


@given(
    st.lists(
        st.tuples(st.sampled_from(["user", "assistant"]), st.text(alphabet="ab[]<>:#*1-\n\r \t`é", max_size=60)),
        min_size=1,
        max_size=8,
    )
)
def test_a_message_is_recognised_whatever_its_text(said: list[tuple[str, str]]) -> None:
    talk = samples.conversation("c", "", *[(role, text, NINE) for role, text in said])
    expected = [("User" if role == "user" else "Assistant", text) for role, text in said if text.strip()]
    try:
        (found,) = taken("conversations.json", samples.chatgpt(talk))
    except ConversionError:
        assert not expected
        return
    assert [speaker for speaker, _ in spoken(found)] == [speaker for speaker, _ in expected]
    for (_, written), (_, text) in zip(spoken(found), expected, strict=True):
        assert written.split() == text.split()
