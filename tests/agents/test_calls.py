"""What clients say at their events, in the fields that each of them has."""

import json
from typing import Any

import pytest

from rag_context.agents.answering import Action, read_call, spoken


def call(payload: dict[str, Any], client: str = "claude-code", event: str = "action") -> Any:
    return read_call({"event": event, "client": client, "payload": {"cwd": "/w/harbour", **payload}})


EDITS = [
    ({"tool_name": "Edit", "tool_input": {"file_path": "a.py", "old_string": "x", "new_string": "y"}}, "a.py"),
    ({"tool_name": "NotebookEdit", "tool_input": {"notebook_path": "a.ipynb", "new_source": "y"}}, "a.ipynb"),
    ({"tool_name": "write_file", "tool_input": {"absolute_path": "/w/a.py", "content": "y"}}, "/w/a.py"),
    ({"toolName": "edit", "toolArgs": json.dumps({"path": "a.py", "old_str": "x", "new_str": "y"})}, "a.py"),
    (
        {"tool_name": "apply_patch", "tool_input": {"command": "*** Begin Patch\n*** Update File: src/a.py\n+y"}},
        "src/a.py",
    ),
    ({"tool_name": "apply_patch", "tool_input": {"input": "*** Begin Patch\n*** Add File: b.py\n+y"}}, "b.py"),
]


@pytest.mark.parametrize(("payload", "path"), EDITS)
def test_the_file_of_an_edit_is_found_in_the_arguments_of_every_client(payload: dict[str, Any], path: str) -> None:
    assert call(payload).action.path == path


COMMANDS = [
    {"tool_name": "Bash", "tool_input": {"command": "make  test", "description": "run"}},
    {"tool_name": "shell", "tool_input": {"command": ["make", "test"]}},
    {"toolName": "bash", "toolArgs": json.dumps({"command": "make test"})},
]


@pytest.mark.parametrize("payload", COMMANDS)
def test_a_command_is_its_own_subject_however_it_is_written(payload: dict[str, Any]) -> None:
    action = call(payload).action
    assert (action.path, action.subject) == (None, "make test")


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"tool_name": "Read", "tool_input": {"file_path": "a.py"}},
        {"tool_name": "Grep", "tool_input": {"pattern": "x", "path": "src"}},
        {"tool_name": "x", "tool_input": "no JSON"},
        {"tool_name": "x", "tool_input": ["a"]},
        {"tool_name": "x", "tool_input": None},
    ],
)
def test_what_changes_nothing_is_no_action(payload: dict[str, Any]) -> None:
    assert call(payload).action is None


def test_a_file_is_read_where_a_client_takes_text_only_after_a_tool() -> None:
    read = {"tool_name": "read_file", "tool_input": {"absolute_path": "/w/a.py"}}
    assert call(read, "gemini").action == Action("/w/a.py", "")
    assert call(read, "codex").action is None


def test_folder_and_session_are_read_from_the_fields_of_every_client() -> None:
    cursor = {"conversation_id": "c1", "workspace_roots": ["/w/other", "/w/third"], "user_email": "jo@example.org"}
    assert (call(cursor).session_id, str(call(cursor).cwd)) == ("c1", "/w/other")
    assert call({"sessionId": "s1"}).session_id == "s1"
    assert call({}).session_id == ""
    assert "/w/harbour" in call({}, "kiro").session_id


@pytest.mark.parametrize("tag", ["hook_context", "rag-context", "system-reminder", "claude-mem-context", "deja-recall"])
def test_what_memories_and_clients_put_into_a_prompt_is_not_searched_for(tag: str) -> None:
    assert spoken(f"<{tag}>\nWe paint the berth green.\n</{tag}>\n\nWhich pump failed?") == "Which pump failed?"
    assert spoken(f"What does <{tag}> mean?") == f"What does <{tag}> mean?"
