"""Clients that index, index again, replace and search, until the server dies under them."""

import random
import threading
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.torture.acknowledged import Promise, Version, compose

PATIENCE_S = 30.0


@dataclass
class Tally:
    """What the clients of a round did and saw."""

    acknowledged: int = 0
    replaced: int = 0
    unchanged: int = 0
    refused: int = 0
    searches: int = 0
    touched: dict[str, Promise] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)


class Client:
    """One client, in a thread of its own, the only one that writes its sources."""

    def __init__(self, name: str, url: str, promises: list[Promise], rng: random.Random, tally: Tally) -> None:
        self._name = name
        self._promises = promises
        self._rng = rng
        self._tally = tally
        self._stopped = threading.Event()
        self._http = httpx2.Client(base_url=url, timeout=PATIENCE_S, trust_env=False)
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
        known = [promise for promise in self._promises if promise.stored is not None]
        dice = self._rng.random()
        if dice < 0.5 or not known:
            promise = Promise(f"{self._name}x{len(self._promises)}q")
            self._promises.append(promise)
            self._send(promise, compose(promise.source, 0, self._rng))
        elif dice < 0.7:
            promise = self._rng.choice(known)
            number = len(promise.replaced) + len(promise.sent) + 1
            self._send(promise, compose(promise.source, number, self._rng))
        elif dice < 0.8:
            promise = self._rng.choice(known)
            if promise.stored is not None and not promise.sent:
                self._send(promise, promise.stored)
        else:
            self._look_for(self._rng.choice(known))

    def _send(self, promise: Promise, version: Version) -> None:
        self._tally.touched[promise.source] = promise
        promise.sent.append(version)
        reply = self._http.post(
            "/tools/rag_context_index",
            json={
                "content": version.content,
                "contentType": "documentation",
                "sessionId": self._name.partition("r")[0],
                "source": promise.source,
            },
        )
        if reply.status_code != httpx2.codes.OK:
            self._tally.refused += 1
            return
        receipt = reply.json()
        self._count(receipt, promise, version)
        promise.acknowledge(version, receipt["documentId"])
        if self._rng.random() < 0.3:
            self._look_for(promise)

    def _count(self, receipt: dict[str, Any], promise: Promise, version: Version) -> None:
        self._tally.acknowledged += 1
        if promise.stored is None:
            return
        if promise.document_id != receipt["documentId"]:
            self._tally.losses.append(f"{version.marker}: another document id after a second call")
        if promise.stored == version:
            self._tally.unchanged += 1
        else:
            self._tally.replaced += 1

    def _look_for(self, promise: Promise) -> None:
        """What was acknowledged is found at once; an answer below level 2 says itself that it looked nowhere."""
        if promise.stored is None or promise.sent:
            return
        reply = self._http.post(
            "/tools/rag_context_search", json={"query": promise.stored.marker, "mode": "text", "minScore": 0}
        )
        self._tally.searches += 1
        if reply.status_code != httpx2.codes.OK or reply.json()["fallbackLevel"] > 2:
            return
        if not any(promise.stored.marker in result["content"] for result in reply.json()["results"]):
            self._tally.losses.append(f"{promise.stored.marker}: acknowledged, and not found by a search after it")
