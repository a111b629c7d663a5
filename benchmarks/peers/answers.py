"""What all drivers share; for every environment, so with the standard library alone (and NumPy for given vectors)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

MAX_TOKENS = 256
COLLECTION = "peers"
LIMIT = 5
"""Results of a question, for all peers alike."""

GIVEN = "RAG_PEERS_GIVEN"
"""Environment variable: a folder of files with texts and their vectors, made once for all peers."""

Fields: TypeAlias = Mapping[str, object]
"""What is known of a text beside it; its `source` is its name."""


@dataclass(frozen=True)
class Answer:
    """The `LIMIT` best results, best first: their texts, and their names.

    `abstained`: it says that nothing answers the question.
    """

    texts: list[str]
    sources: list[str]
    abstained: bool = False


def names_of(texts: Sequence[str], fields: Sequence[Fields], before: int) -> list[str]:
    """A name for each text: its source, or its number, where `before` texts have one already."""
    known = fields or [{}] * len(texts)
    return [str(each.get("source", f"texts/{before + number}")) for number, each in enumerate(known)]


class Given:
    """The vectors of texts that were made before; files may come while it is used. None without a folder."""

    def __init__(self) -> None:
        folder = os.environ.get(GIVEN)
        self.folder = Path(folder) if folder else None
        self._read: set[Path] = set()
        self._vectors: dict[str, Any] = {}

    def of(self, texts: Sequence[str]) -> list[Any] | None:
        """A vector for each text, `(dim,) float32`; None where one of them has none."""
        if self.folder is not None and not self._vectors.keys() >= set(texts):
            self._read_new(self.folder)
        found = [self._vectors.get(text) for text in texts]
        return None if any(vector is None for vector in found) else found

    def _read_new(self, folder: Path) -> None:
        import numpy as np

        for path in set(folder.glob("*.npz")) - self._read:
            with np.load(path) as file:
                self._vectors.update(zip(file["texts"].tolist(), file["vectors"], strict=True))
            self._read.add(path)
