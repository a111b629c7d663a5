"""Blocks of a text, and measuring in tokens (C-1)."""

from rag_context.ingest.chunking.text_blocks import (
    CHARS_PER_TOKEN,
    Ruler,
    TextBlock,
    common,
    grouped,
    headed,
    path_over,
    substantial,
)
from rag_context.ports.models import Tokenizer
from tests.ingest.tokens import Characters, Words, word_pieces

SIZE = 40
LARGE = "w " * 60
ENOUGH = "w " * 12
SMALL = "w " * 3


def packed(*parts: tuple[str, TextBlock], size: int = SIZE) -> list[int]:
    """How many blocks each group holds; the offsets of the given blocks are filled in."""
    blocks: list[TextBlock] = []
    text = ""
    for part, block in parts:
        blocks.append(TextBlock(len(text), len(text) + len(part), block.path, block.hard, block.bare, block.preamble))
        text += part
    groups = grouped(blocks, Ruler(text, Words()), size)
    assert "".join(text[start:end] for start, end in groups) == text
    return [sum(start <= block.start < end for block in blocks) for start, end in groups]


def test_no_blocks_make_no_groups() -> None:
    assert packed() == []


def test_a_block_that_says_enough_stands_alone() -> None:
    assert packed((ENOUGH, TextBlock(0, 0, ("A", "B"))), (ENOUGH, TextBlock(0, 0, ("A", "C")))) == [1, 1]


def test_small_neighbours_are_packed() -> None:
    assert packed((SMALL, TextBlock(0, 0, ("A", "B"))), (SMALL, TextBlock(0, 0, ("A", "C")))) == [2]


def test_what_would_not_fit_is_not_packed() -> None:
    assert packed((SMALL, TextBlock(0, 0, ("A", "B"))), (LARGE, TextBlock(0, 0, ("A", "C")))) == [1, 1]


def test_nothing_is_packed_across_a_hard_start() -> None:
    assert packed((SMALL, TextBlock(0, 0, ("A",))), (SMALL, TextBlock(0, 0, ("B",), hard=True))) == [1, 1]


def test_a_bare_heading_goes_with_the_block_right_below_it() -> None:
    blocks = [
        TextBlock(0, 1, ("A",), hard=True, bare=True),
        TextBlock(1, 2, ("A", "B"), bare=True),
        TextBlock(2, 9, ("A", "B", "C")),
        TextBlock(9, 10, ("A", "D"), bare=True),
        TextBlock(10, 11, ("E",), hard=True),
    ]
    assert headed(blocks) == [
        TextBlock(0, 9, ("A", "B", "C"), hard=True),
        TextBlock(9, 10, ("A", "D"), bare=True),
        TextBlock(10, 11, ("E",), hard=True),
    ]


def test_a_small_introduction_goes_with_the_large_section_it_introduces() -> None:
    assert packed((SMALL, TextBlock(0, 0, ("A",))), (LARGE, TextBlock(0, 0, ("A", "B")))) == [2]


def test_a_small_preamble_goes_with_the_first_section() -> None:
    preamble = TextBlock(0, 0, preamble=True)
    assert packed((SMALL, preamble), (LARGE, TextBlock(0, 0, ("A",), hard=True))) == [2]
    assert packed((ENOUGH, preamble), (SMALL, TextBlock(0, 0, ("A",), hard=True))) == [1, 1]


def test_a_small_block_goes_back_where_that_is_nearer() -> None:
    blocks = (
        (ENOUGH, TextBlock(0, 0, ("A", "f"))),
        (SMALL, TextBlock(0, 0, ("A", "g"))),
        (ENOUGH, TextBlock(0, 0, ("h",))),
    )
    assert packed(*blocks) == [2, 1]
    assert packed(*blocks, size=14) == [1, 1, 1]


def test_a_small_last_block_goes_back_to_its_relatives_only() -> None:
    assert packed((ENOUGH, TextBlock(0, 0, ("A", "B"))), (SMALL, TextBlock(0, 0, ("A", "C")))) == [2]
    assert packed((ENOUGH, TextBlock(0, 0, ("A",))), (SMALL, TextBlock(0, 0, ("B",)))) == [1, 1]
    assert packed((ENOUGH, TextBlock(0, 0)), (SMALL, TextBlock(0, 0))) == [2]


def test_what_is_substantial_grows_with_the_chunk_up_to_a_bound() -> None:
    assert [substantial(40), substantial(128), substantial(512)] == [10, 32, 64]


def test_the_common_path_is_what_both_stand_under() -> None:
    assert common(("A", "B", "C"), ("A", "B", "D")) == ("A", "B")
    assert common(("A",), ("A", "B")) == ("A",)
    assert common((), ("A",)) == ()


def test_the_path_of_a_chunk_is_true_of_all_of_it() -> None:
    blocks = [
        TextBlock(0, 10, preamble=True),
        TextBlock(10, 20, ("A",), bare=True),
        TextBlock(20, 30, ("A", "B")),
        TextBlock(30, 40, ("A", "C")),
    ]
    starts = [block.start for block in blocks]
    assert path_over(blocks, starts, 0, 30) == ("A", "B")
    assert path_over(blocks, starts, 25, 30) == ("A", "B")
    assert path_over(blocks, starts, 25, 31) == ("A",)
    assert path_over(blocks, starts, 0, 20) == ()
    assert path_over(blocks, starts, 12, 18) == ("A",)


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
    assert ruler.between_characters(0, 3) == 2
    assert ruler.between_characters(0, 4) == 4
    assert ruler.between_characters(0, 5) == 4
    assert ruler.between_characters(0, 6) == 4
    assert ruler.between_characters(0, 7) == 7


def test_endless_marks_are_cut_all_the_same() -> None:
    assert Ruler("a" + "\u0301" * 500, Words()).between_characters(0, 200) == 200


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
