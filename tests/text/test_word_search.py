"""Many words are found by one pass as they would be one by one."""

from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.word_search import WordSearch

WORDS = st.lists(st.text(alphabet="abé\n", min_size=1, max_size=4), max_size=12)
TEXTS = st.text(alphabet=st.sampled_from(["a", "b", "é", "\n", "c", "\U0001f600", "\ud800"]), max_size=40)


@given(WORDS, TEXTS)
def test_what_stands_in_a_text_is_found(words: list[str], text: str) -> None:
    assert WordSearch([words]).present(text) == {word for word in words if word in text}


def test_words_inside_of_others_are_found() -> None:
    assert WordSearch([{"key", "api key"}], {"i k", "monkey"}).present("an api key") == {"key", "api key", "i k"}


def test_a_word_leads_to_the_rules_that_have_it_in_their_order() -> None:
    search = WordSearch([{"token"}, {"key", "pass"}, {"key"}], {"name"})
    assert [search.rules(search.present(text)) for text in ("a key", "key, token", "a name", "")] == [
        [1, 2],
        [0, 1, 2],
        [],
        [],
    ]
