"""Secrets of a whole configuration, in the shapes in which people keep them, do not reach the memory."""

from pathlib import Path

from tests.end_to_end.process import served
from tests.ingest.secret_shapes import SHAPES, named_secrets, written


def test_of_named_secrets_in_every_shape_nearly_none_is_stored(tmp_path: Path) -> None:
    named = list(named_secrets())
    stored: dict[str, str] = {}
    with served(tmp_path / "data", RAG_CONTEXT_INDEXING__TIMEOUT_S="0.1") as server:
        for shape in SHAPES:
            text = "\n\n".join(written(shape, name, value) for name, value in named)
            receipt = server.index(text, source=shape)
            assert sum(receipt["redactions"].values()) >= 0.9 * len(named), shape
            stored[shape] = server.tool("get", {"documentId": receipt["documentId"]}).json()["content"]
    left = [(shape, name) for shape in SHAPES for name, value in named if value in stored[shape]]
    assert len(left) <= 0.02 * len(SHAPES) * len(named), left
