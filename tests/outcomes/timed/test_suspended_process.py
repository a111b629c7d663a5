"""A process that is stopped or throttled for a while: requests from before are answered after, and nothing is dead."""

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.end_to_end.process import Served
from tests.outcomes.clients import Reply, ask_together
from tests.outcomes.large_index import LargeIndex

CLIENTS = 12
BEFORE_S, AFTER_S = 0.7, 1.0


def ask_through(large_index: LargeIndex, seconds: float, disturb: Callable[[Served], None]) -> list[Reply]:
    """Replies to clients that ask without a break while the process is disturbed, and a second longer."""
    server = large_index.server
    disturbed = threading.Timer(BEFORE_S, disturb, (server,))
    disturbed.start()
    try:
        return ask_together(server.url, CLIENTS, BEFORE_S + seconds + AFTER_S, large_index.question)
    finally:
        disturbed.join()
        server.process.send_signal(signal.SIGCONT)


def check(large_index: LargeIndex, replies: list[Reply]) -> None:
    """No search failed, no breaker opened, outer or inner, and every part is as it was."""
    failed = [reply for reply in replies if reply.status != 200 or reply.level > 2]
    assert not failed, (len(failed), len(replies), failed[0].body)
    assert not any(reply.body["circuitBreakerOpen"] for reply in replies)
    skipped = [
        reply.body["legs"] for reply in replies if "open" in [leg["status"] for leg in reply.body["legs"].values()]
    ]
    assert not skipped, skipped[0]
    partial = [reply for reply in replies if reply.level != 1 or reply.warning is not None]
    assert len(partial) <= 0.1 * len(replies), (len(partial), len(replies), _reasons(partial))
    report = large_index.server.health()
    assert report["circuitBreakerOpen"] is False
    assert "unavailable" not in [part["status"] for part in report["components"]], report


def _reasons(replies: list[Reply]) -> Counter[str]:
    """How often each warning came, with what each retriever said."""
    return Counter(
        f"{reply.warning}: {[(part, leg['status'], leg.get('detail')) for part, leg in reply.body['legs'].items()]}"
        for reply in replies
    )


def stop_for(seconds: float) -> Callable[[Served], None]:
    def stop(server: Served) -> None:
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        server.process.send_signal(signal.SIGCONT)

    return stop


@pytest.mark.parametrize("seconds", [0.6, 2.0, 10.0])
def test_a_stopped_process_goes_on_where_it_was(large_index: LargeIndex, seconds: float) -> None:
    replies = ask_through(large_index, seconds, stop_for(seconds))
    assert max(reply.took_s for reply in replies) >= 0.5 * seconds, "nobody was kept waiting: nothing was tried"
    check(large_index, replies)


def test_a_throttled_process_is_slow_and_nothing_else(large_index: LargeIndex) -> None:
    """It runs 50 ms of every 100, as a container does beyond its quota."""

    def throttle(server: Served) -> None:
        for _ in range(20):
            stop_for(0.05)(server)
            time.sleep(0.05)

    check(large_index, ask_through(large_index, 2.0, throttle))
