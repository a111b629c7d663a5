"""Fifty short documents and a question to each: what a server is validated with, and an unmeasured model calibrated.

Other texts would give other calibrations: `SAMPLE_MEAN` and `SAMPLE_SPREAD` in `domain.vectors` are of these.
"""

import json
from pathlib import Path
from typing import Any


def documents() -> list[dict[str, Any]]:
    """The documents: 20 chats, 15 decisions, 10 pieces of code, 5 edge cases; bodies of an index call, with an `id`."""
    return _rows("documents.jsonl")


def questions() -> list[dict[str, str]]:
    """The questions, each with the id of the document that answers it."""
    return _rows("questions.jsonl")


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()]
