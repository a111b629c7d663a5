"""C-7: the kind of a text follows from what it holds."""

from pathlib import Path

import pytest

from rag_context.files.generated import kind_of

EXAMPLES = Path(__file__).parents[2] / "examples" / "corpus"


@pytest.mark.parametrize(
    "text",
    [
        "Ana: Did you deploy it?\nBen: Yes, an hour ago.\n",
        "[Ana] Hi.\n[Ben] Hello, how is it going?\n",
        "User: hi\nAssistant: Hello!\n",
        "### User\nhi\n\n### Assistant\nhello\n",
        "03.02.2026, 10:11 - Ben: the pump is dead\n03.02.2026, 10:12 - Ana: I go.\n03.02.2026, 10:13 - Ben: Good!\n",
        "[10:01] Ana: The pump failed.\n[10:02] Ben: Which one?\n[10:03] Ana: The one at pontoon C.\n",
        "**Ana:** The pump failed.\n\n**Ben:** Which one?\n\n**Ana:** The one at pontoon C.\n",
        "Sam Lee: I looked at the log.\nSam Lee: The disk is full.\nKim Day: Then delete the old ones.\n",
        "---\ntitle: Talk\n---\n[Ana] We start now.\n[Ben] Good.\n[Ana] First point.\n",
        "2026-03-01 10:00 Ana: Shall we?\n2026-03-01 10:01 Ben: Yes, please.\n2026-03-01 10:02 Ana: Good.",
    ],
)
def test_turns_of_speakers_are_a_conversation(text: str) -> None:
    assert kind_of(text) == "chat"


@pytest.mark.parametrize(
    "text",
    [
        "# 1. Use X\n\n## Status\n\nAccepted\n\n## Context\n\nY.\n\n## Decision\n\nX.\n\n## Consequences\n\nZ.\n",
        "---\nstatus: accepted\ndeciders: Ana\n---\n# X\n\n## Context and Problem Statement\n\n## Decision Outcome\n",
        "# Use X\n\nStatus: Accepted\n\n## Decision\nX\n\n## Context\nY\n",
        "---\ntype: adr\n---\nWe use X.\n",
        "# T\n* Status: accepted\n\n## Decision Outcome\n\n## Pros and Cons of the Options\n",
        "# ADR 7\n\n## 1. Status\nProposed\n## 2. Context\nY\n## 3. Decision\nX\n",
    ],
)
def test_the_sections_of_a_decision_record_are_a_decision(text: str) -> None:
    assert kind_of(text) == "decision"


@pytest.mark.parametrize(
    "text",
    [
        "Q: What is it?\nA: A tool.\nQ: Is it free?\nA: Yes, it is.\n",
        "Question: What is it?\nAnswer: A tool.\nQuestion: Is it?\nAnswer: Yes.\n",
        "name: foo\nversion: 1\nauthor: Bob\n",
        "Name: Foo bar.\nVersion: one two.\nLicense: MIT.\n",
        "[server]\nport = 1\n[client]\nhost = x\n",
        "# Changelog\n\n## 1.0\n\nAdded: a new thing.\nFixed: a bug here.\nAdded: more.\n",
        "[Added] A new thing.\n[Fixed] A bug.\n[Added] Other things.\n",
        "HAMLET: To be, or not to be.\nOPHELIA: Good my lord.\nHAMLET: I humbly thank you.\n",
        "Act I\n\nRomeo: Is the day so young?\nBenvolio: But new struck nine.\nRomeo: Ay me.\n",
        "Pancakes\n\nServes: 4 people.\nPrep time: 10 minutes.\nIngredients: Flour, milk.\nMethod: Mix it all.\n",
        "[INFO] Server started.\n[WARN] Slow query.\n[INFO] Done.\n",
        "2026-03-01 10:00 INFO: started it.\n2026-03-01 10:01 ERROR: failed now.\n",
        "[foo]: http://a.example\n[bar]: http://b.example\n",
        "Summary: The pump failed.\nCause: The valve was stuck.\nFix: Replace it.\n",
        "# Setup\n\nNote: This is hard.\n\nTip: Do that.\n\nNote: And this.\n",
        "From: Bob\nTo: Ann\nSubject: Hi\n\nHello there.\n",
        "Berlin: The capital of Germany.\nParis: The capital of France.\n",
        "[Knuth] The Art of Programming.\n[Lamport] Time and clocks.\n[Codd] A model.\n[Gray] Transactions.\n",
        "# Decision\n\nWhich database is right for you?\n",
        "# Guide\n\n## Context\n\nThe editor has a context menu.\n\n## Status\n\nThe status line.\n",
    ],
)
def test_what_only_looks_like_it_is_documentation(text: str) -> None:
    assert kind_of(text) == "documentation"


def test_a_program_without_a_suffix_is_code() -> None:
    assert kind_of("#!/bin/sh\necho Ana: hello\n") == "code"


@pytest.mark.parametrize(("folder", "kind"), [("chats", "chat"), ("decisions", "decision"), ("docs", "documentation")])
def test_the_examples_have_the_kinds_of_their_folders(folder: str, kind: str) -> None:
    assert {kind_of(path.read_text()) for path in (EXAMPLES / folder).iterdir()} == {kind}


@pytest.mark.parametrize("part", ["Ana: a\n", "[Ana] a.\n", "# Decision\n", "status: ", "act ", "a. | ", "**Ana:** "])
def test_a_long_text_is_read_in_linear_time(part: str) -> None:
    """In quadratic time each of these takes minutes."""
    kind_of(part * (400_000 // len(part)))
