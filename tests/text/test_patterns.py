"""Patterns in a file beside a module, with named parts."""

from pathlib import Path

import pytest

from rag_context.domain.patterns import Patterns, folded


@pytest.fixture
def patterns(tmp_path: Path) -> Patterns:
    (tmp_path / "module.toml").write_text(
        "[names]\ncolour = 'blue|red'\nthing = ['(?:{colour}) ', 'pumps?']\n\n"
        "[patterns]\nwhole = ['(?i)', '^(?:{thing}){0,2}$']\n",
        encoding="utf-8",
    )
    return Patterns(str(tmp_path / "module.py"))


def test_a_part_may_name_those_before_it_and_repeats_stay(patterns: Patterns) -> None:
    assert patterns.whole.pattern == "(?i)^(?:(?:blue|red) pumps?){0,2}$"
    assert patterns.whole.match("Blue pumpRED PUMPS")
    assert patterns.whole is patterns.whole


def test_a_name_that_is_not_there_is_no_attribute(patterns: Patterns) -> None:
    with pytest.raises(AttributeError, match=r"module\.toml has no pattern wohle"):
        _ = patterns.wohle
    assert not hasattr(patterns, "__wrapped__")


def test_small_letters_keep_their_places() -> None:
    assert [folded(text) for text in ("ABC", "\u0130x", "\u00c4")] == ["abc", "ix", "\u00e4"]
