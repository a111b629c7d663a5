"""docs/where.md says what is true: every example on it is tried."""

import json
import re
from pathlib import Path

import pytest

from rag_context.domain.clauses import Operator
from rag_context.domain.where import matches, parse
from rag_context.errors import InvalidInputError

PAGE = (Path(__file__).parents[2] / "docs" / "where.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]*)`")


def rows(heading: str) -> list[list[str]]:
    """The table below a heading, without its head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    return [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")][2:]


def code(cell: str) -> str:
    found = CODE.search(cell)
    assert found is not None, cell
    return found[1]


EXAMPLES = rows("Operators") + rows("Equality")


@pytest.mark.parametrize("row", EXAMPLES, ids=lambda row: code(row[-3]))
def test_a_filter_lets_through_what_the_page_says(row: list[str]) -> None:
    where, through, kept = (code(cell) for cell in row[-3:])
    assert matches(parse(where), json.loads(through))
    assert not matches(parse(where), json.loads(kept))


@pytest.mark.parametrize("row", rows("Rejected filters"), ids=lambda row: code(row[0]))
def test_a_rejected_filter_is_answered_with_the_message_of_the_page(row: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(code(row[0]))
    assert str(caught.value) == row[1]


def test_the_page_shows_every_operator() -> None:
    message = " ".join(row[0] for row in rows("Operators"))
    for operator in [*Operator, "$in", "$nin", "$and", "$or", "$not"]:
        assert f"`{operator}`" in message


def test_the_longer_examples_can_be_read() -> None:
    blocks = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        parse(block)
