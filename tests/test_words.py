"""The check of words finds them in pages, docstrings, comments, messages and names, and only there."""

import runpy
from pathlib import Path

WORDS = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "words.py"))
FINDINGS, CODE_FINDINGS, NAME_FINDINGS = (WORDS[name] for name in ("findings", "code_findings", "name_findings"))


def test_a_word_of_the_list_is_found_with_its_line_and_a_better_one() -> None:
    assert FINDINGS("Fine.\n\nIt is made Anew.\n") == [(3, "Anew", "again, recreate, re-embed")]


def test_code_and_parts_of_words_are_not_prose() -> None:
    assert FINDINGS("Outdoors, `legs.text` and\n\n```\nrefused\n```\n\n[it](#doors)\n") == []


def test_a_line_after_a_block_of_code_is_counted_right() -> None:
    assert FINDINGS("```\na\nb\n```\n`x` by words\n") == [(5, "by words", "by keyword search")]


def test_docstrings_and_comments_are_prose_and_code_is_not() -> None:
    source = '"""It is made\nanew."""\n\nnobody = "refused"  # by the door\nLIMIT = 1\n"""Held anew."""\n'
    found = [(line, word) for line, word, _ in CODE_FINDINGS(source)]
    assert found == [(2, "anew"), (4, "door"), (6, "anew")]


def test_messages_are_prose_for_people_and_shorter_strings_are_not() -> None:
    assert CODE_FINDINGS('MODE = "by words"\nERROR = "It is\\ embedded anew."\n') == [
        (2, "anew", "again, recreate, re-embed")
    ]


def test_names_of_tests_are_sentences_and_names_of_classes_are_the_fields() -> None:
    source = (
        "class _Door: ...\nclass Doorway: ...\n\ndef test_it_is_made_anew() -> None: ...\ndef anew() -> None: ...\n"
    )
    assert [(line, word) for line, word, _ in NAME_FINDINGS(source)] == [(1, "_Door"), (4, "anew")]
