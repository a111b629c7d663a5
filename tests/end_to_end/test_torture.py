"""Three rounds of what `make torture` does a hundred times."""

import random
from pathlib import Path

from tests.torture.acknowledged import ExpectedSource, Version
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
