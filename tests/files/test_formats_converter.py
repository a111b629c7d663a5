"""Files of other formats are opened apart: bounded, without a network, one broken one never in the way (C-4)."""

import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest

import rag_context
from rag_context.files.formats.converter import Converter
from rag_context.files.formats.exchange import OWNER, ConversionError, Extracted, Format
from rag_context.resilience.confinement import ProcessLimits
from rag_context.resilience.worker_processes import WorkersClosedError
from tests.files import samples

LIMITS = ProcessLimits(cpu_s=1, wall_s=60.0, memory_bytes=256 << 20, unpacked_bytes=8 << 20)
PAGE = samples.pdf(["Whole."])


@pytest.fixture(scope="module")
def converter() -> Iterator[Converter]:
    with Converter(LIMITS, workers=2) as made:
        yield made


def content(converter: Converter, format_: Format, data: bytes) -> str:
    (document,) = converter.documents(format_, Path("a"), data)
    return document.content


def reason(converter: Converter, format_: Format, data: bytes) -> str:
    with pytest.raises(ConversionError) as caught:
        list(converter.documents(format_, Path("a"), data))
    return str(caught.value)


def bomb(size: int) -> bytes:
    """A Word document whose text unpacks to `size` bytes."""
    written = BytesIO(samples.word(""))
    with zipfile.ZipFile(written, "a", zipfile.ZIP_DEFLATED) as file, file.open("word/comments.xml", "w") as part:
        for _ in range(size >> 20):
            part.write(b" " * (1 << 20))
    return written.getvalue()


def laughs() -> bytes:
    """A Word document of nested entities, each many times the one before."""
    names = "abcdefghij"
    entities = '<!ENTITY a "ha ha ha ha">' + "".join(
        f'<!ENTITY {name} "{f"&{inner};" * 20}">' for inner, name in pairwise(names)
    )
    return samples.word(samples.paragraph("&j;"), prologue=f"<!DOCTYPE x [{entities}]>")


def test_the_extracted_text_is_the_same_as_in_this_process(converter: Converter) -> None:
    talk = samples.conversation("c", "Täst", ("user", "hi \ud83d\ude00", 1_700_000_000.0))
    (document,) = converter.documents(Format.CHATGPT, Path("conversations.json"), samples.chatgpt(talk))
    assert document == Extracted(
        '---\ntitle: "Täst"\n---\n\n[2023-11-14 22:13] [User] hi 😀\n',
        "chat",
        "c",
        "c",
        {"startedAt": "2023-11-14T22:13:20Z", "endedAt": "2023-11-14T22:13:20Z", "speakers": ["User"], "turns": 1},
        origin=OWNER,
        message_times=[(23, 1_700_000_000_000_000)],
        keys=[],
    )


