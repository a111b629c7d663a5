"""What is said unasked, and what is withheld, over a service with a fake model."""

import dataclasses

import pytest

from rag_context.agents.gate import Gate, Moment, Verdict
from rag_context.errors import BackendUnavailableError
from rag_context.testing import Fault
from tests.memory.harness import ServiceHarness

DECISION = "We decided to keep invoices in PostgreSQL instead of MongoDB, because auditors need transactions."
PROMPT = "Why do we keep invoices in PostgreSQL instead of MongoDB?"
BILLING = "project:billing-0a1b2c3d"
OTHER = "project:shop-99aa88bb"


@pytest.fixture
async def harness() -> ServiceHarness:
    made = ServiceHarness()
    await made.bound.bind()
    return made


async def decided(harness: ServiceHarness, moment: Moment) -> Verdict:
    return await Gate(harness.service.rank, harness.service.tokenizer).decide(moment)


def prompt(text: str = PROMPT, tag: str | None = BILLING, **fields: object) -> Moment:
    moment = Moment("prompt", text, tag, session_id="now", agent="claude")
    return dataclasses.replace(moment, **fields)  # type: ignore[arg-type]


async def index(harness: ServiceHarness, content: str = DECISION, *tags: str, **fields: object) -> str:
    stored = await harness.index(
        content, **{"contentType": "decision", "sessionId": "past", "metadata": {"tags": list(tags)}, **fields}
    )
    return stored.document_id


async def test_a_decision_of_the_project_is_said(harness: ServiceHarness) -> None:
    document = await index(harness, DECISION, BILLING)
    verdict = await decided(harness, prompt())
    assert [(each.document_id, each.text, each.kind) for each in verdict.passages] == [(document, DECISION, "decision")]
    assert verdict.reason == ""


@pytest.mark.parametrize("text", ["yes", "continue", "ok, go on please", "thanks!", "```python\nimport invoices\n```"])
async def test_a_prompt_that_says_nothing_gets_nothing(harness: ServiceHarness, text: str) -> None:
    await index(harness, DECISION, BILLING)
    assert await decided(harness, prompt(text)) == Verdict(reason="the prompt says too little")


async def test_nothing_is_said_outside_of_a_project(harness: ServiceHarness) -> None:
    await index(harness)
    assert await decided(harness, prompt(tag=None)) == Verdict(reason="no project")


async def test_another_projects_decision_is_not_even_a_candidate(harness: ServiceHarness) -> None:
    await index(harness, DECISION, OTHER)
    assert await decided(harness, prompt()) == Verdict(reason="nothing found")


async def test_what_belongs_to_no_project_is_found_behind_many_of_another(harness: ServiceHarness) -> None:
    for number in range(50):
        await index(harness, f"{DECISION} Note {number}.", OTHER, source=f"notes/{number}")
    general = await index(harness, DECISION)
    verdict = await decided(harness, prompt())
    assert [each.document_id for each in verdict.passages] == [general]


async def test_nothing_is_said_twice_in_a_session(harness: ServiceHarness) -> None:
    await index(harness, DECISION, BILLING)
    (said,) = (await decided(harness, prompt())).passages
    again = await decided(harness, prompt(shown=frozenset(said.chunk_ids)))
    assert [each.reason for each in again.withheld] == ["already said"]
    assert again.passages == ()


async def test_what_the_session_itself_said_is_withheld(harness: ServiceHarness) -> None:
    await index(harness, DECISION, BILLING, sessionId="now")
    verdict = await decided(harness, prompt())
    assert [each.reason for each in verdict.withheld] == ["of this session"]


async def test_a_long_passage_ends_with_a_sentence(harness: ServiceHarness) -> None:
    await index(harness, f"{DECISION} {DECISION} {DECISION}", BILLING)
    (said,) = (await decided(harness, prompt(tokens_left=30))).passages
    assert said.text == f"{DECISION} {DECISION}"
    assert said.tokens <= 30


async def test_without_tokens_nothing_is_said(harness: ServiceHarness) -> None:
    await index(harness, DECISION, BILLING)
    verdict = await decided(harness, prompt(tokens_left=0))
    assert [each.reason for each in verdict.withheld] == ["no tokens left"]


async def test_a_question_comes_with_its_answer(harness: ServiceHarness) -> None:
    talk = (
        "User: Why do we keep invoices in PostgreSQL instead of MongoDB?\n\n"
        "Assistant: Because auditors need transactions over several invoices, and MongoDB had lost one."
    )
    await index(harness, talk, BILLING, contentType="chat", source="talk")
    (said,) = (await decided(harness, prompt())).passages
    assert said.text == (
        "Why do we keep invoices in PostgreSQL instead of MongoDB?\n"
        "Because auditors need transactions over several invoices, and MongoDB had lost one."
    )


async def test_an_incomplete_search_says_nothing(harness: ServiceHarness) -> None:
    await index(harness, DECISION, BILLING)
    harness.embedder.fault = Fault(BackendUnavailableError("embedder", "down"))
    assert (await decided(harness, prompt())).reason == "the search was not complete"


async def test_what_stands_out_among_no_others_is_withheld(harness: ServiceHarness) -> None:
    things = ("orders", "parcels", "users", "prices", "photos", "letters", "shelves", "routes", "visits", "meters")
    for thing in things:
        text = f"We decided to keep {thing} in PostgreSQL instead of MongoDB, because auditors need transactions."
        await index(harness, text, BILLING, source=thing)
    verdict = await decided(harness, prompt("Draw a picture of the auditors, please"))
    assert verdict.passages == ()
    assert {each.reason for each in verdict.withheld} == {"not strong enough"}
