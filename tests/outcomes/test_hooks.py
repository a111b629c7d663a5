"""What agents are shown unasked: the real program of the hooks, and the real processes that answer it."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.process import Served, command, served, wait_until
from tests.outcomes.hooks import DECISION, PATIENT, QUESTION, Agent, context, decide

PAYLOADS = [json.loads(line) for line in Path(__file__).with_name("hook_payloads.jsonl").read_text().splitlines()]
"""Recorded from the real clients; FOLDER and PROMPT stand for what a test puts there."""

TEXT_AT = {"copilot": ("additionalContext",)}
"""Where a client expects the text, if not where most do."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hooks")


@pytest.fixture(scope="module")
def folder(place: Path) -> Path:
    (place / "proj").mkdir()
    return place / "proj"


@pytest.fixture(scope="module")
def server(place: Path, folder: Path) -> Iterator[Served]:
    with served(place / "data") as server:
        server.wait_ready()
        decide(server, folder)
        wait_until(lambda: any((place / "data" / "hooks").glob("*.digest.json")))
        yield server


@pytest.fixture
def agent(server: Served, place: Path, folder: Path, request: pytest.FixtureRequest) -> Agent:
    return Agent(place / "data", folder, session=request.node.name)


@pytest.mark.parametrize(
    "recorded", PAYLOADS, ids=lambda each: f"{each['client']} {each['payload'].get('hook_event_name', each['event'])}"
)
def test_every_recorded_event_is_answered_in_the_shape_of_its_client(agent: Agent, recorded: dict[str, object]) -> None:
    agent.client, event = str(recorded["client"]), str(recorded["event"])
    text = json.dumps(recorded["payload"]).replace("FOLDER", str(agent.folder)).replace("PROMPT", QUESTION)
    for name in ("session_id", "sessionId"):
        text = text.replace(f'"{name}": "', f'"{name}": "{event}-')
    printed = agent.raw(event, text.encode())
    if event not in ("session-start", "prompt"):
        assert printed == ""
        return
    answer = json.loads(printed)
    for name in TEXT_AT.get(agent.client, ("hookSpecificOutput", "additionalContext")):
        answer = answer[name]
    assert DECISION in answer


def test_a_prompt_is_answered_once_in_a_session_and_again_after_a_compaction(agent: Agent) -> None:
    said = agent.prompt()
    assert said.startswith("<rag-context>\n") and said.endswith("\n</rag-context>")
    assert DECISION in said and "docs/retries.md" in said and "not instructions" in said
    assert agent.prompt() == ""
    assert agent.prompt("So how many times are failed payments retried with the backoff?") == ""
    agent.hook("session-start", source="resume")
    assert agent.prompt() == ""
    agent.hook("session-start", source="compact")
    assert DECISION not in agent.prompt()  # the start has said it
    agent.hook("compact", trigger="auto")
    assert DECISION in agent.prompt()


def test_what_has_nothing_to_do_with_the_memory_is_answered_with_nothing(agent: Agent) -> None:
    for prompt in ("continue", "yes please", "Write a haiku about the first snow in the mountains."):
        assert agent.prompt(prompt) == ""


def test_nothing_is_said_in_another_project_in_a_sub_agent_or_outside_of_projects(
    agent: Agent, tmp_path: Path, place: Path
) -> None:
    assert agent.prompt(agent_id="a1") == ""
    assert agent.hook("session-start", source="startup", agent_id="a1") == ""
    for elsewhere in (tmp_path, Path("/"), Path.home()):
        stranger = Agent(place / "data", elsewhere, session=agent.session)
        assert stranger.prompt() == ""
        assert stranger.hook("session-start", source="startup") == ""


def test_a_session_starts_with_what_was_decided_and_does_not_repeat_it(agent: Agent) -> None:
    said = context(agent.hook("session-start", source="startup"))
    assert DECISION in said
    assert agent.prompt() == ""
    assert agent.hook("session-start", source="resume") == ""
    assert context(agent.hook("session-start", source="compact")) == said


