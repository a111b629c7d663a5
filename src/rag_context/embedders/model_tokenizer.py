"""A model's tokenizer, from its `tokenizer.json`; loaded without the model, also by processes that never run one."""

import re
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Encoding, Tokenizer

from rag_context.domain.text import PIECE_CHARS, pieces
from rag_context.errors import BackendUnavailableError

COMPONENT = "embedder"

_SURROGATES = re.compile("[\ud800-\udfff]")
"""Lone surrogates are legal in JSON but in no encoding; the tokenizer rejects a text that contains one."""


class ModelTokenizer:
    """Cuts text as the model does; fits `ports.Tokenizer`. Any thread may use it."""

    path: Path | None
    splits_at_spaces: bool

    def __init__(self, path: Path) -> None:
        """Read the file. Raises: BackendUnavailableError where it is missing or no tokenizer."""
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise BackendUnavailableError(
                COMPONENT, f"cannot read the tokenizer {str(path)!r} ({error}): put the model's tokenizer.json there"
            ) from error
        # Only of these is it known: SentencePiece and byte-level BPE put white space into their tokens.
        kinds = (type(self._tokenizer.model).__name__, type(self._tokenizer.pre_tokenizer).__name__)
        self.path = path
        self.splits_at_spaces = kinds == ("WordPiece", "BertPreTokenizer")
        # The published file pads to 128 and cuts at 128, half of what the model reads.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        if len(text) <= PIECE_CHARS:
            return self._encoding(text).offsets
        spans: list[tuple[int, int]] = []
        for start, end in pieces(text):
            spans += [(start + first, start + last) for first, last in self._encoding(text[start:end]).offsets]
        return spans

    def count(self, texts: Sequence[str]) -> Sequence[int]:
        # The same pieces as `offsets` cuts: without white space at their edges, others would have other tokens.
        parts = [(number, text[start:end]) for number, text in enumerate(texts) for start, end in pieces(text)]
        encodings = self._tokenizer.encode_batch_fast(
            [without_surrogates(part) for _, part in parts], add_special_tokens=False
        )
        counts = [0] * len(texts)
        for (number, _), encoding in zip(parts, encodings, strict=True):
            counts[number] += len(encoding)
        return counts

    def encode(self, text: str, window: int) -> tuple[list[int], bool]:
        """Token ids of at most `window` tokens between the special ones, and whether any were cut off."""
        encoding = self._encoding(text)
        cut = len(encoding.ids) > window
        if cut:
            encoding.truncate(window)
        return self._tokenizer.post_process(encoding).ids, cut

    def _encoding(self, text: str) -> Encoding:
        # `encode` holds the GIL, which stalls the event loop for 0.7 s on a megabyte of text; a batch of one does not.
        (encoding,) = self._tokenizer.encode_batch([without_surrogates(text)], add_special_tokens=False)
        return encoding


def without_surrogates(text: str) -> str:
    """A text that tokenizers accept: lone surrogates are legal in Python and in no encoding."""
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
