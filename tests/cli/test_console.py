"""What is printed: styles where they can be seen, plain text elsewhere, and never a control character."""

import re
import sys
from datetime import UTC, datetime, timedelta

import pytest
from rich.progress import Progress

from rag_context.cli.console import Console, ago, separated
from rag_context.cli.summary import mean_speed

LINE = (("1. ", "bold"), "a\x1b[2Jb\u202e", ("\tc", "dim"))


def test_a_line_in_a_pipe_is_its_texts(capsys: pytest.CaptureFixture[str]) -> None:
    Console().show(*LINE)
    Console().note(*separated([("2 indexed", "green"), ("1 skipped", "dim")]))

    assert capsys.readouterr() == ("1. a[2Jb        c\n", "2 indexed, 1 skipped\n")


def test_a_terminal_shows_the_same_line_with_styles(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")

    Console().show(*LINE)

    shown = capsys.readouterr().out
    assert shown.startswith("\x1b[1m1. \x1b[0ma[2Jb")
    assert "\u202e" not in shown


def test_cells_and_fields_hold_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    Console().show_table(("Name", "Count"), [(["a\x07", ("b", "dim")], "1")], right={"Count"})
    Console().show_fields([("Model", "m\x1b"), ("Created", "")])

    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["Name", "Count"],
        ["ab", "1"],
        ["Model", "m"],
    ]


def test_entries_are_cut_at_a_word_to_the_width_of_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ("We decided to retry three times", "2 days ago", "81281cf7 harbour/a/very/long/path.md")
    Console().show_entries([entry])
    assert capsys.readouterr().out == f"{entry[0]}  {entry[1]}\n  {entry[2]}\n"
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "34")):
        monkeypatch.setenv(name, value)

    Console().show_entries([entry])

    shown = re.sub("\x1b[^m]*m", "", capsys.readouterr().out).splitlines()
    assert shown == ["We decided to retry …   2 days ago", "  81281cf7 harbour/a/very/long/p…"]


def test_no_text_of_an_entry_passes_for_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    Console().show_entries([("A title\nforged  1 day ago", "now", "a.md\n\x1b[2Jb.md")])
    assert capsys.readouterr().out == "A title\\nforged  1 day ago  now\n  a.md\\n[2Jb.md\n"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(3, "just now"), (90, "1 minute ago"), (7_300, "2 hours ago"), (90_000, "1 day ago"), (1_300_000, "2 weeks ago")],
)
def test_an_age_is_said_in_its_largest_unit(seconds: int, said: str) -> None:
    assert ago(datetime.now(UTC) - timedelta(seconds=seconds)) == said


def test_what_is_older_than_a_month_has_its_day() -> None:
    assert ago(datetime(2025, 3, 1, 12, tzinfo=UTC)) == "2025-03-01"


def test_what_belongs_to_a_line_is_indented_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    Console().show_below("one\ntwo", "dim")

    assert capsys.readouterr().out == "    one\n    two\n"


def test_there_are_no_bars_outside_a_terminal() -> None:
    assert not sys.stderr.isatty()
    assert Console().progress().disable
    assert not Console().has_bars


def test_a_rate_is_the_mean_since_the_beginning_and_stays_at_the_end() -> None:
    now = 0.0
    progress = Progress(get_time=lambda: now, disable=True)
    task = progress.add_task("Indexing", total=10)

    def rate(at_s: float, completed: int) -> float:
        nonlocal now
        now = at_s
        progress.update(task, completed=completed)
        return mean_speed(progress.tasks[task])

    assert [rate(0.5, 5), rate(2.0, 6), rate(5.0, 10), rate(50.0, 10)] == [0.0, 3.0, 2.0, 2.0]
