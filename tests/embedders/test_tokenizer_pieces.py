"""Long texts are tokenised in pieces, and no one can tell."""

from importlib.resources import files
from pathlib import Path

import pytest

from rag_context.embedders.tokenizer import ModelTokenizer


@pytest.fixture(scope="module")
def tokenizer() -> ModelTokenizer:
    return ModelTokenizer(Path(str(files("rag_context") / "embedders" / "minilm" / "tokenizer.json")))


@pytest.mark.parametrize("word", ["harbour ", "Grüße,\n", "tide-tables\t"])
def test_a_long_text_has_the_spans_of_its_parts(tokenizer: ModelTokenizer, word: str) -> None:
    once = tokenizer.offsets(word)
    count = 200_000 // len(word)
    expected = [(start + i * len(word), end + i * len(word)) for i in range(count) for start, end in once]
    assert list(tokenizer.offsets(word * count)) == expected


def test_a_long_text_without_a_space_is_covered_without_gaps_or_overlap(tokenizer: ModelTokenizer) -> None:
    spans = list(tokenizer.offsets("(" * 150_000))
    assert spans == [(place, place + 1) for place in range(150_000)]
