"""What is searched for at a prompt or an action."""

import pytest

from rag_context.agents.prompts import command_words, file_pattern, mentions, sought_by


@pytest.mark.parametrize(
    "pasted",
    [
        "```python\nimport ledger\n```",
        "    ledger = open_ledger()",
        "> the ledger said so",
        "<rag-context>\nThe ledger holds cents.\n</rag-context>",
        "ledger.close();",
    ],
)
def test_what_is_pasted_is_not_searched_for(pasted: str) -> None:
    sought = sought_by(f"Where do invoices come from?\n\n{pasted}\n\nI forgot.")
    assert "ledger" not in sought.text.lower()
    assert sought.terms == {"invoic", "come", "forgot"}


def test_of_a_long_prompt_the_beginning_and_the_end_are_searched_for() -> None:
    sought = sought_by(f"Invoices first. {'Other words here. ' * 200} Refunds last.")
    assert sought.text.startswith("Invoices first.") and sought.text.endswith("Refunds last.")
    assert len(sought.text) <= 1_000


@pytest.mark.parametrize(
    "text", ["fix the failing test in src/billing/charge.py", "run the tests", "yes, do both", "go on"]
)
def test_everyday_words_and_files_name_no_topic(text: str) -> None:
    assert sought_by(text).terms == frozenset()


def test_identifiers_are_names() -> None:
    sought = sought_by("Rename plan_group and formatPrice(), and `serve` too")
    assert sought.names == {"plan_group", "formatprice", "serve"}
    assert sought.is_chore


@pytest.mark.parametrize(
    ("path", "text", "is_mentioned"),
    [
        ("/home/u/p/src/billing/ledger.py", "This is about ledger.py.", True),
        ("src/billing/ledger.py", "Done, src/billing/ledger.py does so now.", True),
        ("src/billing/ledger.py", "See test_ledger.py.", False),
        ("src/billing/ledger.py", "See ledger.pyi.", False),
        ("src/cart/index.ts", "We changed index.ts.", False),
        ("src/cart/index.ts", "We changed src/cart/index.ts.", True),
        (r"C:\p\src\a_file.cs", "It is in a_file.cs", True),
    ],
)
def test_a_file_is_known_by_its_name(path: str, text: str, is_mentioned: bool) -> None:
    assert (file_pattern(path).search(text) is not None) == is_mentioned


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("cd web && npm run build 2>&1 | tail -5", ("npm", "run", "build")),
        ("FOO=1 sudo docker compose up -d postgres", ("docker", "compose", "up", "postgres")),
        ("dbt run --full-refresh", ("dbt", "run", "--full-refresh")),
        ("scripts/flash.sh", ("scripts/flash.sh",)),
        ("make", ()),
        ("", ()),
        ("echo 'unclosed", ("echo", "'unclosed")),
    ],
)
def test_a_command_is_its_first_words(command: str, words: tuple[str, ...]) -> None:
    assert command_words(command) == words


def test_a_text_speaks_of_a_command_only_with_all_its_words() -> None:
    said = "docker compose up -d postgres exits at once"
    assert mentions(said, ("docker", "compose", "up", "postgres"))
    assert not mentions(said, ("docker", "compose", "up", "redis"))
