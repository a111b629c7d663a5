"""Cutting to size (C-1)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.ingest.chunking.chunker import MOST_PARTS, ChunkSizes, Packer, split
from rag_context.ingest.chunking.prose import boundaries
from rag_context.ingest.chunking.text_blocks import Boundary, Ruler, Strength
from rag_context.ports.models import Tokenizer
from tests.ingest.tokens import Characters, WordPieces, Words, count, word_pieces


def pieces(
    text: str, size: int, overlap: int = 0, units: list[Boundary] | None = None, tokenizer: Tokenizer | None = None
) -> list[str]:
    ruler = Ruler(text, tokenizer or Words())
    packer = Packer(ruler, lambda: boundaries(text) if units is None else units, ChunkSizes(size, overlap, size))
    return [text[start:end] for start, end in packer.pieces((0, len(text)))]


def sentence(words: int) -> str:
    return " ".join(["Word", *["word"] * (words - 1)]) + ". "


def test_what_fits_is_one_piece() -> None:
    assert pieces("One two. Three four.", 4) == ["One two. Three four."]


def test_in_what_fits_no_boundary_is_searched() -> None:
    def unneeded() -> list[Boundary]:
        raise AssertionError

    message = "One two. Three four."
    assert list(Packer(Ruler(message, Words()), unneeded, ChunkSizes(4, 0, 100)).pieces((0, len(message))))


def test_whole_sentences_are_packed() -> None:
    text = sentence(3) * 8
    assert [count(Words(), piece) for piece in pieces(text, 10)] == [9, 9, 6]


def test_a_paragraph_near_the_end_is_preferred_to_a_fuller_piece() -> None:
    text = sentence(8).strip() + "\n\n" + sentence(1) + sentence(9)
    assert [count(Words(), piece) for piece in pieces(text, 10)] == [8, 10]


def test_a_paragraph_far_from_the_end_is_not() -> None:
    text = sentence(3).strip() + "\n\n" + sentence(6) + sentence(9)
    assert [count(Words(), piece) for piece in pieces(text, 10)] == [9, 9]


def test_the_last_piece_is_not_left_with_a_few_words() -> None:
    text = sentence(1) * 13
    assert [count(Words(), piece) for piece in pieces(text, 12)] == [10, 3]


def test_a_whole_sentence_comes_before_a_full_piece() -> None:
    assert [count(Words(), piece) for piece in pieces(sentence(2) + sentence(10) + sentence(10), 10)] == [2, 10, 10]


def test_a_sentence_too_long_for_any_piece_fills_the_one_before() -> None:
    counts = [count(Words(), piece) for piece in pieces(sentence(2) + sentence(30), 10)]
    assert counts[0] == 10


def test_a_long_sentence_is_cut_at_a_clause_near_the_end_then_at_words() -> None:
    text = "a b c d e f g h, i j k l m n o p q r s t"
    assert pieces(text, 10)[0] == "a b c d e f g h, "
    assert pieces(text.replace(",", ""), 10)[0] == "a b c d e f g h i j "


def test_a_wrapped_line_is_a_better_cut_than_a_word() -> None:
    text = "a b c d e f g h\ni j k l m n o p q r s t"
    units = [Boundary(text.index("i"), Strength.WRAP)]
    assert pieces(text, 10, units=units)[0] == "a b c d e f g h\n"


def test_a_fence_is_not_split_where_it_fits() -> None:
    text = "a b c d e f 1 1 1\n2 2 2\n3 3 3"
    units = [
        Boundary(text.index("1"), Strength.LINE),
        Boundary(text.index("2"), Strength.WRAP),
        Boundary(text.index("3"), Strength.WRAP),
    ]
    assert pieces(text, 12, units=units) == ["a b c d e f ", "1 1 1\n2 2 2\n3 3 3"]


def test_a_message_begins_a_piece_however_empty_the_one_before_is() -> None:
    text = "a b c d e f g h i j k l"
    units = [Boundary(4, Strength.TURN), Boundary(16, Strength.PARAGRAPH)]
    assert pieces(text, 10, units=units) == ["a b ", "c d e f g h i j k l"]


def test_an_unbroken_run_is_cut_inside() -> None:
    found = pieces("a" * 400, 10)
    assert "".join(found) == "a" * 400
    assert max(map(len, found)) <= 40


def test_overlap_repeats_whole_sentences() -> None:
    text = sentence(2) * 20
    first, second, *_ = pieces(text, 20, overlap=5)
    assert count(Words(), first) == 20
    assert second.startswith(sentence(2) * 2)
    assert text[: len(first)].endswith(sentence(2) * 2)


def test_overlap_repeats_words_where_no_sentence_fits() -> None:
    words = [f"w{number}" for number in range(40)]
    first, second, *_ = pieces(" ".join(words), 20, overlap=5)
    assert first.split() == words[:20]
    assert second.split()[:5] == words[16:21]


def test_overlap_repeats_lines_where_there_are_no_sentences() -> None:
    text = "\n".join(f"a{number} b{number} c{number}" for number in range(20))
    units = [Boundary(place + 1, Strength.WRAP) for place, letter in enumerate(text) if letter == "\n"]
    first, second, *_ = pieces(text, 21, overlap=5, units=units)
    assert first.endswith("a6 b6 c6\n")
    assert second.startswith("a6 b6 c6\n")


def test_an_unbroken_run_has_no_overlap() -> None:
    found = pieces("a" * 400, 20, overlap=5)
    assert "".join(found) == "a" * 400


def test_a_tokenizer_that_finds_more_in_a_piece_is_obeyed() -> None:
    class Nervous(Tokenizer):
        """A token per word in a long text, one per character in a short one."""

        def offsets(self, text: str) -> list[tuple[int, int]]:
            tokenizer = Words() if len(text) > 60 else Characters()
            return list(tokenizer.offsets(text))

    text = "abc def ghi " * 10
    found = pieces(text, 10, tokenizer=Nervous())
    assert "".join(found) == text
    assert all(count(Nervous(), piece.strip()) <= 10 for piece in found)


def test_overlap_is_dropped_where_it_would_leave_no_room() -> None:
    class Late(Tokenizer):
        """Ten tokens for every repeated `x`, but only in a text that begins with one."""

        def offsets(self, text: str) -> list[tuple[int, int]]:
            spans = list(Words().offsets(text))
            return [span for span in spans for _ in range(10)] if text.startswith("x") else spans

    text = "a b c d e f x g h i j k l m n"
    units = [Boundary(12, Strength.LINE), Boundary(16, Strength.LINE)]
    assert pieces(text, 8, overlap=2, units=units)[1].startswith("x g h")
    assert pieces(text, 8, overlap=2, units=units, tokenizer=Late()) == ["a b c d e f x g ", "h i j k l ", "m n"]


def test_overlap_is_at_most_a_quarter_of_a_piece() -> None:
    words = [f"w{number}" for number in range(20)]
    _, second, *_ = pieces(" ".join(words), 8, overlap=6)
    assert second.split()[0] == "w7"


@given(
    st.text(alphabet=st.sampled_from("ab. \n,漢。\u0301😀"), max_size=400),
    st.integers(1, 30),
    st.integers(0, 3),
    st.integers(1, 3),
)
def test_any_text_is_covered_in_order_within_the_size(text: str, size: int, overlap: int, per_character: int) -> None:
    tokenizer = Characters(per_character)
    ruler = Ruler(text, tokenizer)
    sizes = ChunkSizes(size, min(overlap, size // 10), size)
    covered = 0
    for start, end in Packer(ruler, lambda: boundaries(text), sizes).pieces((0, len(text))):
        assert start <= covered < end
        assert end - start == 1 or count(tokenizer, text[start:end].strip()) <= max(size, per_character)
        covered = end
    assert covered == len(text)


@pytest.mark.parametrize(
    ("kind", "unit"),
    [("documentation", "# a\n\nb\n\n"), ("documentation", "###### a\n"), ("chat", "[user] a\n[ai] b\n")],
)
def test_structure_makes_no_more_chunks_than_a_document_may_have(kind: str, unit: str) -> None:
    text = unit * (MOST_PARTS + 1)
    spans = split(text, content_type=kind, source="parts.md", tokenizer=Words(), window=256)
    assert "".join(text[span.start : span.end] for span in spans) == text
    assert len(spans) < MOST_PARTS // 4


class Apart(WordPieces):
    """The bundled model's tokenizer, which says that white space parts its tokens, and counts its runs."""

    splits_at_spaces = True
    runs = 0

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        self.runs += 1
        return super().offsets(text)


APART = Apart()


@given(
    st.text(alphabet=st.sampled_from("ab. \n\t\x1c,-(漢。\u0301\u200béİ😀한"), max_size=300),
    st.integers(1, 30),
    st.integers(0, 3),
)
def test_what_white_space_parts_is_cut_as_if_it_was_measured_again(text: str, size: int, overlap: int) -> None:
    assert pieces(text, size, overlap, tokenizer=APART) == pieces(text, size, overlap, tokenizer=word_pieces())


def test_a_text_of_whole_sentences_is_tokenised_once() -> None:
    tokenizer = Apart()
    assert len(pieces(sentence(3) * 20, 10, tokenizer=tokenizer)) > 5
    assert tokenizer.runs == 1


def test_a_short_plain_text_is_not_tokenised_at_all() -> None:
    tokenizer = Apart()
    assert pieces("Short, and plain.", 20, tokenizer=tokenizer) == ["Short, and plain."]
    assert tokenizer.runs == 0
    assert pieces("Kürzer.", 20, tokenizer=tokenizer) == ["Kürzer."]
    assert tokenizer.runs == 1
