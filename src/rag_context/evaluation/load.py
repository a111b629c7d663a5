"""Load on a running server: more and more clients, how long their searches took, and how complete the answers were."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import httpx2

from rag_context.api.operations import memory
from rag_context.evaluation.measures import percentile
from rag_context.memory.telemetry import LOAD_AGENT

SAMPLES = ("mongodb retry logic", "jackpot threshold", "selenium automation", "architecture pattern")
"""Questions where there are neither documents nor questions of the caller."""

SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class LoadStage:
    clients: int
    seconds: float
    pause_s: float = 0.0
    """For how long the server's process is stopped meanwhile."""


@dataclass(frozen=True, slots=True)
class LoadLimits:
    p95_ms: float = 300.0
    p99_ms: float = 500.0
    failed: float = 0.05


@dataclass(slots=True)
class MeasuredLoad:
    stage: LoadStage
    took_ms: list[float] = field(default_factory=list)
    """Of every answer, in milliseconds as the client sees them."""
    levels: Counter[int] = field(default_factory=Counter)
    """Answers by fallback level."""
    complete: int = 0
    """Answers of level 1 without a warning."""
    rejected: int = 0
    """Requests that the server rejected because too many waited (503, `OVERLOADED`)."""
    failures: Counter[str] = field(default_factory=Counter)
    """Requests without an answer, by reason; rejected ones too."""

    @property
    def requests(self) -> int:
        return len(self.took_ms) + self.failures.total()

    @property
    def failed(self) -> float:
        return self.failures.total() / max(self.requests, 1)

    def latency_ms(self, share: float) -> float:
        """The latency that this share of the answers did not exceed; 0 without answers."""
        return percentile(self.took_ms, share)

    def misses(self, limits: LoadLimits) -> list[str]:
        """Which limits were not kept. A stage with a pause is measured, and has no limits of time."""
        if not self.requests:
            return ["the stage was too short for a request"]
        found = [f"no answer to {self.failed:.1%} of the requests"] if self.failed >= limits.failed else []
        if not self.stage.pause_s:
            for name, most_ms in (("p95", limits.p95_ms), ("p99", limits.p99_ms)):
                took_ms = self.latency_ms(SHARES[name])
                found += [f"{name} {took_ms:.0f} ms"] if took_ms >= most_ms else []
        return found

    def as_json(self, limits: LoadLimits) -> dict[str, Any]:
        return {
            "clients": self.stage.clients,
            "seconds": self.stage.seconds,
            "pauseS": self.stage.pause_s,
            "requests": self.requests,
            "answersPerSecond": len(self.took_ms) / self.stage.seconds,
            **{f"{name}Ms": self.latency_ms(share) for name, share in SHARES.items()},
            "levels": {str(level): self.levels[level] for level in sorted(self.levels)},
            "whole": self.complete,
            "rejected": self.rejected,
            "failures": dict(self.failures),
            "missed": self.misses(limits),
        }


