"""Contents made ready for a context, remembered: a document is demoted and counted once per version."""

import hashlib
import threading
from contextlib import suppress

from cachetools import LRUCache

from rag_context.ports.models import Tokenizer
from rag_context.projects.excerpts import Rendered, rendered

REMEMBERED_CHARS = 8_000_000
COUNTED = 4096
"""How many short texts, such as what stands above a document, are kept in memory with their tokens."""


class Renderer:
    """Renders and counts; any thread may use it.

    Args:
        tokenizer: counts tokens as the embedder does.
        remembered_chars: how much rendered text is kept in memory.
    """

    def __init__(self, tokenizer: Tokenizer, remembered_chars: int = REMEMBERED_CHARS) -> None:
        self.tokenizer = tokenizer
        self._lock = threading.Lock()
        self._counts: LRUCache[str, int] = LRUCache(COUNTED)
        self._known: LRUCache[bytes, Rendered] = LRUCache(remembered_chars, getsizeof=_size)

    def render(self, content: str) -> Rendered:
        """A content as it stands in a context."""
        key = _key(content)
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        made = rendered(content, lambda text: len(self.tokenizer.offsets(text)))
        with self._lock, suppress(ValueError):  # it is larger than all that is remembered
            self._known[key] = made
        return made

    def ready(self, content: str) -> Rendered | None:
        """A content as it stands in a context, if it was rendered before."""
        with self._lock:
            return self._known.get(_key(content))

    def count(self, text: str) -> int:
        """How many tokens a short text has."""
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
