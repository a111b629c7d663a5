"""What an indexed document is answered with, and the rules it is indexed by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """What became of a draft."""

    INDEXED = "indexed"
    UNCHANGED = "unchanged"
    REPLACED = "replaced"
    PENDING = "pending"


class RedactionMode(StrEnum):
    """What happens to secrets."""

    REDACT = "redact"
    REJECT = "reject"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was done with a draft; `pending` where its vectors are still to come."""

    document_id: str
    outcome: Outcome
    chunk_ids: tuple[str, ...]
    pending: bool
    redactions: Mapping[str, int] = field(default_factory=dict)
    duplicates_of: tuple[str, ...] = ()
    warning: str | None = None
    content_hash: str = ""
    is_unfinished: bool = False
    """Whether nothing but time was lacking for its vectors: `Indexer.finish` goes on where this ended."""


@dataclass(frozen=True, slots=True)
class IndexingPolicy:
    """How documents come in.

    `window` is the model's, used until the model itself is known; `timeout_s` bounds one document's wait for
    its vectors.
    """

    window: int
    timeout_s: float = 5.0
    redaction: RedactionMode = RedactionMode.REDACT
