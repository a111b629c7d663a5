"""Computed ids: the same document has the same id wherever and whenever it is indexed.

A document's id says *which* document it is, so that a new version replaces the old one; its content hash says
whether anything about it changed; a chunk's id says which text is at which position of which document.
"""

import hashlib
import json
from collections.abc import Iterable
from uuid import UUID, uuid5

from rag_context.domain.documents import CHAT, CODE, DocumentInput, Origin

NAMESPACE = UUID("7f3c0c4e-5a1d-5d0e-9c5b-2f6f0a3b8d41")
"""Namespace of all document ids. It must never change: every stored id depends on it."""


def document_id(draft: DocumentInput) -> str:
    """The id of the document that `draft` is a version of, a UUID string.

    Code and files are identified by tenant and source. Documents submitted through a tool are identified by tenant,
    kind, source and session; a chat by its text too, since one session sends many texts.
    """
    tenant = draft.tenant
    fields = [tenant.project, tenant.branch, tenant.path_hash, draft.source]
    if draft.origin is Origin.TOOL and draft.content_type != CODE:
        fields += [draft.content_type, draft.session_id]
        if draft.content_type == CHAT:
            fields.append(_digest(draft.content))
    return str(uuid5(NAMESPACE, json.dumps(fields)))


def content_hash(draft: DocumentInput) -> str:
    """SHA-256 in hexadecimal over the content and everything that is returned with it."""
    metadata = draft.metadata
    fields = {
        "content": draft.content,
        "contentType": draft.content_type,
        "sessionId": draft.session_id,
        "source": draft.source,
        "agent": metadata.agent,
        "tags": metadata.tags,
        "category": metadata.category,
        "game": metadata.game,
        "decisionId": metadata.decision_id,
        "extra": dict(metadata.extra),
    }
    return _digest(json.dumps(fields, sort_keys=True))


def chunk_ids(document_id: str, chunks: Iterable[tuple[str, str]]) -> list[str]:
    """One UUID string per chunk, from the document's id, the place in the order, and the chunk's context and text.

    What is embedded decides the id: a chunk that keeps its id keeps its vector.
    """
    namespace = UUID(document_id)
    return [str(uuid5(namespace, f"{position}:{_digest(json.dumps(chunk))}")) for position, chunk in enumerate(chunks)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
