"""Renders documents for a context and caches them: headings are demoted and tokens counted once per version."""

import hashlib
import threading
from contextlib import suppress

from cachetools import LRUCache

from rag_context.ports.models import Tokenizer
from rag_context.projects.excerpts import Rendered, rendered

REMEMBERED_CHARS = 8_000_000
COUNTED = 4096
"""The number of short texts, such as headings of documents, whose token counts are cached."""


class Renderer:
    """Renders documents and counts tokens, with a cache; thread-safe.

    Args:
        tokenizer: the tokenizer of the embedding model.
        remembered_chars: the size of the cache, in characters of rendered text.
    """

    def __init__(self, tokenizer: Tokenizer, remembered_chars: int = REMEMBERED_CHARS) -> None:
        self.tokenizer = tokenizer
        self._lock = threading.Lock()
        self._counts: LRUCache[str, int] = LRUCache(COUNTED)
        self._known: LRUCache[bytes, Rendered] = LRUCache(remembered_chars, getsizeof=_size)

    def render(self, content: str) -> Rendered:
        """Render a document's content for a context."""
        key = _key(content)
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        made = rendered(content, lambda text: len(self.tokenizer.offsets(text)))
        with self._lock, suppress(ValueError):  # it is larger than the cache
            self._known[key] = made
        return made

    def ready(self, content: str) -> Rendered | None:
        """The rendered content from the cache, or None."""
        with self._lock:
            return self._known.get(_key(content))

    def count(self, text: str) -> int:
        """The number of tokens of a short text."""
        with self._lock:
            known = self._counts.get(text)
        if known is None:
            known = len(self.tokenizer.offsets(text))
            with self._lock:
                self._counts[text] = known
        return known


def _key(content: str) -> bytes:
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).digest()


def _size(made: Rendered) -> int:
    return len(made.text) + 1