def test_the_start_of_a_session_needs_no_server_and_is_remembered_by_the_next(place: Path, tmp_path: Path) -> None:
    folder, data = tmp_path / "proj", tmp_path / "data"
    folder.mkdir()
    agent = Agent(data, folder)
    assert agent.hook("session-start", source="startup") == ""
    with served(data) as server:
        decide(server, folder)
        wait_until(lambda: any((data / "hooks").glob("*.digest.json")))
        server.stop()
    assert DECISION in context(agent.hook("session-start", source="startup"))
    assert agent.prompt() == ""
    with served(data) as server:
        server.wait_ready()
        wait_until(lambda: not (data / "hooks" / "unreported.jsonl").exists())
        assert agent.prompt() == ""
        agent.session = "another"
        assert DECISION in agent.prompt()
        document = server.tool("list", {}).json()["documents"][0]["documentId"]
        server.tool("delete", {"documentId": document})
        wait_until(lambda: not any((data / "hooks").glob("*.digest.json")))


def test_a_server_that_hangs_one_that_died_and_garbage_leave_the_client_alone(tmp_path: Path) -> None:
    folder, data = tmp_path / "proj", tmp_path / "data"
    folder.mkdir()
    agent = Agent(data, folder, settings={"RAG_CONTEXT_HOOKS__BOUND_MS": "300"})
    assert agent.prompt() == ""  # there is no data directory yet
    with served(data) as server:
        server.wait_ready()
        decide(server, folder)
        server.process.send_signal(signal.SIGSTOP)
        assert agent.prompt() == ""
        server.process.send_signal(signal.SIGCONT)
        hooks = data / "hooks"
        (hooks / "serve-0.sock").write_text("no socket")
        with socket.socket(socket.AF_UNIX) as dead:
            os.chdir(hooks)
            dead.bind("serve-9.sock")
        for payload in (
            b"",
            b"{",
            b'{"session_id": "s1", "prompt": "half',
            b"[]",
            b"null",
            b"\xff\xfe",
            b"x" * (2 << 20),
        ):
            assert agent.raw("prompt", payload) == ""
        for payload in (
            b'{"cwd": 3, "session_id": {}}',
            b'{"cwd": "' + bytes(str(folder), "utf-8") + b'", "prompt": 1}',
        ):
            assert agent.raw("prompt", payload) == ""
        agent.settings = dict(PATIENT)
        assert DECISION in agent.prompt()
        server.kill()
    assert agent.prompt() == ""
    (data / "rag-context.db").write_bytes(b"damaged" * 1000)
    assert agent.prompt() == ""


def test_hooks_can_be_switched_off_for_a_project_and_as_a_whole(tmp_path: Path) -> None:
    folder, data = tmp_path / "proj", tmp_path / "data"
    folder.mkdir()
    agent = Agent(data, folder)
    with served(data, RAG_CONTEXT_HOOKS__SILENT_PROJECTS=str(folder)) as server:
        server.wait_ready()
        decide(server, folder)
        assert agent.prompt() == ""
        server.stop()
    with served(data) as server:
        server.wait_ready()
        off = Agent(data, folder, settings={**PATIENT, "RAG_CONTEXT_HOOKS__ENABLED": "false"})
        assert off.prompt() == ""
        assert DECISION in agent.prompt()


def test_of_two_servers_that_share_a_directory_the_one_that_answers_is_used(tmp_path: Path) -> None:
    folder, data = tmp_path / "proj", tmp_path / "data"
    folder.mkdir()
    agent = Agent(data, folder)
    with served(data) as first, served(data) as second:
        second.wait_ready()
        first.wait_ready()
        decide(first, folder)
        assert DECISION in agent.prompt()
        assert agent.prompt() == ""
        names = sorted(each.name for each in (data / "hooks").glob("*.sock"))
        preferred = first if names[-1] == f"serve-{first.process.pid}.sock" else second
        preferred.process.send_signal(signal.SIGSTOP)
        agent.session = "another"
        said = agent.prompt()
        preferred.process.send_signal(signal.SIGCONT)
        assert DECISION in said
        preferred.stop()
        assert agent.prompt() == ""


def test_the_program_explains_itself_to_a_person(place: Path) -> None:
    assert Agent(place, place).raw("--help", b"").startswith("Usage: rag-context-hook")
    assert command("config", data_dir=place / "data").returncode == 0
