"""The receipt for an indexed document, and the policy it is indexed by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """The result of indexing a draft."""

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
    """The result of indexing one draft; `pending` where its vectors are not stored yet."""

    document_id: str
    outcome: Outcome
    chunk_ids: tuple[str, ...]
    pending: bool
    redactions: Mapping[str, int] = field(default_factory=dict)
    duplicates_of: tuple[str, ...] = ()
    warning: str | None = None
    content_hash: str = ""
    is_unfinished: bool = False
    """Whether embedding ran out of time: `Indexer.finish` continues with the texts that are left."""


@dataclass(frozen=True, slots=True)
class IndexingPolicy:
    """The rules for indexing.

    `window` is the model's, used until the model itself is known; `timeout_s` bounds one document's wait for
    its vectors.
    """

    window: int
    timeout_s: float = 5.0
    redaction: RedactionMode = RedactionMode.REDACT
