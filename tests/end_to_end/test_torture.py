"""Three rounds of what `make torture` does a hundred times, and a few words of `tests.torture.canaries`."""

import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.end_to_end.process import Served
from tests.outcomes.changes import QUESTIONS, state
from tests.torture.acknowledged import ExpectedSource, Version
from tests.torture.canaries import purged
from tests.torture.rounds import Torture


def test_nothing_acknowledged_is_lost_however_often_the_server_is_killed(tmp_path: Path) -> None:
    torture = Torture(tmp_path / "data", random.Random(7))
    for number in range(3):
        torture.round(number)
    torture.finish()
    assert torture.losses == []
    assert torture.acknowledged > 0
    assert torture.kills >= 3


def test_a_loss_would_be_noticed(tmp_path: Path) -> None:
    torture = Torture(tmp_path / "data", random.Random(7))
    torture.expected_sources["ghost"] = ExpectedSource("ghost", Version("ghostv0", "The entry ghostv0 is about this."))
    torture.finish()
    assert len(torture.losses) == 2
    assert torture.losses[0] == "ghostv0: acknowledged, and not there after the kill"


@pytest.mark.parametrize("backend", ["embedded", "postgres"])
def test_no_byte_is_left_of_what_was_purged_over_any_interface(backend: str) -> None:
    with tempfile.TemporaryDirectory() as place:  # which the user of PostgreSQL can reach
        assert purged(Path(place), 20, backend) == (0, 20)


class Busy(Served):
    """A server that is late with its first answers: one of keywords alone, and one without some scores."""

    asked = 0

    def search(self, query: str, **fields: Any) -> dict[str, Any]:
        self.asked += 1
        answer: dict[str, Any] = {"fallbackLevel": 1, "results": [query]}
        if self.asked == 1:
            return {**answer, "fallbackLevel": 2}
        return {**answer, "warning": "without some scores"} if self.asked == 2 else answer

    def tool(self, name: str, body: object) -> httpx2.Response:
        return httpx2.Response(200, json={name: body})


def test_answers_of_a_busy_server_are_no_state_of_what_it_has() -> None:
    process = subprocess.Popen[bytes]("true")
    process.wait()
    busy = Busy(process, "")
    early = state(busy)
    assert state(busy) == early
    assert busy.asked == 2 * len(QUESTIONS) + 2
