"""What hooks bring into the requests of real clients, and what they never do (A-2, A-5)."""

import json
import re
from pathlib import Path

import pytest

from tests.clients.agents import AgentClient
from tests.clients.machine import Machine, Turn
from tests.clients.model import REPLY, Sent
from tests.end_to_end.process import COMMAND, wait_until

BERTHS = (
    "We decided that bookings of one berth may not overlap: an exclusion constraint in PostgreSQL sees to it, because "
    "two clerks had sold the same berth."
)
BERTHS_AGAIN = "Two clerks sold the same berth again. Which constraint keeps bookings of one berth from overlapping?"
OVERLAP = "How do bookings of one berth come to overlap in spite of the exclusion constraint?"
SLUICE = "We decided that the sluice of the mill opens at 40 centimetres, because the wheel floods above."
UNRELATED = "Write a haiku about spring rain in the mountains."
COMPACTED_AFTER = 6
"""Claude Code compacts no conversation of fewer turns."""

CAP = 9_500
"""Characters of what a hook says: Claude Code cuts at 10 000, Codex at some 10 KB."""

HOOK = str(Path(COMMAND).with_name("rag-context-hook"))


def turn(machine: Machine, client: AgentClient, prompt: str, folder: Path, *, resumed: bool = False) -> Turn:
    """A turn with hooks, which ends as one without them does."""
    ended = machine.turn(client, prompt, folder, *client.trusted, is_resumed=resumed)
    assert ended.status == 0, ended.err
    assert REPLY in ended.out
    return ended


def remember(machine: Machine, folder: Path, text: str, kind: str = "decision") -> None:
    done = machine.rag_context("remember", text, "--type", kind, cwd=folder)
    assert done.returncode == 0, done.stderr


def test_a_decision_stands_in_the_request_once_in_its_role_below_the_cap(
    installed: Machine, client: AgentClient
) -> None:
    folder = installed.project("harbour")
    remember(installed, folder, BERTHS)
    request = turn(installed, client, BERTHS_AGAIN, folder).first
    assert request.text.count(BERTHS) == 1
    ((role, text),) = [(role, text) for role, text in request.turns if BERTHS in text]
    assert role == client.role
    said = re.search(r"(?:<|&lt;)rag-context(?:>|&gt;).*?/rag-context(?:>|&gt;)", text, re.DOTALL)
    assert said is not None
    assert len(said[0]) < CAP


def test_it_is_not_said_again_where_the_session_goes_on(installed: Machine, client: AgentClient) -> None:
    folder = installed.project("pier")
    remember(installed, folder, BERTHS)
    first = turn(installed, client, BERTHS_AGAIN, folder).first
    later = turn(installed, client, OVERLAP, folder, resumed=True).first
    assert [each.text.count(BERTHS) for each in (first, later)] == [1, 1]


def test_a_project_never_sees_what_another_one_decided(installed: Machine, client: AgentClient) -> None:
    mill, quay = installed.project("mill"), installed.project("quay")
    remember(installed, mill, SLUICE)
    remember(installed, quay, BERTHS)
    own = turn(installed, client, "Why does the sluice of the mill open at 40 centimetres?", mill).first
    foreign = turn(installed, client, BERTHS_AGAIN, mill).first
    assert (SLUICE in own.text, BERTHS in own.text, BERTHS in foreign.text) == (True, False, False)


def test_silence_leaves_the_request_as_it_is_without_hooks(installed: Machine, client: AgentClient) -> None:
    folder = installed.project("garden")
    with_hooks = turn(installed, client, UNRELATED, folder).first
    installed.variables["RAG_CONTEXT_HOOKS__ENABLED"] = "off"
    try:
        without = turn(installed, client, UNRELATED, folder).first
    finally:
        del installed.variables["RAG_CONTEXT_HOOKS__ENABLED"]
    assert lasting(with_hooks) == lasting(without)


