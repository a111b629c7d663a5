"""What is packed together before sizes are checked (C-1, C-2)."""

from rag_context.ingest.chunking.text_blocks import Block, Ruler, common, grouped, headed, path_over, substantial
from tests.ingest.tokens import Words

SIZE = 40
LARGE = "w " * 60
ENOUGH = "w " * 12
SMALL = "w " * 3


def packed(*parts: tuple[str, Block], size: int = SIZE) -> list[int]:
    """How many blocks each group holds; the offsets of the given blocks are filled in."""
    blocks: list[Block] = []
    text = ""
    for part, block in parts:
        blocks.append(Block(len(text), len(text) + len(part), block.path, block.hard, block.bare, block.preamble))
        text += part
    groups = grouped(blocks, Ruler(text, Words()), size)
    assert "".join(text[start:end] for start, end in groups) == text
    return [sum(start <= block.start < end for block in blocks) for start, end in groups]


def test_no_blocks_make_no_groups() -> None:
    assert packed() == []


def test_a_block_that_says_enough_stands_alone() -> None:
    assert packed((ENOUGH, Block(0, 0, ("A", "B"))), (ENOUGH, Block(0, 0, ("A", "C")))) == [1, 1]


def test_small_neighbours_are_packed() -> None:
    assert packed((SMALL, Block(0, 0, ("A", "B"))), (SMALL, Block(0, 0, ("A", "C")))) == [2]


def test_what_would_not_fit_is_not_packed() -> None:
    assert packed((SMALL, Block(0, 0, ("A", "B"))), (LARGE, Block(0, 0, ("A", "C")))) == [1, 1]


def test_nothing_is_packed_across_a_hard_start() -> None:
    assert packed((SMALL, Block(0, 0, ("A",))), (SMALL, Block(0, 0, ("B",), hard=True))) == [1, 1]


def test_a_bare_heading_goes_with_the_block_right_below_it() -> None:
    blocks = [
        Block(0, 1, ("A",), hard=True, bare=True),
        Block(1, 2, ("A", "B"), bare=True),
        Block(2, 9, ("A", "B", "C")),
        Block(9, 10, ("A", "D"), bare=True),
        Block(10, 11, ("E",), hard=True),
    ]
    assert headed(blocks) == [
        Block(0, 9, ("A", "B", "C"), hard=True),
        Block(9, 10, ("A", "D"), bare=True),
        Block(10, 11, ("E",), hard=True),
    ]


def test_a_small_introduction_goes_with_the_large_section_it_introduces() -> None:
    assert packed((SMALL, Block(0, 0, ("A",))), (LARGE, Block(0, 0, ("A", "B")))) == [2]


def test_a_small_preamble_goes_with_the_first_section() -> None:
    preamble = Block(0, 0, preamble=True)
    assert packed((SMALL, preamble), (LARGE, Block(0, 0, ("A",), hard=True))) == [2]
    assert packed((ENOUGH, preamble), (SMALL, Block(0, 0, ("A",), hard=True))) == [1, 1]


def test_a_small_block_goes_back_where_that_is_nearer() -> None:
    blocks = ((ENOUGH, Block(0, 0, ("A", "f"))), (SMALL, Block(0, 0, ("A", "g"))), (ENOUGH, Block(0, 0, ("h",))))
    assert packed(*blocks) == [2, 1]
    assert packed(*blocks, size=14) == [1, 1, 1]


def test_a_small_last_block_goes_back_to_its_relatives_only() -> None:
    assert packed((ENOUGH, Block(0, 0, ("A", "B"))), (SMALL, Block(0, 0, ("A", "C")))) == [2]
    assert packed((ENOUGH, Block(0, 0, ("A",))), (SMALL, Block(0, 0, ("B",)))) == [1, 1]
    assert packed((ENOUGH, Block(0, 0)), (SMALL, Block(0, 0))) == [2]


def test_what_is_substantial_grows_with_the_chunk_up_to_a_bound() -> None:
    assert [substantial(40), substantial(128), substantial(512)] == [10, 32, 64]


def test_the_common_path_is_what_both_stand_under() -> None:
    assert common(("A", "B", "C"), ("A", "B", "D")) == ("A", "B")
    assert common(("A",), ("A", "B")) == ("A",)
    assert common((), ("A",)) == ()


def test_the_path_of_a_chunk_is_true_of_all_of_it() -> None:
    blocks = [
        Block(0, 10, preamble=True),
        Block(10, 20, ("A",), bare=True),
        Block(20, 30, ("A", "B")),
        Block(30, 40, ("A", "C")),
    ]
    starts = [block.start for block in blocks]
    assert path_over(blocks, starts, 0, 30) == ("A", "B")
    assert path_over(blocks, starts, 25, 30) == ("A", "B")
    assert path_over(blocks, starts, 25, 31) == ("A",)
    assert path_over(blocks, starts, 0, 20) == ()
    assert path_over(blocks, starts, 12, 18) == ("A",)
