"""H-2, H-3, H-5: after a hundred days of changes the right version stands first, now and as of each earlier time."""

from pathlib import Path

from rag_context.in_process import open_context
from rag_context.settings import Settings
from tests.outcomes.hundred_days import CHANGES_A_DAY, DAYS, Story


async def test_a_hundred_days_of_changes_leave_the_right_answers(tmp_path: Path) -> None:
    async with open_context(Settings(data_dir=tmp_path / "data")) as context:
        story = Story(context, seed=1)
        await story.run()
    assert sum(story.done.values()) == DAYS * CHANGES_A_DAY
    assert sum(story.asked.values()) >= 390
    assert story.leaks == []
    for kind in ("now", "as of"):
        assert story.share_right(kind) >= 0.95, story.wrong