def lasting(request: Sent) -> str:
    """A request without what differs from session to session: ids, times, the order of lines (Gemini's of skills)."""
    text = json.dumps(request.body, sort_keys=True)
    text = re.sub(r"\d+", "#", re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\b(?:ses|msg|prt)_[\w-]+|[0-9a-f]{16,}", "#", text))
    return "\n".join(sorted(text.split("\\n")))


def test_yesterdays_decision_reaches_todays_session(installed: Machine, client: AgentClient) -> None:
    """The story: not a word about a memory, neither when it was decided nor when it was needed."""
    folder = installed.project("marina")
    remember(installed, folder, SLUICE)  # so that yesterday's session has something injected, which must not come back
    turn(installed, client, BERTHS, folder)
    done = installed.rag_context("import-history", client.name, "--headless", "--project", str(folder), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (conversation,) = [
        document
        for document in json.loads(installed.rag_context("list", "--json", "--type", "chat").stdout)["documents"]
        if any(tag.startswith("project:marina-") for tag in document["metadata"].get("tags", ()))
    ]
    kept = json.loads(installed.rag_context("get", conversation["documentId"], "--json").stdout)["content"]
    assert BERTHS in kept
    assert REPLY in kept
    assert SLUICE not in kept
    assert "rag-context" not in kept
    wait_until(lambda: json.loads(installed.rag_context("health", "--json").stdout)["pendingDocuments"] == 0)

    request = turn(installed, client, BERTHS_AGAIN, folder).first
    assert BERTHS in request.text, installed.rag_context("log", "--injected", cwd=folder).stdout


@pytest.mark.only("claude-code")
def test_after_a_compaction_it_may_be_said_again(installed: Machine, client: AgentClient) -> None:
    """The summary of a conversation has lost what hooks said in it."""
    folder = installed.project("wharf")
    remember(installed, folder, BERTHS)
    turn(installed, client, BERTHS_AGAIN, folder)
    for _ in range(COMPACTED_AFTER):
        before = turn(installed, client, "say it again", folder, resumed=True).first
    assert before.text.count(BERTHS) == 1
    installed.turn(client, "/compact", folder, is_resumed=True)
    after = turn(installed, client, BERTHS_AGAIN, folder, resumed=True).first
    assert len(after.turns) < len(before.turns)
    assert after.text.count(BERTHS) == 1


@pytest.mark.only("claude-code")
@pytest.mark.parametrize(
    ("known", "tool", "arguments"),
    [
        (
            "Locks in berths.py are advisory ones, because row locks made the clerks wait for their list.",
            "Write",
            {"file_path": "src/berths.py", "content": "a = 2"},
        ),
        (
            "We never run make ferry on a Friday, because the pilots cannot roll it back before Monday.",
            "Bash",
            {"command": "make ferry", "description": "x"},
        ),
    ],
    ids=["before a file is written", "before a command is run"],
)
def test_what_is_known_of_a_file_or_command_is_said_at_the_point_of_action(
    installed: Machine, client: AgentClient, known: str, tool: str, arguments: dict[str, str]
) -> None:
    folder = installed.project(f"quay-{tool.lower()}")
    remember(installed, folder, known, "note")  # what was decided is said at the start of the session
    if "file_path" in arguments:
        arguments = {**arguments, "file_path": str(folder / arguments["file_path"])}
    sent = turn(installed, client, f"CALL {tool} {json.dumps(arguments)} NOW", folder).asked
    assert len(sent) == 2
    assert [each.text.count(known) for each in sent] == [0, 1]


BROKEN = {
    "exits with 1": "#!/bin/sh\nexit 1\n",
    "prints half an answer": '#!/bin/sh\nprintf \'{"hookSpecificOutput": {"additionalCon\'\n',
    "hangs": "#!/bin/sh\nexec sleep 30\n",
    "is gone": "",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_turn_ends_normally_where_the_hook(machine: Machine, client: AgentClient, how: str) -> None:
    assert machine.rag_context("install", client.name).returncode == 0
    program = machine.home.parent / "broken-hook"  # a path that no settings file has to quote
    if BROKEN[how]:
        program.write_text(BROKEN[how])
        program.chmod(0o755)
    changed = [file for file in machine.files() if replaced(file, str(program))]
    assert changed
    folder = machine.project("harbour")
    ended = turn(machine, client, BERTHS_AGAIN, folder)
    wait_until(lambda: machine.processes() == [])
    assert "Traceback" not in ended.first.text


def replaced(file: Path, program: str) -> bool:
    """Put another program in the place of our hook, which may then take a second; True where the file names it."""
    text = file.read_text(errors="ignore")
    if HOOK not in text:
        return False
    limits = re.sub(r'("timeout(?:Sec)?": )(\d+)', lambda m: m[1] + ("1" if int(m[2]) < 100 else "1000"), text)
    file.write_text(limits.replace(HOOK, program))
    return True


def test_a_turn_ends_normally_without_a_server_and_with_a_damaged_index(machine: Machine, client: AgentClient) -> None:
    assert machine.rag_context("install", client.name).returncode == 0
    folder = machine.project("harbour")
    remember(machine, folder, BERTHS)
    turn(machine, client, UNRELATED, folder)
    for file in (machine.home / ".local").rglob("rag-context/**/*"):
        if file.is_file():
            file.write_bytes(b"damaged " * 512)
    assert "Traceback" not in turn(machine, client, BERTHS_AGAIN, folder).first.text


def test_uninstall_leaves_what_was_there_before(machine: Machine, client: AgentClient) -> None:
    machine.turn(client, UNRELATED, machine.project("harbour"))  # the client makes its own files
    before = machine.contents()
    assert machine.rag_context("install", client.name).returncode == 0
    installed = machine.contents()
    assert machine.rag_context("install", client.name).returncode == 0
    assert machine.contents() == installed
    assert machine.rag_context("uninstall", client.name).returncode == 0
    assert machine.contents() == before


@pytest.mark.only("codex")
def test_doctor_says_that_hooks_are_not_trusted(machine: Machine, client: AgentClient) -> None:
    """Codex runs no hook without approval, and says nothing of it."""
    assert machine.rag_context("install", client.name).returncode == 0
    folder = machine.project("harbour")
    with machine.serving():
        remember(machine, folder, BERTHS)
        assert BERTHS not in machine.turn(client, BERTHS_AGAIN, folder).first.text
        found = machine.rag_context("doctor", cwd=folder)
    assert re.search(r"/hooks|trust", found.stdout + found.stderr)
