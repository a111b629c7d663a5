"""What memories cite is checked against the repository: in answers over HTTP and stdio, and in what hooks show."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client

from mcp import Client
from tests.agents.test_workspace import git, repository
from tests.end_to_end.process import COMMAND, Served, environment, served, wait_until
from tests.outcomes.hooks import Agent, decide

DECISION = (
    "We decided that src/payments.py retries failed payments three times with exponential backoff, because the sandbox "
    "of the provider drops every tenth request. `src/legacy.py` does not retry."
)
QUESTION = "How often do we retry failed payments, and with what backoff?"
SENTENCES = ("`src/payments.py` is now `src/billing.py`", "`src/legacy.py` no longer exists")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in which a file was renamed and another deleted after the decision."""
    root = repository(tmp_path_factory.mktemp("repositories") / "shop", "https://git.example.org/team/shop.git")
    (root / "src").mkdir()
    for name in ("payments", "legacy"):
        (root / f"src/{name}.py").write_text("".join(f"{name}_{number} = {number}\n" for number in range(30)))
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Begin")
    git(root, "mv", "src/payments.py", "src/billing.py")
    git(root, "rm", "-q", "src/legacy.py")
    git(root, "commit", "-q", "-m", "Rename")
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("references") / "data"


@pytest.fixture(scope="module")
def server(data: Path, root: Path) -> Iterator[Served]:
    with served(data) as server:
        server.wait_ready()
        decide(server, root, DECISION, "notes/payments")
        yield server


def test_a_search_and_a_prompt_say_what_became_of_files(server: Served, data: Path, root: Path) -> None:
    before = server.search(QUESTION)
    assert "references" not in before["results"][0] and "references" not in before["legs"]
    Agent(data, root).hook("session-start", source="startup")  # the server learns where the project is
    found: dict[str, list[dict[str, str]]] = {}
    said: list[str] = []

    # A busy machine reads the repository late, and may have no time to check what one search returns.
    def is_checked() -> bool:
        answer = server.search(QUESTION)
        found.update(answer["results"][0])
        return bool(answer["legs"].get("references", {}).get("status") == "ok")

    def is_said() -> bool:
        said.append(Agent(data, root, session=f"s{len(said)}").prompt(QUESTION))
        return "is now" in said[-1]

    wait_until(is_checked)
    assert found["references"] == [
        {"text": "src/payments.py", "kind": "path", "status": "moved", "now": "src/billing.py"},
        {"text": "src/legacy.py", "kind": "path", "status": "stale"},
    ]
    wait_until(is_said)
    assert all(sentence in said[-1] for sentence in SENTENCES)


async def test_a_client_on_stdio_reads_it_in_words(server: Served, data: Path, root: Path) -> None:
    arguments = ["mcp", "--data-dir", str(data)]
    parameters = StdioServerParameters(command=COMMAND, args=arguments, cwd=root, env=environment())
    async with Client(stdio_client(parameters)) as client:
        async with asyncio.timeout(60):
            text = ""
            while "is now" not in text:  # the repository is being read
                await asyncio.sleep(0.1)
                result = await client.call_tool("rag_context_search", {"query": QUESTION})
                text = str(getattr(result.content[0], "text", ""))
        assert all(sentence in text for sentence in SENTENCES)
