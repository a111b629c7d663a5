"""A promotion level is written into the file, and nothing else of it changes."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.projects.front_matter import promoted, read_front_matter, rewrite
from rag_context.projects.records import FileSystemError, PromotionLevel, SchemaValidationError

STANDARD, IMPORTANT, CRITICAL = PromotionLevel


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("---\ntitle: x\n---\nbody\n", "---\ntitle: x\npromotion_level: critical\n---\nbody\n"),
        ("---\npromotion_level: standard\ntitle: x\n---\n", "---\npromotion_level: critical\ntitle: x\n---\n"),
        ("---\npromotion_level:   'standard'   # why\n---\n", "---\npromotion_level:   critical   # why\n---\n"),
        ("---\npromotion_level: >\n  standard\ntitle: x\n---\n", "---\npromotion_level: critical\ntitle: x\n---\n"),
        ("---\npromotion_level:\ntitle: x\n---\n", "---\npromotion_level: critical\ntitle: x\n---\n"),
        ("---\npromotion_level: urgent\n---\n", "---\npromotion_level: critical\n---\n"),
        ("---\n'promotion_level' : standard\n---\n", "---\n'promotion_level' : critical\n---\n"),
        (
            "---\nnotes: |\n  promotion_level: standard\n---\n",
            "---\nnotes: |\n  promotion_level: standard\npromotion_level: critical\n---\n",
        ),
        ("---\n{title: x}\n---\n", "---\n{promotion_level: critical, title: x}\n---\n"),
        ("---\n{}\n---\n", "---\n{promotion_level: critical}\n---\n"),
        ("---\n  title: x\n  tags: [a]\n---\n", "---\n  title: x\n  tags: [a]\n  promotion_level: critical\n---\n"),
        ("---\n---\nbody", "---\npromotion_level: critical\n---\nbody"),
        ("---\n# nothing yet\n---\nbody", "---\n# nothing yet\npromotion_level: critical\n---\nbody"),
        ("---\r\ntitle: x\r\n---\r\nbody\r\n", "---\r\ntitle: x\r\npromotion_level: critical\r\n---\r\nbody\r\n"),
        ("\ufeff---\ntitle: é x\n---\nb", "\ufeff---\ntitle: é x\npromotion_level: critical\n---\nb"),
        ("---\ntitle: 🦊\npromotion_level: standard\n...\nb", "---\ntitle: 🦊\npromotion_level: critical\n...\nb"),
        ("# Title\n", "---\npromotion_level: critical\n---\n\n# Title\n"),
        ("# Title\r\nx", "---\r\npromotion_level: critical\r\n---\r\n\r\n# Title\r\nx"),
        ("\ufeff# Title\n", "\ufeff---\npromotion_level: critical\n---\n\n# Title\n"),
        ("---\nnever closed\n", "---\npromotion_level: critical\n---\n\n---\nnever closed\n"),
        ("", "---\npromotion_level: critical\n---\n\n"),
    ],
)  # fmt: skip
def test_only_the_level_changes(before: str, after: str) -> None:
    assert promoted(before, CRITICAL) == after
    assert promoted(after, CRITICAL) == after
    assert read_front_matter(promoted(after, STANDARD)).promotion_level is STANDARD


def test_a_document_that_is_standard_without_saying_so_stays_as_it_is() -> None:
    for text in ("# Title\n", "---\ntitle: x\n---\n", ""):
        assert promoted(text, STANDARD) == text


@pytest.mark.parametrize(
    "text",
    [
        "---\ntitle: [x\n---\n",
        "---\n- a\n---\n",
        "---\nwords\n---\n",
        "---\na: &x 1\nb: *x\n---\n",
        "---\n\tx: 1\n---\n",
        "---\nx: " + "y" * 70_000 + "\n---\n",
    ],
)
def test_front_matter_that_cannot_be_read_is_left_alone(text: str) -> None:
    with pytest.raises(SchemaValidationError, match="cannot be written"):
        promoted(text, CRITICAL)


@given(
    keys=st.dictionaries(
        st.sampled_from(["title", "tags", "promotion_level", "x", "é"]),
        st.sampled_from(["a", "'b'", "[c, d]", "|\n  e\n  f", "standard", "", "important  # note", "{g: h}"]),
        max_size=5,
    ),
    end=st.sampled_from(["\n", "\r\n"]),
    body=st.text(max_size=50),
    level=st.sampled_from(list(PromotionLevel)),
)
def test_whatever_else_stands_there_stays_as_it_is(
    keys: dict[str, str], end: str, body: str, level: PromotionLevel
) -> None:
    block = "".join(f"{key}: {value}\n" for key, value in keys.items()).replace("\n", end)
    text = f"---{end}{block}---{end}{body}"
    after = promoted(text, level)
    read = read_front_matter(after)
    assert read.promotion_level is level
    assert after[read.body_start :] == body
    others = {key: value for key, value in read_front_matter(text).values.items() if key != "promotion_level"}
    assert {key: value for key, value in read.values.items() if key != "promotion_level"} == others


def test_mode_and_bytes_of_the_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(b"---\r\ntitle: \xc3\xa9\r\n---\r\nbody \xf0\x9f\xa6\x8a")
    path.chmod(0o640)
    done = rewrite(path, IMPORTANT)
    assert path.read_bytes() == b"---\r\ntitle: \xc3\xa9\r\npromotion_level: important\r\n---\r\nbody \xf0\x9f\xa6\x8a"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["a.md"]  # noqa: PTH208
    done.undo()
    assert path.read_bytes() == done.before


def test_a_level_that_is_there_already_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("---\npromotion_level: important\n---\n")
    before = path.stat()
    rewrite(path, IMPORTANT)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_what_another_program_wrote_meanwhile_is_not_undone(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("# A\n")
    done = rewrite(path, IMPORTANT)
    path.write_text("# newer\n")
    done.undo()
    assert path.read_text() == "# newer\n"


def test_a_file_that_cannot_be_written_is_as_it_was(tmp_path: Path) -> None:
    with pytest.raises(FileSystemError, match="cannot be changed"):
        rewrite(tmp_path / "gone.md", CRITICAL)
    path = tmp_path / "latin.md"
    path.write_bytes(b"caf\xe9")
    with pytest.raises(SchemaValidationError, match="UTF-8"):
        rewrite(path, CRITICAL)
    assert path.read_bytes() == b"caf\xe9"