@pytest.mark.parametrize(
    ("format_", "data", "message"),
    [
        (Format.HTML, b"<b><i><a href=x>" * 300_000, "takes more than 1 s of computing"),
        (Format.HTML, b"<p>x y</p>" * 2_000_000, "needs more than 256 MiB of memory|takes more than 1 s of computing"),
        (Format.HTML, b"<div>" * 20_000, "nested too deeply to be for readers|holds no text|takes more than 1 s"),
        (Format.WORD, bomb(9 << 20), r"unpacks to \d+ bytes, more than 8388608"),
        (Format.WORD, laughs(), "not a whole Word document|takes more than 1 s of computing"),
        (Format.PDF, samples.pdf(["x" * 60] * 40_000), "takes more than 1 s|holds more than 2000000 characters"),
        (Format.PDF, samples.pdf(["Secret."], locked=True), "protected by a password"),
        (Format.PDF, PAGE[: len(PAGE) // 2], "not a whole PDF file"),
        (Format.NOTEBOOK, b'{"cells": ' + b"[" * 100_000, "not a whole notebook"),
    ],
)
def test_a_bomb_ends_in_a_reason_and_the_next_file_is_read(
    converter: Converter, format_: Format, data: bytes, message: str
) -> None:
    with pytest.raises(ConversionError, match=message):
        list(converter.documents(format_, Path("bomb"), data))
    assert content(converter, Format.PDF, PAGE) == "## Page 1\n\nWhole.\n\n"


def children() -> set[str]:
    """The processes that this one has started and not seen the end of."""
    return set(Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split())


def test_no_process_starts_before_the_first_file_and_one_serves_many() -> None:
    before = children()
    with Converter(LIMITS) as converter:
        assert children() == before
        content(converter, Format.NOTEBOOK, samples.notebook({"cell_type": "markdown", "source": "a"}))
        started = children() - before
        content(converter, Format.PDF, PAGE)
        assert reason(converter, Format.PDF, b"no PDF") == "not a whole PDF file"
        assert children() - before == started
        assert len(started) == 1
    assert children() == before


def test_a_conversation_that_is_not_read_to_its_end_keeps_no_caller_waiting() -> None:
    talks = [samples.conversation(f"c{number}", "", ("user", "words " * 50_000, 1.0)) for number in range(20)]
    before = children()
    with Converter(LIMITS, workers=1) as converter:
        reading = converter.documents(Format.CHATGPT, Path("a"), samples.chatgpt(*talks))
        assert next(reading).part == "c0"
        reading.close()
        assert content(converter, Format.PDF, PAGE)
    assert children() == before


def test_closing_ends_the_busy_process_and_reports_nothing_about_its_file() -> None:
    talks = [samples.conversation(f"c{number}", "", ("user", "words " * 50_000, 1.0)) for number in range(20)]
    before = children()
    with Converter(LIMITS, workers=1) as converter:
        reading = converter.documents(Format.CHATGPT, Path("a"), samples.chatgpt(*talks))
        assert next(reading).part == "c0"
        converter.close()
        with pytest.raises(WorkersClosedError):
            list(reading)
        with pytest.raises(WorkersClosedError):
            content(converter, Format.PDF, PAGE)
    assert children() == before


def test_many_threads_share_the_processes(converter: Converter) -> None:
    found: list[str] = []
    data = [samples.pdf([f"Number {number}."]) for number in range(12)]
    threads = [
        threading.Thread(target=lambda one=one: found.append(content(converter, Format.PDF, one))) for one in data
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(f"## Page 1\n\nNumber {number}.\n\n" for number in range(12))


def test_a_day_of_slack_is_read_with_the_names_that_lie_beside_it(converter: Converter, tmp_path: Path) -> None:
    day = tmp_path / "general" / "2024-01-02.json"
    day.parent.mkdir()
    day.write_text(json.dumps([{"type": "message", "user": "U1", "text": "hi", "ts": "1704161045.0"}]))
    (tmp_path / "users.json").write_text(json.dumps([{"id": "U1", "profile": {"real_name": "Ann Lee"}}]))
    (document,) = converter.documents(Format.SLACK, day, day.read_bytes())
    assert document.content == "[2024-01-02 02:04] [Ann Lee] hi\n"
    assert document.session_id == "general"


def test_a_module_in_the_folder_takes_no_librarys_place(tmp_path: Path, converter: Converter) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('taken over')")
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        with Converter(LIMITS) as made:
            assert content(made, Format.PDF, PAGE)
    finally:
        os.chdir(here)


def by_itself(program: str, *flags: str) -> str:
    """What a Python of its own prints; it sees our source and, with `-S`, no installed package."""
    source = Path(rag_context.__file__).parent.parent
    message = f"import sys; sys.path.insert(0, {str(source)!r})\n{program}"
    command = [sys.executable, "-I", *flags, "-c", message]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return ran.stdout.strip()


def test_without_the_extra_the_reason_names_the_command_and_conversations_are_read_all_the_same() -> None:
    program = """
from pathlib import Path
from rag_context.files.formats.converter import Converter
from rag_context.files.formats.exchange import ConversionError, Format

talk = b'[{"role": "user", "content": "hi"}]'
with Converter() as converter:
    print(next(iter(converter.documents(Format.TRANSCRIPT, Path("a.json"), talk))).content.strip())
    for format_ in (Format.PDF, Format.WORD, Format.HTML):
        try:
            list(converter.documents(format_, Path("a"), b"x"))
        except ConversionError as error:
            print(error)
"""
    command = "run `pip install 'rag-context[formats]'`"  # what is installed, and how, is not known there either
    assert by_itself(program, "-S").splitlines() == [
        "[User] hi",
        f"PDF files need pypdfium2: {command}",
        f"Word files need mammoth and markdownify: {command}",
        f"HTML files need markdownify: {command}",
    ]


@pytest.mark.parametrize(
    "attempt",
    [
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.fork()",
    ],
)
def test_a_worker_has_no_network_and_starts_no_programs(attempt: str) -> None:
    program = f"""
from rag_context.resilience.confinement import ProcessLimits, confine

confine(ProcessLimits())
try:
    {attempt}
except PermissionError:
    print("refused")
"""
    assert by_itself(program) == "refused"
