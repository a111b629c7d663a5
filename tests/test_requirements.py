"""The requirements file is true: every requirement that is met names tests, and those tests exist."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
IDS = (TESTS / "requirement_ids.txt").read_text(encoding="utf-8").split()
REQUIREMENTS = tomllib.loads((TESTS / "requirements.toml").read_text(encoding="utf-8"))
ID = re.compile(r"^[A-Z]-[0-9]+$")


def defined(path: Path) -> set[str]:
    """Names of the test functions of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("id_", REQUIREMENTS)
def test_a_requirement_is_proved_by_tests_that_exist(id_: str) -> None:
    entry = REQUIREMENTS[id_]
    assert ID.match(id_)
    assert entry["says"].strip()
    state = entry.get("state", "done")
    assert state in {"done", "part", "later"}
    assert bool(entry.get("tests")) == (state != "later"), "tests prove it, or it is for later"
    assert state != "part" or entry["missing"].strip()
    for named in entry.get("tests", ()):
        file, _, test = named.partition("::")
        path = TESTS / file
        assert path.is_file(), f"{id_}: {file} does not exist"
        assert not test or test in defined(path), f"{id_}: {file} has no {test}"


def test_the_file_has_every_requirement_of_the_specification_and_no_other() -> None:
    assert list(REQUIREMENTS) == IDS


def test_the_requirements_are_in_order() -> None:
    order = [(id_.split("-")[0], int(id_.split("-")[1])) for id_ in REQUIREMENTS]
    assert order == sorted(order)
