"""The embedder's tokenizer, by which texts are cut and counted; long texts in pieces."""

import itertools
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.embedders.model_tokenizer import ModelTokenizer
from rag_context.embedders.onnx import BUNDLED, OnnxEmbedder
from rag_context.errors import BackendUnavailableError
from rag_context.ports.models import Tokenizer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Grand",
        "Grüße aus Köln, 東京 and 🎰",
        "def retry(n: int):\n    connect()",
        "a\r\n\tb",
        "naïve İstanbul",
        "x" * 150,
        "word " * 2000,
    ],
)
def test_offsets_cover_every_visible_character_in_order(text: str) -> None:
    offsets = OnnxEmbedder(workers=1).tokenizer.offsets(text)
    covered = "".join(text[start:end] for start, end in offsets)
    assert [character for character in covered if not character.isspace()] == [
        character for character in text if not character.isspace()
    ]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(offsets))


def test_offsets_are_the_tokens_without_padding_special_tokens_or_truncation() -> None:
    tokenizer = OnnxEmbedder(workers=1).tokenizer
    assert tokenizer.offsets("Unbelievable, Mr. O'Neil") == tokenizer.offsets("unbelievable, mr. o'neil")
    assert tokenizer.offsets("two words") == [(0, 3), (4, 9)]
    assert len(tokenizer.offsets("word " * 2000)) == 2000
    assert list(tokenizer.offsets("")) == []


def test_the_tokenizer_needs_no_loaded_model() -> None:
    assert OnnxEmbedder(workers=1).tokenizer.offsets("word") == [(0, 4)]


def test_a_window_cuts_tokens_but_keeps_the_special_ones() -> None:
    tokenizer = ModelTokenizer(BUNDLED / "tokenizer.json")
    whole, cut = tokenizer.encode("one two three", 3)
    assert not cut
    assert tokenizer.encode("one two three", 2) == ([*whole[:3], whole[-1]], True)
    assert len(tokenizer.encode("word " * 2000, 254)[0]) == 256


def test_a_lone_surrogate_keeps_the_offsets_in_place() -> None:
    tokenizer: Tokenizer = ModelTokenizer(BUNDLED / "tokenizer.json")
    assert (8, 13) in tokenizer.offsets("two \ud800\ud800\ud800 words")


@pytest.mark.parametrize("content", [None, "", "{}", "garbage"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(BackendUnavailableError, match="cannot read the tokenizer"):
        ModelTokenizer(path)


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
