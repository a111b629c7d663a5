"""What pyproject.toml allows: bounded where a library is used below its public interface, and what is pinned fits."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = [Requirement(each) for extra in PROJECT["optional-dependencies"].values() for each in extra]
DIRECT = [*(Requirement(each) for each in PROJECT["dependencies"]), *EXTRAS]
OURS = [each for each in DIRECT if each.name != PROJECT["name"]]
PAGE = (ROOT / "docs" / "design" / "dependencies.md").read_text(encoding="utf-8")
BOUNDED = dict(re.findall(r"^\| ([\w-]+) \| `([^`]*<[^`]*)` \|", PAGE, re.MULTILINE))
PINNED = re.compile(r"^([\w.-]+)==([^ ;\\]+)", re.MULTILINE)


def is_bounded_above(requirement: Requirement) -> bool:
    return any(each.operator in {"<", "<=", "==", "~="} for each in requirement.specifier)


def test_the_page_names_every_upper_bound_with_its_reason() -> None:
    named = {name: SpecifierSet(bounds) for name, bounds in BOUNDED.items()}
    assert named == {each.name: each.specifier for each in OURS if is_bounded_above(each)}


def test_a_library_whose_inner_modules_are_imported_has_an_upper_bound() -> None:
    inner = re.compile(r"^\s*(?:from|import) (\w+).*(?:_impl\b|\._[a-z]|_pybind)", re.MULTILINE)
    sources = (ROOT / "src").rglob("*.py")
    used = {found for path in sources for found in inner.findall(path.read_text(encoding="utf-8"))}
    assert {"uvicorn", "onnxruntime"} <= used
    assert used - {"rag_context"} <= {name.replace("-", "_") for name in BOUNDED}


@pytest.mark.parametrize("requirement", OURS, ids=lambda each: each.name)
def test_a_dependency_says_the_lowest_version_that_was_run(requirement: Requirement) -> None:
    assert any(each.operator == ">=" for each in requirement.specifier)


@pytest.mark.parametrize("lock", ["requirements-dev.lock", "requirements.lock"])
def test_what_is_pinned_is_allowed(lock: str) -> None:
    pinned = PINNED.findall((ROOT / lock).read_text(encoding="utf-8"))
    allowed = {each.name.lower(): each.specifier for each in OURS}
    assert [
        (name, version)
        for name, version in pinned
        if version not in allowed.get(name.lower(), Requirement(name).specifier)
    ] == []


def test_development_allows_the_same_versions_as_the_extras() -> None:
    group = [each for each in PYPROJECT["dependency-groups"]["dev"] if isinstance(each, str)]  # not the included groups
    development = {each.name: each.specifier for each in map(Requirement, group)}
    assert {each.name: each.specifier for each in EXTRAS if each.name in development} == {
        each.name: development[each.name] for each in EXTRAS if each.name in development
    }


def test_the_classifiers_claim_the_pythons_that_the_page_says_were_run() -> None:
    claimed = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)}
    assert claimed == {each.rpartition(".")[0] for each in re.findall(r"^\| (3\.\d+\.\d+) \|", PAGE, re.MULTILINE)}


def test_continuous_integration_runs_what_the_page_and_the_classifiers_say() -> None:
    (rows,) = re.findall(r"^VERSIONS := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    run = {tuple(row.split(":")) for row in rows.split()}
    assert run == set(re.findall(r"^\| (3\.\d+)\.\d+ \| (lowest|newest) \|", PAGE, re.MULTILINE))
    assert ("3.11", "lowest") in run
    assert "make versions" in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
