"""The gate on a part of its labelled set: what it says, and where it is silent, with room for another machine."""

import asyncio
from dataclasses import astuple

import pytest
from benchmarks.gate import Outcome, measure
from benchmarks.gate_prompts import PARTS, gate_set

from rag_context.agents.gate import BAR

EVERY = 5


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Every fifth prompt and action of the part for reporting."""
    return asyncio.run(measure("reporting", tmp_path_factory.mktemp("gate") / "data", every=EVERY, bars=(BAR,)))


def test_the_labelled_set_is_the_same_on_every_run_and_its_parts_share_no_prompt() -> None:
    choosing, reporting, former, hold_out = (gate_set(part) for part in PARTS)
    assert choosing == gate_set("choosing")
    general = {prompt.text for prompt in choosing.prompts} & {prompt.text for prompt in reporting.prompts}
    assert all(prompt.label != "unrelated" for prompt in choosing.prompts if prompt.text in general)
    assert len(choosing.prompts) + len(reporting.prompts) >= 400
    others = {prompt.text for prompt in (*choosing.prompts, *reporting.prompts, *former.prompts)}
    assert not others & {prompt.text for prompt in hold_out.prompts}


def test_the_gate_says_what_is_needed_and_little_else(outcome: Outcome) -> None:
    (point,) = outcome.curve
    assert point.right >= 0.5
    assert point.silent_unrelated >= 0.85
    assert point.foreign == 0
    needing = sum(prompt.label == "needs" for prompt in gate_set("reporting").prompts[::EVERY])
    assert sum(sum(astuple(each)[1:]) for each in outcome.fates) == needing
    assert sum(each.told for each in outcome.fates) == round(point.right * needing)
    assert outcome.rows[0].tokens is not None and outcome.rows[0].tokens <= 300


def test_the_gate_speaks_of_a_file_or_a_command_before_it_is_touched(outcome: Outcome) -> None:
    edits, other_edits, commands, other_commands = outcome.actions
    assert edits.right >= 0.6 and commands.right >= 0.4
    assert other_edits.silent >= 0.9 and other_commands.silent >= 0.9
