"""Checks that a restarted server has everything that was acknowledged."""

import time
from collections.abc import Iterable
from typing import Any

import httpx2

from tests.end_to_end.process import TIMEOUT_S, Served
from tests.torture.acknowledged import ExpectedSource, Version

WHOLE = 20
"""Limit of a search: more than the chunks of any one document."""


def find_losses(server: Served, expected_sources: Iterable[ExpectedSource]) -> list[str]:
    """Find out what became of what was under way, and compare all with what was promised; returns the losses."""
    losses = []
    with httpx2.Client(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as http:
        for expected_source in expected_sources:
            losses += _losses_of(http, expected_source)
    return losses


def _losses_of(http: httpx2.Client, expected_source: ExpectedSource) -> list[str]:
    for version in (*reversed(expected_source.sent), expected_source.stored):
        result = _by_text(http, expected_source, version)
        if version is not None and result is not None:
            losses = _compare(http, expected_source, version, result)
            expected_source.acknowledge(version, result["documentId"])
            return losses
    expected_source.sent.clear()
    return (
        [f"{expected_source.stored.marker}: acknowledged, and not there after the kill"]
        if expected_source.stored
        else []
    )


def _compare(
    http: httpx2.Client, expected_source: ExpectedSource, version: Version, result: dict[str, Any]
) -> list[str]:
    """One document under one id, once, found by keyword search and by its vector, without any older version of it."""
    losses = []
    if expected_source.document_id not in (None, result["documentId"]):
        losses.append(f"{version.marker}: under another document id than before")
    answer = _ask(http, query=result["content"][:1000], mode="vector", limit=WHOLE)
    if result["chunkId"] not in [found["chunkId"] for found in answer["results"]]:
        losses.append(f"{version.marker}: not found by its own vector")
    whole = _ask(http, query=f"entry {version.marker}", mode="text", source=expected_source.source, limit=WHOLE)[
        "results"
    ]
    chunks = [found["chunkId"] for found in whole]
    if {found["documentId"] for found in whole} != {result["documentId"]} or len(set(chunks)) != len(chunks):
        losses.append(f"{version.marker}: there twice")
    old = [marker for marker in expected_source.replaced if marker != version.marker]
    losses += [
        f"{marker}: replaced by {version.marker}, and still found" for marker in old[-3:] if _is_found(http, marker)
    ]
    return losses


def _is_found(http: httpx2.Client, marker: str) -> bool:
    return any(marker in found["content"].split() for found in _ask(http, query=marker, mode="text")["results"])


def _by_text(http: httpx2.Client, expected_source: ExpectedSource, version: Version | None) -> dict[str, Any] | None:
    if version is None:
        return None
    for result in _ask(http, query=version.marker, mode="text", source=expected_source.source)["results"]:
        if version.marker in result["content"].split():
            found: dict[str, Any] = result
            return found
    return None


def _ask(http: httpx2.Client, **fields: Any) -> dict[str, Any]:
    """An answer that did search: on a busy machine some come too late and say so."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        answer: dict[str, Any] = http.post("/tools/rag_context_search", json={"minScore": 0, **fields}).json()
        if answer.get("fallbackLevel") == 1:
            return answer
        assert time.monotonic() < end, f"no answer at level 1 within {TIMEOUT_S} s: {answer}"
