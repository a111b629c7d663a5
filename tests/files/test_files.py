"""How files are read, and what is reported of those left out (C-3, C-4, D-7)."""

import os
import socket
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rag_context.domain.documents import Channel, DocumentInput, Metadata, moment
from rag_context.files.file_reading import (
    DEFAULT_MAX_BYTES,
    UNSUPPORTED,
    FileInput,
    Labels,
    Rejected,
    content_type_of,
    read_file,
)
from rag_context.files.walk import find_files

NO_LABELS = Labels()


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def read_files(
    paths: list[Path], labels: Labels = NO_LABELS, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> Iterator[FileInput | Rejected]:
    for found in find_files(paths):
        yield found if isinstance(found, Rejected) else read_file(found, labels, max_bytes=max_bytes)


def only(path: Path, labels: Labels = NO_LABELS, *, max_bytes: int = DEFAULT_MAX_BYTES) -> FileInput | Rejected:
    (item,) = read_files([path], labels, max_bytes=max_bytes)
    return item


def reason(path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> str:
    item = only(path, max_bytes=max_bytes)
    assert isinstance(item, Rejected)
    return item.reason


def content(path: Path) -> str:
    item = only(path)
    assert isinstance(item, FileInput)
    return item.document.content


class TestDocuments:
    """D-7: a file's identity is its absolute POSIX path, its session `files`."""

    def test_a_file_becomes_a_document_input(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, {"docs/a.md": "# A\n"})
        monkeypatch.chdir(tmp_path / "docs")

        item = only(Path("a.md"))

        path = tmp_path / "docs" / "a.md"
        draft = DocumentInput("# A\n", "documentation", "files", path.as_posix(), channel=Channel.FILE)
        modified = moment(path.stat().st_mtime_ns // 1000)
        assert isinstance(item, FileInput)
        assert replace(item.document, occurred_at=None) == draft
        assert item.document.occurred_at == modified

    def test_a_date_in_the_front_matter_comes_before_the_time_of_the_file(self, tmp_path: Path) -> None:
        item = only(write(tmp_path, {"a.md": "---\ndate: 2024-02-29\n---\nText.\n"}) / "a.md")

        assert isinstance(item, FileInput)
        assert item.document.occurred_at == datetime(2024, 2, 29, tzinfo=UTC)

    def test_labels_are_put_on_every_file(self, tmp_path: Path) -> None:
        labels = Labels("decision", "s", Metadata(agent="a", tags=("x",), category="c", game="g"))

        item = only(write(tmp_path, {"a.py": "x = 1"}) / "a.py", labels)

        assert isinstance(item, FileInput)
        assert (item.document.content_type, item.document.session_id) == ("decision", "s")
        assert item.document.metadata == labels.metadata

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("a.md", "documentation"),
            ("README", "documentation"),
            ("a.unknown", "documentation"),
            ("A.PY", "code"),
            ("a.cs", "code"),
            ("a.tsx", "code"),
            ("Makefile", "code"),
            ("Dockerfile.dev", "code"),
            ("a.yaml", "code"),
            ("talk.chat", "chat"),
        ],
    )
    def test_the_name_determines_the_kind(self, name: str, kind: str) -> None:
        assert content_type_of(Path(name)) == kind


class TestReading:
    """C-4: text is taken as it is; what cannot be read gets its reason."""

    def test_line_ends_stay_as_they_are(self, tmp_path: Path) -> None:
        assert content(write(tmp_path, {"a.txt": "one\r\ntwo\rthree\n"}) / "a.txt") == "one\r\ntwo\rthree\n"

    @pytest.mark.parametrize(
        "data",
        [
            b"\xef\xbb\xbf" + "naïve — 你好\n".encode(),
            b"\xff\xfe" + "naïve — 你好\n".encode("utf-16-le"),
            b"\xfe\xff" + "naïve — 你好\n".encode("utf-16-be"),
            b"\xff\xfe\0\0" + "naïve — 你好\n".encode("utf-32-le"),
        ],
    )
    def test_a_byte_order_mark_names_the_encoding(self, tmp_path: Path, data: bytes) -> None:
        assert content(write(tmp_path, {"a.txt": data}) / "a.txt") == "naïve — 你好\n"

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (b"", "empty"),
            (b" \n\t\r\n", "empty"),
            (b"\xef\xbb\xbf", "empty"),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "binary, not text"),
            (b"abc\x01\x02\x03\x04def", "binary, not text"),
            (b"\xff\xfea\0\0\0b\0", "binary, not text"),
            (b"caf\xe9 au lait", "not valid UTF-8 at byte 3"),
            (b"\xff\xfea\0b", "not valid UTF-16-LE at byte 4"),
        ],
    )
    def test_what_is_not_text_says_why(self, tmp_path: Path, data: bytes, expected: str) -> None:
        assert reason(write(tmp_path, {"a.txt": data}) / "a.txt") == expected

    def test_coloured_output_of_a_terminal_is_text(self, tmp_path: Path) -> None:
        text = "\x1b[31mred\x1b[0m\n"

        assert content(write(tmp_path, {"a.log": text}) / "a.log") == text

    def test_the_size_limit_is_the_largest_size_accepted(self, tmp_path: Path) -> None:
        path = write(tmp_path, {"a.txt": "x" * 10}) / "a.txt"

        assert isinstance(only(path, max_bytes=10), FileInput)
        assert reason(path, max_bytes=9) == "larger than 9 bytes (10); see indexing.max_file_bytes"

    def test_a_large_file_that_is_not_text_is_called_that(self, tmp_path: Path) -> None:
        path = write(tmp_path, {"a.bin": b"GIF\0" + b"x" * 100}) / "a.bin"

        assert reason(path, max_bytes=50) == "binary, not text"

    @pytest.mark.parametrize("suffix", sorted(UNSUPPORTED))
    def test_formats_of_later_versions_say_so(self, tmp_path: Path, suffix: str) -> None:
        path = write(tmp_path, {f"a{suffix}": "text"}) / f"a{suffix}"

        assert reason(path).endswith("files are not supported yet")

    def test_a_missing_path_is_reported(self, tmp_path: Path) -> None:
        assert reason(tmp_path / "no.md") == "cannot be read: No such file or directory"

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")

        assert reason(tmp_path / "pipe") == "not a regular file"

    def test_a_name_that_is_not_utf8_is_reported_in_print(self, tmp_path: Path) -> None:
        (Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt"))).write_text("x")

        (item,) = read_files([tmp_path])

        assert item == Rejected(f"{tmp_path}/caf\\xe9.txt", "its name is not valid UTF-8")

    def test_one_bad_file_stops_no_other(self, tmp_path: Path) -> None:
        write(tmp_path, {"a.txt": b"\xe9", "b.txt": "b", "c.epub": "PK", "d.txt": "d"})

        items = list(read_files([tmp_path]))

        assert [type(item) for item in items] == [Rejected, FileInput, Rejected, FileInput]

    def test_only_what_was_named_or_should_have_worked_counts_as_failed(self, tmp_path: Path) -> None:
        write(tmp_path, {"a.png": b"\0", "b.txt": b"\xe9"})

        walked = [item.failed for item in read_files([tmp_path]) if isinstance(item, Rejected)]
        named = [item.failed for item in read_files([tmp_path / "a.png"]) if isinstance(item, Rejected)]

        assert (walked, named) == ([False, True], [True])

    def test_a_link_named_outright_is_read_as_what_it_means(self, tmp_path: Path) -> None:
        path = write(tmp_path, {"a.md": "a"}) / "a.md"
        (tmp_path / "link.md").symlink_to(path)

        item = only(tmp_path / "link.md")

        assert isinstance(item, FileInput)
        assert item.document.source == path.as_posix()

    def test_a_file_that_vanishes_before_it_is_read_is_reported(self, tmp_path: Path) -> None:
        write(tmp_path, {"a.md": "a", "b.md": "b"})
        items = read_files([tmp_path])

        next(items)
        (tmp_path / "b.md").unlink()

        assert next(items) == Rejected(f"{tmp_path}/b.md", "vanished before it was read")

    def test_a_huge_file_costs_no_memory(self, tmp_path: Path) -> None:
        """The first is empty space, the second text up to where reading stops."""
        with (tmp_path / "sparse.md").open("wb") as file:
            file.truncate(1 << 30)
        with (tmp_path / "text.md").open("wb") as file:
            file.write(b"x" * (DEFAULT_MAX_BYTES + 10))
            file.truncate(1 << 30)

        tracemalloc.start()
        try:
            reasons = [item.reason for item in read_files([tmp_path]) if isinstance(item, Rejected)]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

        assert reasons == [
            "binary, not text",
            f"larger than {DEFAULT_MAX_BYTES} bytes ({1 << 30}); see indexing.max_file_bytes",
        ]
        assert peak < 8 * DEFAULT_MAX_BYTES

    @pytest.mark.parametrize("name", ["line\nbreak.md", "tab\there.md", 'quote".md', "emoji \N{PILE OF POO}.md"])
    def test_an_odd_name_is_a_name(self, tmp_path: Path, name: str) -> None:
        item = only(write(tmp_path, {name: "x"}) / name)

        assert isinstance(item, FileInput)
        assert item.document.source == (tmp_path / name).as_posix()

    def test_a_socket_and_a_loop_of_links_are_reported(self, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "s"))
            (tmp_path / "loop").symlink_to(tmp_path / "loop")

            reasons = [item.reason for item in read_files([tmp_path]) if isinstance(item, Rejected)]
            named = reason(tmp_path / "loop")

        assert reasons == ["a symbolic link that leads nowhere", "not a regular file"]
        assert named.startswith("cannot be read: ")
