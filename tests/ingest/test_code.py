"""Code without a grammar (C-1)."""

from hypothesis import given
from hypothesis import strategies as st

from rag_context.ingest.chunking.code import braced_blocks, line_boundaries
from rag_context.ingest.chunking.text_blocks import Strength

TEXT = "sub a {\n  x;\n}\n\nsub b {\n  if (y) {\n  }\n}\nz;\n"


def test_blocks_end_at_a_brace_at_the_margin() -> None:
    assert [TEXT[block.start : block.end] for block in braced_blocks(TEXT)] == [
        "sub a {\n  x;\n}\n\n",
        "sub b {\n  if (y) {\n  }\n}\n",
        "z;\n",
    ]


def test_a_text_without_braces_is_one_block() -> None:
    assert [(block.start, block.end) for block in braced_blocks("a\n\nb")] == [(0, 4)]


def test_blank_lines_part_code_before_lines_do() -> None:
    found = {unit.offset: unit.strength for unit in line_boundaries("a\n\nb\nc\n\n")}
    assert found == {3: Strength.PARAGRAPH, 5: Strength.LINE}


def test_a_closing_line_stays_with_what_it_closes() -> None:
    text = "f(\n  a\n)\nelse\nb"
    found = {text[unit.offset :].partition("\n")[0]: unit.strength for unit in line_boundaries(text)}
    assert found == {"  a": Strength.LINE, ")": Strength.WRAP, "else": Strength.WRAP, "b": Strength.LINE}


@given(st.text(alphabet=st.sampled_from("a}{;\n\r "), max_size=150))
def test_blocks_cover_any_text_without_gaps(text: str) -> None:
    assert "".join(text[block.start : block.end] for block in braced_blocks(text)) == text
    offsets = [unit.offset for unit in line_boundaries(text)]
    assert offsets == sorted(set(offsets))
