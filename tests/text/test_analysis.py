"""The analyser, by example and by property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.text import MAX_TERM_CHARS, is_spaceless, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How do I retry connections?", ["retri", "connect"]),
        ("MongoDB", ["mongo", "db", "mongodb"]),
        ("snake_case_name", ["snake", "case", "name", "snake_case_nam"]),
        ("HTTPServer getX2", ["http", "server", "httpserver", "x2", "getx2"]),
        ("NASA Paris word", ["nasa", "pari", "word"]),
        ("E1234-ERR c++ -x col:x AND (", ["e1234", "err", "c", "x", "col", "x", "e1234_err"]),
        ("see HBR-4107.", ["see", "hbr", "4107", "hbr_4107"]),
        ("on 2026-03-11 well-known 3.14", ["2026", "03", "11", "well", "known", "3", "14"]),
        ("all-MiniLM-L6-v2", ["mini", "lm", "minilm", "l6", "v2", "all_minilm_l6_v2"]),
        ("_private __init__ __", ["privat", "init"]),
        ("_Ø _ß_жук_", ["ø", "ss", "жук", "ss_жук"]),
        ("it's don't we'll", []),
        ("", []),
        ("?!… \x00 \n", []),
        ("retry retry", ["retri", "retri"]),
    ],
)
def test_words_become_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_accents_and_case_do_not_matter() -> None:
    assert terms("Café ÜBER ｆｕｌｌ") == terms("cafe uber full")
    assert terms("ΑΒΓ") == terms("αβγ")


def test_forms_of_a_russian_word_are_one_term() -> None:
    assert len(set(terms("красивый красивого красивая красивыми"))) == 1
    assert terms("Ёлки ёлок") == terms("елки елок")
    assert terms("ножи the knives") == ["нож", "knive"]
    assert terms("новый новая") == ["нов", "нов"]  # the short i is no i with an accent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("割草机的电池多久充满?", True),
        ("モデルの大きさ", True),
        ("한국어는 무엇", True),
        ("who said 你好", False),
        ("Как заменить ножи?", False),
        ("2026-05-01", False),
        ("", False),
    ],
)
def test_questions_in_scripts_without_spaces_are_recognised(text: str, expected: bool) -> None:
    assert is_spaceless(text) is expected


def test_scripts_without_spaces_become_bigrams() -> None:
    assert terms("東京都") == ["東京", "京都"]
    assert terms("猫") == ["猫"]
    assert terms("設計API書") == ["設計", "api", "書"]


def test_marks_stay_in_their_word() -> None:
    assert terms("हिन्दी") == ["हिन्दी"]


def test_a_question_and_its_answer_share_their_terms() -> None:
    assert set(terms("What is the retry policy?")) <= set(terms("The policy retries five times"))


def test_a_word_without_end_is_cut() -> None:
    assert [len(term) for term in terms("x" * 100_000)] == [MAX_TERM_CHARS]


@given(st.text(max_size=200))
def test_any_text_gives_clean_terms(text: str) -> None:
    for term in terms(text):
        assert term
        assert " " not in term
        assert '"' not in term
        assert term == term.strip("_")


@given(st.text(max_size=100))
def test_the_same_text_gives_the_same_terms(text: str) -> None:
    assert terms(text) == terms(text)
