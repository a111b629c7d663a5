"""Measuring in tokens (C-1)."""

from rag_context.ingest.chunking.text_blocks import CHARS_PER_TOKEN, Ruler
from rag_context.ports.models import Tokenizer
from tests.ingest.tokens import Characters, Words, word_pieces


class Marked(Tokenizer):
    """A token for each of the given spans, for text of any length."""

    def __init__(self, *spans: tuple[int, int]) -> None:
        self._spans = spans

    def offsets(self, text: str) -> list[tuple[int, int]]:
        return [span for span in self._spans if span[1] <= len(text)]


def test_tokens_are_counted_where_they_begin() -> None:
    ruler = Ruler("one two three", Words())
    assert [ruler.count(0, 13), ruler.count(0, 4), ruler.count(1, 8), ruler.count(8, 13)] == [3, 1, 1, 1]


def test_white_space_at_the_head_of_a_token_belongs_to_the_one_before() -> None:
    ruler = Ruler("one two", Marked((0, 3), (3, 7)))
    assert ruler.count(0, 4) == 1


def test_tokens_of_white_space_alone_are_not_counted() -> None:
    assert Ruler("a   b", Characters()).count(0, 5) == 2


def test_reach_and_back_are_inverse_to_count() -> None:
    ruler = Ruler("one two three four", Words())
    assert ruler.reach(0, 2) == 8
    assert ruler.reach(4, 9) == 18
    assert ruler.back(18, 2) == 8
    assert ruler.back(8, 5) == 0
    assert ruler.back(8, 0) == 8
    assert ruler.back(18, 0) == 18


def test_reach_always_moves_on() -> None:
    assert Ruler("ab", Characters(per_character=3)).reach(0, 2) == 1


def test_an_unbroken_run_counts_by_its_length() -> None:
    text = "a" * 1000
    assert len(word_pieces().offsets(text)) == 1
    ruler = Ruler(text, word_pieces())
    assert ruler.count(0, 1000) == 1000 // CHARS_PER_TOKEN
    assert ruler.reach(0, 10) == 10 * CHARS_PER_TOKEN


def test_characters_that_the_tokenizer_drops_count_too() -> None:
    text = "a " + "\x00" * 400 + " b"
    assert len(word_pieces().offsets(text)) == 2
    assert Ruler(text, word_pieces()).count(0, len(text)) >= 100
    assert Ruler("\x00" * 400, word_pieces()).count(0, 400) == 100


def test_long_white_space_does_not_count() -> None:
    assert Ruler("a" + " " * 400 + "b", word_pieces()).count(0, 402) == 2
    assert Ruler("a" + " " * 400, word_pieces()).count(0, 401) == 1


def test_a_cut_splits_no_combining_or_joined_characters() -> None:
    accented = "e\u0301"
    family = "\U0001f469\u200d\U0001f467"
    ruler = Ruler("xx" + accented + family, Words())
    assert ruler.whole(0, 3) == 2
    assert ruler.whole(0, 4) == 4
    assert ruler.whole(0, 5) == 4
    assert ruler.whole(0, 6) == 4
    assert ruler.whole(0, 7) == 7


def test_endless_marks_are_cut_all_the_same() -> None:
    assert Ruler("a" + "\u0301" * 500, Words()).whole(0, 200) == 200


def test_fitting_measures_the_piece_by_itself() -> None:
    ruler = Ruler("one two three four", Words())
    assert ruler.fitting(0, 18, 4) == 18
    assert ruler.fitting(0, 18, 2) == 8
    assert ruler.fitting(4, 18, 1) == 8


def test_fitting_does_not_measure_white_space_at_the_ends() -> None:
    assert Ruler("  ab   ", Characters()).fitting(0, 7, 2) == 7
    assert Ruler("  abc   ", Characters()).fitting(0, 8, 2) == 4


def test_fitting_never_cuts_a_character() -> None:
    assert Ruler("abc", Characters(per_character=5)).fitting(0, 3, 2) == 1
