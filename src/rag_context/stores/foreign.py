"""What other programs keep beside a vector, as a text and metadata: the shapes of the usual libraries."""

import json
from collections.abc import Mapping
from typing import Any

from rag_context.domain.documents import Json

TEXT_KEYS = ("document", "page_content", "text", "content", "body", "chunk", "passage")
"""Where the text stands, the first that is there: Qdrant's own clients, LangChain, and what most others call it."""

_METADATA_KEYS = ("metadata", "meta")
_NODE = "_node_content"
"""LlamaIndex keeps a node as JSON, its text among much else."""


def read_fields(payload: Mapping[str, Any], text: str | None = None) -> tuple[str, dict[str, Json]]:
    """The text and the metadata of a document that another program stored.

    Args:
        payload: all that stands beside the vector.
        text: the text, where the engine keeps it apart.
    """
    rest = dict(payload)
    if not text:
        key = next((key for key in TEXT_KEYS if isinstance(rest.get(key), str) and rest[key]), None)
        text = rest.pop(key) if key is not None else _of_node(rest.get(_NODE))
    rest.pop(_NODE, None)
    for key in _METADATA_KEYS:
        if len(rest) == 1 and isinstance(rest.get(key), Mapping):
            return text, dict(rest[key])
    return text, rest


def _of_node(node: object) -> str:
    try:
        found = json.loads(node)["text"] if isinstance(node, str) else ""
    except (ValueError, KeyError, TypeError):
        return ""
    return found if isinstance(found, str) else ""
