"""Short documents that share their words, and literal quotations from them."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx2

from tests.end_to_end.process import TIMEOUT_S, Served

QUOTED_WORDS = 14

_ROOTS = tuple(
    """
    river bridge harbour engine signal garden ledger copper winter market tunnel orchard
    lantern battery glacier carpet window pepper timber saddle ribbon kettle anchor meadow
    pillow cannon button mirror barrel candle
    """.split()  # noqa: SIM905  (readable as it is)
)
_ENDINGS = ("", "side", "work", "land", "yard", "mill", "gate", "stone", "field", "port")
WORDS = [root + ending for root in _ROOTS for ending in _ENDINGS]


def texts(count: int, seed: int = 7) -> list[str]:
    """`count` texts of some forty words out of three hundred, the frequent ones in every text."""
    draw = random.Random(seed)
    weights = [1.0 / (1 + rank) ** 0.6 for rank in range(len(WORDS))]
    made = []
    for _ in range(count):
        words = draw.choices(WORDS, weights, k=draw.randint(32, 48))
        made.append(" ".join(words).capitalize() + ".")
    return made


def quotation(text: str, seed: int = 0) -> str:
    """Fourteen words that stand in the text, one after the other."""
    words = text.rstrip(".").split()
    start = random.Random(seed).randrange(len(words) - QUOTED_WORDS)
    return " ".join(words[start : start + QUOTED_WORDS])


def index_all(server: Served, documents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Receipts for the documents, sent as one stream; every one of them is stored."""
    lines = "\n".join(
        json.dumps({"contentType": "documentation", "sessionId": "s", "fromFile": True, **fields})
        for fields in documents
    )
    response = httpx2.post(
        server.url + "/bulk",
        content=lines.encode(),
        headers={"Content-Type": "application/x-ndjson"},
        timeout=3 * TIMEOUT_S,
    )
    assert response.status_code == 200, response.text
    receipts = [json.loads(line) for line in response.text.splitlines()]
    assert {receipt["status"] for receipt in receipts} <= {"indexed", "replaced", "deferred"}, receipts[:3]
    return receipts


def found(server: Served, sources: Sequence[str], ask: Callable[[str], str], **fields: Any) -> Iterator[dict[str, Any]]:
    """The answers to a quotation from each source; `isFound` says whether that is among the first five."""
    for source in sources:
        answer = server.search(ask(source), limit=5, **fields)
        yield {**answer, "isFound": source in [result["source"] for result in answer["results"]]}