@dataclass(frozen=True, slots=True)
class Load:
    """Clients that search a server, each on a connection of its own; `questions` are sent in turn.

    A client waits `think_s` seconds between an answer and its next question. Repeated questions are answered by the
    result cache; else each is numbered.
    """

    url: str
    headers: dict[str, str]
    questions: Sequence[str]
    limit: int = 5
    think_s: float = 1.0
    is_repeated: bool = False
    timeout_s: float = 30.0

    async def run(
        self, stage: LoadStage, pause: Callable[[float], Coroutine[Any, Any, None]] | None = None
    ) -> MeasuredLoad:
        """One stage; `pause` stops the server's process for so many seconds and lets it go on."""
        measured = MeasuredLoad(stage)
        each_its_own = httpx2.Limits(max_connections=stage.clients, max_keepalive_connections=stage.clients)
        async with (
            httpx2.AsyncClient(
                base_url=self.url, timeout=self.timeout_s, limits=each_its_own, trust_env=False
            ) as client,
            asyncio.TaskGroup() as group,
        ):
            end = time.monotonic() + stage.seconds
            for number in range(stage.clients):
                group.create_task(self._search_until(end, client, number, measured))
            if pause is not None and stage.pause_s:
                group.create_task(pause(stage.pause_s))
        return measured

    async def _search_until(self, end: float, client: httpx2.AsyncClient, number: int, measured: MeasuredLoad) -> None:
        # Clients that begin at the same time would search in step for the whole stage.
        await asyncio.sleep(self.think_s * number / measured.stage.clients)
        sent = 0
        while time.monotonic() < end:
            await self._search(client, self._question(number, sent), measured)
            sent += 1
            await asyncio.sleep(self.think_s)

    def _question(self, client: int, sent: int) -> str:
        question = self.questions[(61 * client + sent) % len(self.questions)]
        return question if self.is_repeated else f"{question} {client} {sent}"

    async def _search(self, client: httpx2.AsyncClient, question: str, measured: MeasuredLoad) -> None:
        body = {"query": question, "limit": self.limit, "agent": LOAD_AGENT}
        began = time.perf_counter()
        try:
            reply = await client.post(memory.SEARCH.path, json=body, headers=self.headers)
            answer = reply.json()
        except (httpx2.HTTPError, ValueError) as error:
            measured.failures[type(error).__name__] += 1
            return
        if not reply.is_success:
            code = str(answer.get("code", "")) if isinstance(answer, dict) else ""
            measured.rejected += code == "OVERLOADED"
            measured.failures[f"{reply.status_code} {code}".strip()] += 1
            return
        measured.took_ms.append((time.perf_counter() - began) * 1000.0)
        measured.levels[int(answer.get("fallbackLevel", 0))] += 1
        measured.complete += answer.get("fallbackLevel") == 1 and not answer.get("warning")


_WIDTH, _HEIGHT, _LEFT, _BASE, _TOP = 720, 320, 60, 270, 40
_FONT = 'font-family="system-ui, sans-serif" font-size="12"'
_COLOURS = {"p50": "#8a94a6", "p95": "#5b9bd5", "p99": "#1f5fa8"}


def picture(measured: Sequence[MeasuredLoad], limits: LoadLimits) -> str:
    """Bars of the latencies of each stage, and the limits, as SVG."""
    highest = max([limits.p99_ms, *(each.latency_ms(SHARES["p99"]) for each in measured)])
    scale = (_BASE - _TOP) / highest
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" {_FONT}>',
        "<title>Latency of a search by number of clients</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for index, (name, colour) in enumerate(_COLOURS.items()):
        x = _LEFT + 90 * index
        parts.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="22" fill="#333333">{name}, ms</text>')
    for name, most_ms in (("p95", limits.p95_ms), ("p99", limits.p99_ms)):
        y = _BASE - most_ms * scale
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - 20}" stroke="{_COLOURS[name]}" stroke-dasharray="4 4"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#333333">{most_ms:g}</text>'
        )
    width = (_WIDTH - _LEFT - 20) / max(len(measured), 1)
    for number, each in enumerate(measured):
        parts += _bars(each, _LEFT + number * width, width, scale)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bars(measured: MeasuredLoad, left: float, width: float, scale: float) -> list[str]:
    parts, bar = [], width / 4
    for index, (name, colour) in enumerate(_COLOURS.items()):
        took_ms = measured.latency_ms(SHARES[name])
        x, y = left + bar * (index + 0.5), _BASE - took_ms * scale
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar - 4:.1f}" height="{_BASE - y:.1f}" fill="{colour}"/>'
            f'<text x="{x:.1f}" y="{y - 4:.1f}" fill="#333333">{took_ms:.0f}</text>'
        )
    stage = measured.stage
    stopped = f", stopped for {stage.pause_s:g} s" if stage.pause_s else ""
    named = f"{stage.clients} client{'' if stage.clients == 1 else 's'}{stopped}"
    parts.append(f'<text x="{left + bar / 2:.1f}" y="{_BASE + 20}" fill="#111111">{escape(named)}</text>')
    return parts
