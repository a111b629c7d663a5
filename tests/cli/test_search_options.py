"""From the words of a command line to a request, and from an answer to what people see."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rag_context.api.operations.memory import DELETE
from rag_context.cli.console import safe
from rag_context.cli.operation_options import Fields, parse_time, read_typed
from rag_context.cli.search_command import request_of, shown_source, snippet, source_filter
from rag_context.errors import InvalidInputError
from rag_context.settings import Settings

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)


def request_fields(typed: Fields, cwd: Path, settings: Settings | None = None) -> dict[str, object]:
    request = request_of(typed, settings or Settings(), cwd=cwd, now=NOW)
    return request.model_dump(exclude_unset=True)


def test_only_given_options_are_sent(tmp_path: Path) -> None:
    assert request_fields({"query": "x"}, tmp_path) == {"query": "x", "agent": "cli"}


def test_every_option_has_its_field(tmp_path: Path) -> None:
    question = {
        "query": "x",
        "limit": 3,
        "category": "bugfix",
        "session_id": "s",
        "content_type": "code",
        "game": "g",
        "tags": ["a", "b"],
        "source": "h0und://chat/1",
        "since": "7d",
        "until": "2026-06-15T00:00:00Z",
        "as_of": "1d",
        "min_score": 0.5,
        "mode": "text",
        "explain": True,
    }

    assert request_fields(question, tmp_path) == {
        "query": "x",
        "limit": 3,
        "category": "bugfix",
        "session_id": "s",
        "content_type": "code",
        "game": "g",
        "agent": "cli",
        "tags": ["a", "b"],
        "source": "h0und://chat/1",
        "since": datetime(2026, 6, 8, 12, tzinfo=UTC),
        "until": datetime(2026, 6, 15, tzinfo=UTC),
        "as_of": datetime(2026, 6, 14, 12, tzinfo=UTC),
        "min_score": 0.5,
        "mode": "text",
        "explain": True,
    }


def test_the_vocabulary_of_the_configuration_is_accepted(tmp_path: Path) -> None:
    settings = Settings.model_validate({"vocabulary": {"categories": ["harbour"], "content_types": ["ticket"]}})
    question = {"query": "x", "category": "harbour", "content_type": "ticket"}

    assert request_fields(question, tmp_path, settings)["category"] == "harbour"
    with pytest.raises(InvalidInputError):
        request_fields(question, tmp_path)


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"query": "x", "limit": 21}, "limit"),
        ({"query": "x" * 1001}, "query"),
        ({"query": "x", "mode": "fast"}, "mode"),
        ({"query": "x", "min_score": 1.5}, "minScore"),
        ({"query": "\udcff"}, "query"),
    ],
)
def test_invalid_questions_are_rejected_by_field(tmp_path: Path, typed: Fields, field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        request_fields(typed, tmp_path)

    assert [detail.field for detail in caught.value.details] == [field]


def test_a_rejection_names_each_typed_field_on_its_own_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        request_fields({"query": "", "limit": 0, "content_type": "poem", "min_score": 2, "tags": ["a", ""]}, tmp_path)

    assert str(caught.value).splitlines() == [
        "Query cannot be empty",
        "--limit must be at least 1",
        "--type must be one of 'chat', 'decision', 'code' or 'documentation'",
        "--tag must not be empty; leave it out instead",
        "--min-score must be at most 1",
    ]


def test_fields_that_exclude_each_other_are_named_as_they_are_typed() -> None:
    with pytest.raises(InvalidInputError, match=r"^Name exactly one of DOCUMENT_ID or --source or --session$"):
        read_typed(DELETE.request, {"document_id": "a", "source": "b"})


class TestSources:
    """A source on disk is known by its absolute POSIX path, whatever was typed (D-7)."""

    @pytest.mark.parametrize(
        ("typed", "meant"),
        [
            ("docs/a.md", "{here}/docs/a.md"),
            ("./docs/../docs/a.md", "{here}/docs/a.md"),
            ("docs", "{here}/docs/*"),
            ("docs/*", "{here}/docs/*"),
            ("docs/a*", "{here}/docs/a*"),
            ("doc*", "{here}/doc*"),
            ("no/such/file.md", "no/such/file.md"),
            ("session-*", "session-*"),
            ("h0und://chat/*", "h0und://chat/*"),
            ("*", "*"),
            ("x" * 5000, "x" * 5000),
            ("a\0b", "a\0b"),
        ],
    )
    def test_what_is_on_disk_is_made_absolute(self, tmp_path: Path, typed: str, meant: str) -> None:
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "a.md").touch()

        assert source_filter(typed, tmp_path) == meant.format(here=tmp_path)

    def test_below_the_working_directory_it_is_shown_relative(self) -> None:
        assert shown_source("/home/me/docs/a.md", Path("/home/me")) == "docs/a.md"
        assert shown_source("/home/you/a.md", Path("/home/me")) == "/home/you/a.md"
        assert shown_source("h0und://chat/1", Path("/home/me")) == "h0und://chat/1"


class TestMoments:
    """`--since` and `--until`."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("7d", datetime(2026, 6, 8, 12, tzinfo=UTC)),
            ("90m", datetime(2026, 6, 15, 10, 30, tzinfo=UTC)),
            ("2W", datetime(2026, 6, 1, 12, tzinfo=UTC)),
            ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
            ("2026-01-31T12:00:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ],
    )
    def test_a_time_is_parsed(self, text: str, expected: datetime) -> None:
        assert parse_time(text, "--since", NOW) == expected

    def test_a_date_begins_at_midnight_of_this_machine(self) -> None:
        local = parse_time("2026-01-31", "--since", NOW).astimezone()

        assert local.isoformat().startswith("2026-01-31T00:00:00")

    @pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "7 parsecs", "999999w"])
    def test_an_invalid_time_is_rejected(self, text: str) -> None:
        with pytest.raises(InvalidInputError, match=r"--until .* is not a moment"):
            parse_time(text, "--until", NOW)


class TestSnippets:
    """The beginning of a passage, harmless on any terminal (X-3)."""

    def test_a_short_passage_is_shown_completely(self) -> None:
        assert snippet("one\r\n\r\ntwo\n") == "one\n\ntwo"

    def test_a_long_one_ends_at_a_word(self) -> None:
        text = snippet("word " * 200)

        assert text.endswith("word …")
        assert len(text) <= 402

    def test_many_lines_are_cut(self) -> None:
        assert snippet("\n".join("abcdefghijkl")) == "a\nb\nc\nd\ne\nf\ng\nh …"

    def test_control_characters_are_left_out(self) -> None:
        assert safe("a\x1b[31mb\x07c\x9bd\u202ee\tf\ng\udcffh") == "a[31mbcde\tf\ng?h"
