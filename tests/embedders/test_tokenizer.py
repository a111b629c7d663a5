"""The embedder's tokenizer, by which texts are cut."""

import itertools
from pathlib import Path

import pytest

from rag_context.embedders.onnx import BUNDLED, OnnxEmbedder
from rag_context.embedders.tokenizer import ModelTokenizer
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
