"""Passages that read like instructions to the model are marked, and documentation is not."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from rag_context.domain import quoted_text
from rag_context.domain.quoted_text import reads_like_instruction
from tests.text.attacks import attacks

REPOSITORY = Path(__file__).resolve().parents[2]
LEAST_CHARS = 200
PARTS = ("first", "second", "third", "fourth", "fifth")


@pytest.mark.parametrize("part", PARTS)
def test_attacks_are_marked(part: str) -> None:
    texts = attacks(part)
    missed = [text for text in texts if not reads_like_instruction(text)]
    assert len(texts) == 270
    assert len(missed) <= (0.15 if part == "fifth" else 0.1) * len(texts), missed


def test_documentation_is_not_marked() -> None:
    """Pages of this repository, and what installed packages say of themselves."""
    packages = Path(sys.modules["pytest"].__file__ or "").parents[1].glob("*.dist-info/METADATA")
    pages = [*REPOSITORY.glob("docs/*.md"), *packages]
    texts = [text for page in pages for text in page.read_text(encoding="utf-8", errors="replace").split("\n\n")]
    passages = [text for text in texts if len(text) > LEAST_CHARS]
    marked = [passage for passage in passages if reads_like_instruction(passage)]
    assert len(passages) > 1000
    assert len(marked) <= 0.01 * len(passages), marked[:20]


def test_who_gives_no_instruction_to_a_model_is_not_marked() -> None:
    assert not reads_like_instruction("Always run the linter before you push, and never push to main.")
    assert not reads_like_instruction("The agent sends its answer to the server, which stores it.")


@pytest.mark.parametrize("kind", ["alone", "addressed", "claimed", "points"])
def test_a_text_that_a_pattern_matches_has_the_words_that_it_needs(kind: str) -> None:
    data = tomllib.loads(Path(quoted_text.__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    texts = [text.lower() for part in PARTS for text in attacks(part)]

    for rule in data[kind]:
        pattern = "|".join(rule["patterns"])
        for name, part in data["names"].items():
            pattern = pattern.replace(f"{{{name}}}", part)
        matched = [text for text in texts if re.search(pattern, text, re.MULTILINE)]
        assert matched, pattern
        for words in (rule["words"].split("|"), rule.get("also", "").split("|")):
            assert [text for text in matched if not any(word in text for word in words)] == [], pattern
