"""Answers as bytes and back, exactly: for a cache that processes share."""

import json
from dataclasses import asdict
from datetime import datetime
from typing import Any

from rag_context.domain.documents import Chunk, Metadata, Span
from rag_context.domain.search import ChunkRef, Passage
from rag_context.search.query import Answer, LegReport, LegStatus, Level, Result
from rag_context.search.ranking import Candidate, Ranked

FORMAT = 2
"""Changes with what is written, so that nobody reads what another release meant otherwise."""


def encoded(answer: Answer) -> bytes:
    """The answer as JSON; every number comes back as it was."""
    return json.dumps(asdict(answer), default=datetime.isoformat, separators=(",", ":")).encode()


def decoded(value: bytes) -> Answer | None:
    """The answer that was encoded; None where these bytes are not one."""
    try:
        return _answer(json.loads(value))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _answer(said: dict[str, Any]) -> Answer:
    legs = {
        name: LegReport(LegStatus(leg["status"]), leg["latency_ms"], leg["detail"])
        for name, leg in said["legs"].items()
    }
    results = tuple(_result(result) for result in said["results"])
    return Answer(**{**said, "results": results, "level": Level(said["level"]), "legs": legs})


def _result(said: dict[str, Any]) -> Result:
    ranked = said["ranked"]
    candidate = Candidate(**{**ranked["candidate"], "chunk": ChunkRef(**ranked["candidate"]["chunk"])})
    around = {side: _passage(said[side]) if said[side] is not None else None for side in ("before", "after")}
    passage = _passage(said["passage"])
    return Result(**{**said, **around, "passage": passage, "ranked": Ranked(**{**ranked, "candidate": candidate})})


def _passage(said: dict[str, Any]) -> Passage:
    chunk = Chunk(**{**said["chunk"], "span": Span(**said["chunk"]["span"])})
    metadata = Metadata(**{**said["metadata"], "tags": tuple(said["metadata"]["tags"])})
    timestamp = datetime.fromisoformat(said["timestamp"])
    return Passage(**{**said, "chunk": chunk, "timestamp": timestamp, "metadata": metadata})
