"""Three rounds of what `make torture` does a hundred times, and a few words of `tests.torture.canaries`."""

import random
import tempfile
from pathlib import Path

import pytest

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
