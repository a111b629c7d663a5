"""The sample corpus fits its questions; `make demo` sends them to a real server."""

import json
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
QUESTIONS = json.loads((EXAMPLES / "questions.json").read_text(encoding="utf-8"))


def test_every_question_has_a_file_that_answers_it() -> None:
    assert len(QUESTIONS) == 5
    assert len({question["kind"] for question in QUESTIONS}) == 5
    for question in QUESTIONS:
        assert (EXAMPLES / "corpus" / question["source"]).is_file(), question["source"]


def test_one_question_is_an_exact_error_code_of_its_file() -> None:
    (code,) = (question for question in QUESTIONS if question["kind"] == "an error code")

    assert code["question"] in (EXAMPLES / "corpus" / code["source"]).read_text(encoding="utf-8")
