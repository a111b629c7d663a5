"""One round: start, compare with what was promised, load, kill, examine what is left on the disk."""

import json
import random
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.end_to_end.process import Served, command, served, wait_until
from tests.torture.acknowledged import ExpectedSource
from tests.torture.load import Client, Counts
from tests.torture.verify import find_losses

CLIENTS = 4
LONGEST_S = 1.5
SAMPLE = 25
"""Promises of earlier rounds that each round looks at; the end looks at all."""


@dataclass
class Torture:
    """A data directory, and everything that was promised of it."""

    data_dir: Path
    rng: random.Random
    expected_sources: dict[str, ExpectedSource] = field(default_factory=dict)
    unsettled: dict[str, ExpectedSource] = field(default_factory=dict)
    losses: list[str] = field(default_factory=list)
    acknowledged: int = 0
    kills: int = 0

    def round(self, number: int) -> str:
        """Returns a line about it."""
        with ExitStack() as stack:
            servers = [stack.enter_context(served(self.data_dir)) for _ in range(2 if self.rng.random() < 0.25 else 1)]
            if self.rng.random() < 0.5:
                self._compare(servers[-1], self._sample())
            counts, moment_s = self._load(number, servers)
        self.expected_sources.update(counts.touched)
        self.unsettled.update(counts.touched)
        self.losses += counts.losses
        self.acknowledged += counts.acknowledged
        self.kills += len(servers)
        self._examine()
        return (
            f"{len(servers)} killed after {moment_s:.2f} s: {counts.acknowledged} acknowledged"
            f" ({counts.replaced} replaced, {counts.unchanged} unchanged), {counts.rejected} refused,"
            f" {counts.searches} searches; {len(self.expected_sources)} documents, {len(self.losses)} losses"
        )

    def finish(self) -> None:
        """Compare everything, and examine the index closely."""
        with served(self.data_dir) as server:
            self._compare(server, list(self.expected_sources.values()))
            server.stop()
        self._examine("--full")

    def _sample(self) -> list[ExpectedSource]:
        known = list(self.expected_sources.values())
        return [*self.unsettled.values(), *self.rng.sample(known, min(SAMPLE, len(known)))]

    def _compare(self, server: Served, expected_sources: list[ExpectedSource]) -> None:
        server.wait_ready()
        wait_until(lambda: server.health()["pendingDocuments"] == 0)
        self.losses += find_losses(server, expected_sources)
        self.unsettled.clear()
        there = sum(expected_source.stored is not None for expected_source in self.expected_sources.values())
        if (counted := server.health()["indexedDocuments"]) != there:
            self.losses.append(f"{counted} documents are there, and {there} were promised")

    def _load(self, number: int, servers: list[Served]) -> tuple[Counts, float]:
        counts = Counts()
        clients = []
        for lane in range(CLIENTS):
            name = f"c{lane}r{number}"
            rng = random.Random(f"{self.rng.random()} {name}")
            mine = [p for p in self.expected_sources.values() if p.source.startswith(f"c{lane}r") and not p.sent]
            clients.append(Client(name, servers[lane % len(servers)].url, mine, rng, counts))
        moment_s = self.rng.uniform(0.02, LONGEST_S)
        time.sleep(moment_s)
        for server in servers:
            server.kill()
        for client in clients:
            client.stop()
        return counts, moment_s

    def _examine(self, *how: str) -> None:
        ended = command("check", "--json", *how, data_dir=self.data_dir)
        if ended.returncode != 0:
            flaws = json.loads(ended.stdout)["flaws"] if ended.stdout else ended.stderr
            self.losses.append(f"the index is not sound: {flaws}")
