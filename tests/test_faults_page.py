"""The fault table is true: every row names tests, and those tests exist; every kind of issue is explained."""

import re
from pathlib import Path

import pytest

from rag_context.domain.reports import IssueKind
from tests.faults.fault_cases import FAULT_CASES
from tests.faults.page import POSTGRES, SERVERS, described, described_postgres, written_rows
from tests.faults.postgres import POSTGRES_CASES
from tests.test_requirements import TESTS, defined

PAGE = (TESTS.parent / "docs" / "design" / "faults.md").read_text(encoding="utf-8")
PROOF = re.compile(r"`((?:\w+/)+test_\w+\.py)(?:::(\w+))?`")
TABLE = PAGE.partition("## Check and repair")[0]
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ") and "what fails" not in line]


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip() for row in ROWS])
def test_a_fault_is_proved_by_tests_that_exist(row: str) -> None:
    proofs = PROOF.findall(row)
    assert proofs
    for file, test in proofs:
        path: Path = TESTS / file
        assert path.is_file(), f"{file} does not exist"
        assert not test or test in defined(path), f"{file} has no {test}"


def test_every_kind_of_issue_is_explained() -> None:
    assert set(re.findall(r"^\| `([a-z-]+)` \|", PAGE, re.MULTILINE)) == {kind.value for kind in IssueKind}


def test_the_tables_of_servers_have_exactly_the_faults_that_are_tested() -> None:
    assert written_rows(PAGE, SERVERS) == [described(case) for case in FAULT_CASES]
    assert written_rows(PAGE, POSTGRES) == [described_postgres(case) for case in POSTGRES_CASES]
