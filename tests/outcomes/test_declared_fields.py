"""A field that is declared once, with a migration, works at every interface and in every store."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from mcp import Client
from rag_context.client.parameters import FilterOptions
from rag_context.domain.documents import FilterFields
from tests.end_to_end.process import Served, command, environment, served
from tests.servers import qdrant
from tests.servers.chroma import chroma_server
from tests.servers.mongodb import mongodb_database, mongodb_process, uri_of
from tests.servers.postgres import postgres_database
from tests.servers.postgres_fixtures import server

__all__ = ["server"]

REPOSITORY = Path(__file__).resolve().parents[2]

DECLARATION = """
    machine_part: Annotated[
        str | None,
        TextField(
            stated="Part of the machine that the content is about",
            searched="Filter by the part of the machine",
            listed="Only documents about this part of the machine",
            option="Part of the machine that the documents are about.",
            for_models=True,
            since="machine_parts",
        ),
    ] = None
"""

COLUMNS = {
    "sqlite": """
        ALTER TABLE documents ADD COLUMN machine_part TEXT;
        ALTER TABLE searches ADD COLUMN machine_part TEXT;
    """,
    "postgres": """
        ALTER TABLE rag_context.documents ADD COLUMN machine_part text COLLATE "C";
        ALTER TABLE rag_context.chunks ADD COLUMN machine_part text COLLATE "C";
        ALTER TABLE rag_context.searches ADD COLUMN machine_part text COLLATE "C";
    """,
}

CLIENT = """
import sys
from rag_context.client import Client
from rag_context.domain.documents import Metadata

with Client(sys.argv[1]) as client:
    metadata = Metadata(machine_part="rotor blade")
    client.index("The blade rattles.", content_type="chat", session_id="c", source="client", metadata=metadata)
    found = client.search("What rattles?", machine_part="rotor blade")
    listed = client.list(machine_part="rotor blade")
    print([result.source for result in found.results], [document.source for document in listed.documents])
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, of what writes its pages, and of these, with one more field."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("src/rag_context", "scripts", "docs", "deploy/prometheus"):
        shutil.copytree(REPOSITORY / name, copy / name)
    table = copy / "src/rag_context/domain/documents.py"
    before, marker, after = table.read_text().partition("\n\n\n@dataclass(frozen=True, slots=True)\nclass Metadata(")
    assert marker
    table.write_text(f"{before}{DECLARATION.rstrip()}{marker}{after}")
    for store, script in COLUMNS.items():
        folder = copy / "src/rag_context/stores" / store / "migrations"
        number = len([*folder.glob("*.sql")]) + 1
        (folder / f"{number:04}_machine_parts.sql").write_text(script)
    program = [sys.executable, "scripts/generate_docs.py"]
    subprocess.run(program, cwd=copy, env=environment(**from_copy(copy)), check=True, timeout=120)
    return copy


def from_copy(checkout: Path) -> dict[str, str]:
    return {"PYTHONPATH": str(checkout / "src"), "PYTHONDONTWRITEBYTECODE": ""}


@dataclass(frozen=True)
class Memory:
    """A server of the copy, and what runs commands of the copy beside it."""

    server: Served
    data: Path
    environment: dict[str, str]

    def run(self, *arguments: str) -> list[dict[str, Any]]:
        return printed(self.data, self.environment, *arguments)


def printed(data: Path, extra: dict[str, str], *arguments: str) -> list[dict[str, Any]]:
    """The lines of JSON that a command prints."""
    run = command(*arguments, "--json", data_dir=data, **extra)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.fixture(scope="module", params=["embedded", "postgres", "mongodb and qdrant", "embedded and chroma"])
