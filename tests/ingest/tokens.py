"""Tokenizers for the tests: the bundled model's, and two that can be reasoned about by hand."""

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import tokenizers

from rag_context.domain.documents import Span
from rag_context.ports.models import Tokenizer


class Words(Tokenizer):
    """A token per word."""

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"\S+", text)]


class Characters(Tokenizer):
    """A token per character, white space included; `per_character` of them where one is given."""

    def __init__(self, per_character: int = 1) -> None:
        self.per_character = per_character

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        return [(place, place + 1) for place in range(len(text)) for _ in range(self.per_character)]


class WordPieces(Tokenizer):
    """The bundled model's own, nothing truncated."""

    def __init__(self) -> None:
        path = files("rag_context") / "embedders" / "minilm" / "tokenizer.json"
        self._tokenizer = tokenizers.Tokenizer.from_str(path.read_text(encoding="utf-8"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        found: Sequence[tuple[int, int]] = self._tokenizer.encode(text, add_special_tokens=False).offsets
        return found


@cache
def word_pieces() -> WordPieces:
    return WordPieces()


def count(tokenizer: Tokenizer, text: str) -> int:
    return len(tokenizer.offsets(text))


def texts(content: str, spans: Sequence[Span]) -> list[str]:
    return [content[span.start : span.end] for span in spans]
