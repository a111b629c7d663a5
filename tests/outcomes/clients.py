"""Clients in threads that ask a server as fast as they are answered."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx2

TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer as a client saw it. `began` is by `time.monotonic`."""

    began: float
    took_s: float
    status: int
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def level(self) -> int:
        return int(self.body.get("fallbackLevel", 0))

    @property
    def warning(self) -> str | None:
        return self.body.get("warning")


def search(client: httpx2.Client, body: dict[str, Any]) -> Reply:
    """Ask once."""
    began = time.monotonic()
    response = client.post("/tools/rag_context_search", json=body)
    took_s = time.monotonic() - began
    return Reply(began, took_s, response.status_code, response.json(), dict(response.headers))


def ask_together(url: str, clients: int, seconds: float, body: Callable[[int, int], dict[str, Any]]) -> list[Reply]:
    """Replies to `clients` clients, each on a connection of its own, that ask for `seconds` without a break.

    Args:
        body: the request of client i, its jth: `body(i, j)`.
    """
    replies: list[Reply] = []
    failures: list[BaseException] = []
    end = time.monotonic() + seconds

    def ask(number: int) -> None:
        try:
            with httpx2.Client(base_url=url, timeout=TIMEOUT_S) as client:
                asked = 0
                while time.monotonic() < end:
                    replies.append(search(client, body(number, asked)))
                    asked += 1
        except BaseException as error:  # noqa: BLE001 -- re-raised below, in the thread of the test
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return replies
