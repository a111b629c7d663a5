"""Texts that try to make the model that reads them do something; always the same ones."""

import tomllib
from pathlib import Path
from random import Random

DATA = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
EACH = 10


def attacks(part: str) -> list[str]:
    """`EACH` texts for each sentence of a part (`first` or `second`)."""
    rng = Random(f"attacks {part}")
    made: list[str] = []
    for sentence in DATA[part]:
        for number in range(EACH):
            words = {name: rng.choice(DATA[f"{name}s"]) for name in ("place", "model", "secret", "command")}
            made.append(DATA["around"][number % len(DATA["around"])].format(attack=sentence.format(**words)))
    return made
