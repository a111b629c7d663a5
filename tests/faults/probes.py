"""Does one thing to a memory under a fault, and says what it saw that should not be."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.faults.fault_cases import Case, Expected
from tests.faults.harness import MemoryHarness

GENEROUS_S = 2.0
"""A search that takes longer than this waited for something; how long they take is measured, not tested."""

PROMPT_S = 15.0
"""As much for a write."""


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What came of a request: complaints, and how long it took by the client's clock and by the server's."""

    complaints: tuple[str, ...]
    took_ms: float
    latency_ms: float


def search(harness: MemoryHarness, expected: Expected) -> ProbeResult:
    """One search that no cache can answer."""
    version = harness.known()
    started = time.perf_counter()
    answer = harness.search(version)
    took_s = time.perf_counter() - started
    return ProbeResult(tuple(_of_search(answer, expected, version.marker, took_s)), took_s * 1000.0, answer["latency"])


def index(harness: MemoryHarness, case: Case, padding: str = "") -> ProbeResult:
    """A document with `padding` at its end; if it was acknowledged, keyword search has to find it."""
    started = time.perf_counter()
    version, reply = harness.write(f"{case.name.replace('-', 'x')}q", padding)
    took_s = time.perf_counter() - started
    complaints = list(_of_receipt(reply, case.expected, took_s))
    if reply.status_code == 200:
        found = harness.search(version, mode="text")
        if not any(version.marker in result["content"] for result in found["results"]):
            complaints.append("an acknowledged document is not found by its words")
    return ProbeResult(tuple(complaints), took_s * 1000.0, reply.json().get("latencyMs", 0.0))


def health(harness: MemoryHarness, case: Case) -> ProbeResult:
    """One report of health."""
    started = time.perf_counter()
    report = harness.memory.health()
    took_s = time.perf_counter() - started
    return ProbeResult(tuple(_of_report(report, case)), took_s * 1000.0, report["latency"])


def stats(harness: MemoryHarness, case: Case) -> ProbeResult:
    """One look at the statistics."""
    started = time.perf_counter()
    reply = harness.memory.get("/tools/rag_context_stats?timeRange=1h")
    took_ms = (time.perf_counter() - started) * 1000.0
    said = () if reply.status_code == case.expected.stats else (f"status {reply.status_code}: {reply.text}",)
    return ProbeResult(said, took_ms, took_ms)


def _of_search(answer: dict[str, Any], expected: Expected, marker: str, took_s: float) -> Iterator[str]:
    if answer["fallbackLevel"] != expected.level:
        yield f"level {answer['fallbackLevel']}, not {expected.level}"
    if answer.get("warning") != expected.warning:
        yield f"warning {answer.get('warning')!r}"
    amiss = {name for name, leg in answer["legs"].items() if leg["status"] != "ok"}
    if expected.legs is not None and amiss != expected.legs:
        yield f"the legs {sorted(amiss)} are amiss: {answer['legs']}"
    if answer["circuitBreakerOpen"]:
        yield "the circuit breaker is open"
    if expected.level < 3 and not any(marker in result["content"] for result in answer["results"]):
        yield "the document that was asked for is not found"
    if took_s > GENEROUS_S:
        yield f"it took {took_s:.1f} s"


def _of_receipt(reply: Any, expected: Expected, took_s: float) -> Iterator[str]:
    if took_s > PROMPT_S:
        yield f"it took {took_s:.1f} s"
    if expected.index == "503":
        if reply.status_code != 503 or reply.json().get("code") != "SERVICE_UNAVAILABLE":
            yield f"not refused as it should be: {reply.status_code} {reply.text}"
        elif not reply.headers.get("Retry-After"):
            yield "no word on when to try again"
        return
    if reply.status_code != 200:
        yield f"status {reply.status_code}: {reply.text}"
    elif reply.json()["status"] != expected.index:
        yield f"{reply.json()['status']}, not {expected.index}: {reply.text}"
    elif (reply.json()["vectorIds"] == []) != (expected.index == "pending"):
        yield "the receipt's vectors do not fit its status"


def _of_report(report: dict[str, Any], case: Case) -> Iterator[str]:
    for each in report["components"]:
        if each["status"] != case.statuses.get(each["name"], "healthy"):
            yield f"health calls the {each['name']} {each['status']}: {each['detail']}"
        if each["name"] in case.statuses and case.says not in each["detail"]:
            yield f"health does not say {case.says!r}: {each['detail']}"
    if report["healthy"] != case.expected.healthy:
        yield f"healthy is {report['healthy']}"