def memory(
    request: pytest.FixtureRequest, checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Memory]:
    """On each store, over an index that the package as it is made."""
    stores: dict[str, str] = {}
    data = tmp_path_factory.mktemp("memory") / "data"
    with ExitStack() as stack:
        match request.param:
            case "postgres":
                stores["DATABASE_URL"] = stack.enter_context(postgres_database(request.getfixturevalue("server")))
            case "mongodb and qdrant":
                vectors = stack.enter_context(qdrant.running())
                documents = stack.enter_context(mongodb_process(data.parent / "mongodb"))
                stores["MONGODB_URI"] = stack.enter_context(mongodb_database(uri_of(documents.port)))
                stores |= {"QDRANT_URL": vectors.url, "RAG_CONTEXT_STORES__QDRANT_API_KEY": "unused"}
                stores |= {"RAG_CONTEXT_STORES__DOCUMENTS": "mongodb", "RAG_CONTEXT_STORES__VECTORS": "qdrant"}
            case "embedded and chroma":
                chroma = stack.enter_context(chroma_server())
                stores["CHROMA_URL"] = f"http://127.0.0.1:{chroma.port}"
                stores["RAG_CONTEXT_STORES__VECTORS"] = "chroma"
        note = data.parent / "older.md"
        note.write_text("The stator hums at night.\n")
        if request.param in ("embedded", "postgres"):  # those that migrate
            (older,) = printed(data, stores, "index", str(note))
            assert older["status"] == "indexed"
        with_copy = {**stores, **from_copy(checkout)}
        server = stack.enter_context(served(data, **with_copy))
        server.wait_ready()
        memory = Memory(server, data, with_copy)
        if request.param == "embedded":  # what was stored before the field came has the same hash with it
            (again,) = memory.run("index", str(note))
            assert again["status"] == "unchanged"
        server.index("The rotor squeaks when it starts.", source="rotor", metadata={"machinePart": "rotor"})
        server.index("The stator squeaks when it stops.", source="stator", metadata={"machinePart": "stator"})
        yield memory


def sources(answer: dict[str, Any]) -> set[str]:
    return {each["source"] for each in answer["documents" if "documents" in answer else "results"]}


def test_it_filters_in_every_store(memory: Memory) -> None:
    server = memory.server
    for mode in ("hybrid", "vector", "text"):
        found = server.search("What squeaks?", machinePart="rotor", mode=mode, minScore=0)
        assert sources(found) == {"rotor"}
        assert found["results"][0]["metadata"] == {"machinePart": "rotor"}
        assert found["fallback"] is False
    assert {"rotor", "stator"} <= sources(server.search("What squeaks?", minScore=0))
    assert sources(server.tool("list", {"machinePart": "stator"}).json()) == {"stator"}
    unknown = server.search("What squeaks?", machinePart="rotors")
    assert unknown["results"] == []
    assert unknown["warning"] == 'No document has the machine part "rotors"; near: "rotor".'


@pytest.mark.parametrize("memory", ["embedded"], indirect=True)
async def test_agents_filter_by_it(memory: Memory) -> None:
    async with Client(f"{memory.server.url}/mcp?structured=true") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        found = await client.call_tool("rag_context_search", {"query": "What squeaks?", "machinePart": "rotor"})
    assert "machinePart" in tools["rag_context_search"].input_schema["properties"]
    assert "machinePart" in tools["rag_context_index"].input_schema["properties"]["metadata"]["properties"]
    assert found.structured_content is not None
    assert sources(found.structured_content) == {"rotor"}


@pytest.mark.parametrize("memory", ["embedded"], indirect=True)
def test_commands_and_clients_filter_by_it(memory: Memory, tmp_path: Path) -> None:
    note = tmp_path / "gear.md"
    note.write_text("The gear grinds.\n")
    (receipt,) = memory.run("index", str(note), "--machine-part", "gear")
    assert receipt["status"] == "indexed"
    (searched,) = memory.run("search", "What grinds?", "--machine-part", "gear")
    assert sources(searched) == {str(note)}

    program = [sys.executable, "-c", CLIENT, memory.server.url]
    run = subprocess.run(
        program, env=environment(**memory.environment), capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.strip() == "['client'] ['client']"


@pytest.mark.parametrize("memory", ["embedded"], indirect=True)
def test_it_is_exported_and_imported(memory: Memory, tmp_path: Path) -> None:
    exported = tmp_path / "export.jsonl"
    memory.run("export", str(exported))
    lines = [json.loads(line) for line in exported.read_text().splitlines()[1:-1]]
    documents = [line for line in lines if "changes" not in line]
    assert {line["source"]: line["metadata"]["machinePart"] for line in documents}["rotor"] == "rotor"
    elsewhere = tmp_path / "elsewhere"
    printed(elsewhere, memory.environment, "import", str(exported))
    (listed,) = printed(elsewhere, memory.environment, "list", "--machine-part", "rotor")
    assert sources(listed) == {"rotor"}


def test_pages_and_lists_describe_it(checkout: Path) -> None:
    assert (
        "| `machinePart` | string, 1 to 256 characters | Filter by the part of the machine |"
        in (checkout / "docs/tools.md").read_text()
    )
    assert (
        "- `--machine-part NAME`: Part of the machine that the documents are about."
        in (checkout / "docs/cli.md").read_text()
    )


def test_callers_may_pass_what_filters_compare() -> None:
    assert get_type_hints(FilterOptions) == get_type_hints(FilterFields)
