"""Long texts are tokenised in pieces, and no one can tell."""

from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.embedders.tokenizer import ModelTokenizer

TOKENIZER = ModelTokenizer(Path(str(files("rag_context") / "embedders" / "minilm" / "tokenizer.json")))


@pytest.fixture(scope="module")
def tokenizer() -> ModelTokenizer:
    return TOKENIZER


@pytest.mark.parametrize("word", ["harbour ", "Grüße,\n", "tide-tables\t"])
def test_a_long_text_has_the_spans_of_its_parts(tokenizer: ModelTokenizer, word: str) -> None:
    once = tokenizer.offsets(word)
    count = 200_000 // len(word)
    expected = [(start + i * len(word), end + i * len(word)) for i in range(count) for start, end in once]
    assert list(tokenizer.offsets(word * count)) == expected


def test_a_long_text_without_a_space_is_covered_without_gaps_or_overlap(tokenizer: ModelTokenizer) -> None:
    spans = list(tokenizer.offsets("(" * 150_000))
    assert spans == [(place, place + 1) for place in range(150_000)]


@given(st.lists(st.text(st.characters(codec=None, exclude_categories=()), max_size=40), max_size=5))
def test_texts_counted_together_have_as_many_tokens_as_spans(texts: list[str]) -> None:
    assert list(TOKENIZER.count(texts)) == [len(TOKENIZER.offsets(text)) for text in texts]


def test_a_long_text_is_counted_in_the_pieces_of_its_spans(tokenizer: ModelTokenizer) -> None:
    texts = ["tide-tables\t" * 20_000, "", "\ud800", "(" * 150_000, "unbelievable" * 15_000]
    assert list(tokenizer.count(texts)) == [len(tokenizer.offsets(text)) for text in texts]
