"""Clients that index, index again, replace and search, until the server dies under them."""

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.torture.acknowledged import ExpectedSource, Version, compose

TIMEOUT_S = 30.0


@dataclass
class Counts:
    """What the clients of a round did and saw."""

    acknowledged: int = 0
    replaced: int = 0
    unchanged: int = 0
    rejected: int = 0
    searches: int = 0
    touched: dict[str, ExpectedSource] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)


class Client:
    """One client, in a thread of its own, the only one that writes its sources."""

    def __init__(
        self, name: str, url: str, expected_sources: list[ExpectedSource], rng: random.Random, counts: Counts
    ) -> None:
        self._name = name
        self._expected_sources = expected_sources
        self._rng = rng
        self._counts = counts
        self._stopped = threading.Event()
        self._http = httpx2.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False)
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the end of the call under way."""
        self._stopped.set()
        self._thread.join()
        self._http.close()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._act()
        except httpx2.TransportError:
            return  # the server was killed; what was under way is neither promised nor forbidden

    def _act(self) -> None:
        known = [expected_source for expected_source in self._expected_sources if expected_source.stored is not None]
        dice = self._rng.random()
        if dice < 0.5 or not known:
            expected_source = ExpectedSource(f"{self._name}x{len(self._expected_sources)}q")
            self._expected_sources.append(expected_source)
            self._send(expected_source, compose(expected_source.source, 0, self._rng))
        elif dice < 0.7:
            expected_source = self._rng.choice(known)
            number = len(expected_source.replaced) + len(expected_source.sent) + 1
            self._send(expected_source, compose(expected_source.source, number, self._rng))
        elif dice < 0.8:
            expected_source = self._rng.choice(known)
            if expected_source.stored is not None and not expected_source.sent:
                self._send(expected_source, expected_source.stored)
        else:
            self._look_for(self._rng.choice(known))

    def _send(self, expected_source: ExpectedSource, version: Version) -> None:
        self._counts.touched[expected_source.source] = expected_source
        expected_source.sent.append(version)
        reply = self._http.post(
            "/tools/rag_context_index",
            json={
                "content": version.content,
                "contentType": "documentation",
                "sessionId": self._name.partition("r")[0],
                "source": expected_source.source,
            },
        )
        if reply.status_code != httpx2.codes.OK:
            self._counts.rejected += 1
            return
        receipt = reply.json()
        self._count(receipt, expected_source, version)
        expected_source.acknowledge(version, receipt["documentId"])
        if self._rng.random() < 0.3:
            self._look_for(expected_source)

    def _count(self, receipt: dict[str, Any], expected_source: ExpectedSource, version: Version) -> None:
        self._counts.acknowledged += 1
        if expected_source.stored is None:
            return
        if expected_source.document_id != receipt["documentId"]:
            self._counts.losses.append(f"{version.marker}: another document id after a second call")
        if expected_source.stored == version:
            self._counts.unchanged += 1
        else:
            self._counts.replaced += 1

    def _look_for(self, expected_source: ExpectedSource) -> None:
        """What was acknowledged is found at once; an answer below level 2 says itself that it looked nowhere."""
        if expected_source.stored is None or expected_source.sent:
            return
        reply = self._http.post(
            "/tools/rag_context_search", json={"query": expected_source.stored.marker, "mode": "text", "minScore": 0}
        )
        self._counts.searches += 1
        if reply.status_code != httpx2.codes.OK or reply.json()["fallbackLevel"] > 2:
            return
        if not any(expected_source.stored.marker in result["content"] for result in reply.json()["results"]):
            self._counts.losses.append(
                f"{expected_source.stored.marker}: acknowledged, and not found by a search after it"
            )
