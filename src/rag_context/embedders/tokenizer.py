"""A model's own tokenizer, read from its `tokenizer.json`."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tokenizers import Encoding, Tokenizer

from rag_context.errors import BackendUnavailableError

COMPONENT = "embedder"

_SURROGATES = re.compile("[\ud800-\udfff]")
"""Lone surrogates are legal in JSON but in no encoding; the tokenizer rejects a text that contains one."""

_PIECE_CHARS = 1 << 16
"""Most characters whose spans are made at once: that holds the interpreter's lock, 0.4 s for a million tokens."""


class ModelTokenizer:
    """Cuts text as the model does; fits `ports.Tokenizer`. Any thread may use it."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises: BackendUnavailableError where it is missing or no tokenizer."""
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise BackendUnavailableError(
                COMPONENT, f"cannot read the tokenizer {str(path)!r} ({error}): put the model's tokenizer.json there"
            ) from error
        # The published file pads to 128 and cuts at 128, half of what the model reads.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Character span of every token of `text`, in order; special tokens excluded, nothing truncated."""
        if len(text) <= _PIECE_CHARS:
            return self._encoding(text).offsets
        spans: list[tuple[int, int]] = []
        for start, end in _pieces(text):
            spans += [(start + first, start + last) for first, last in self._encoding(text[start:end]).offsets]
        return spans

    def count(self, texts: Sequence[str]) -> Sequence[int]:
        """The number of tokens of each text, as many as `offsets` has, without making their spans."""
        # The same pieces as `offsets` cuts: without white space at their edges, others would have other tokens.
        pieces = [(number, text[start:end]) for number, text in enumerate(texts) for start, end in _pieces(text)]
        encodings = self._tokenizer.encode_batch_fast([_valid(piece) for _, piece in pieces], add_special_tokens=False)
        counts = [0] * len(texts)
        for (number, _), encoding in zip(pieces, encodings, strict=True):
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
        (encoding,) = self._tokenizer.encode_batch([_valid(text)], add_special_tokens=False)
        return encoding


def _valid(text: str) -> str:
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    """A text in pieces that end behind white space, where no token goes on; without white space, anywhere."""
    start = 0
    while start < len(text):
        end = min(start + _PIECE_CHARS, len(text))
        if end < len(text):
            spaced = max(text.rfind(space, start, end) for space in " \n\t")
            end = spaced + 1 if spaced >= start else end
        yield start, end
        start = end
