"""The check of the documentation's words finds them in prose, and only there."""

import runpy
from pathlib import Path

FINDINGS = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "words.py"))["findings"]


def test_a_word_of_the_list_is_found_with_its_line_and_a_better_one() -> None:
    assert FINDINGS("Fine.\n\nIt is made Anew.\n") == [(3, "Anew", "again, recreate, re-embed")]


def test_code_and_parts_of_words_are_not_prose() -> None:
    assert FINDINGS("Outdoors, `legs.text` and\n\n```\nrefused\n```\n\n[it](#doors)\n") == []


def test_a_line_after_a_block_of_code_is_counted_right() -> None:
    assert FINDINGS("```\na\nb\n```\n`x` by words\n") == [(5, "by words", "by keyword search")]
