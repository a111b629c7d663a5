"""Conversations of Cline, and of its forks Roo and Kilo.

They store the person's text and the tools' results in the same messages, as text: wrappers and first lines
distinguish them. The model's tool calls are XML within its answers, or parts of their own.
"""

from collections.abc import Iterator

from rag_context.files.formats.exchange import Format
from rag_context.files.formats.json_stream import Fields, word
from rag_context.files.histories import client_records

_WRAPPERS = ("user_input", "task", "feedback", "answer", "user_message")
_TOOLS = (
    "access_mcp_resource", "apply_diff", "ask_followup_question_options", "browser_action", "codebase_search",
    "condense", "execute_command", "fetch_instructions", "focus_chain", "insert_content", "list_code_definition_names",
    "list_files", "load_mcp_documentation", "new_task", "read_file", "replace_in_file", "search_and_replace",
    "search_files", "switch_mode", "task_progress", "update_todo_list", "use_mcp_tool", "web_fetch", "write_to_file",
    "options", "follow_up", "command",
)  # fmt: skip


def _records(message: Fields) -> Iterator[client_records.Record]:
    role = word(message, "role")
    if not role:
        return
    record = client_records.record_by(role, message.get("content"), message.get("ts"), word(message, "id"))
    if record.speaker == client_records.USER:
        record = _words(record)
    yield record


def _words(record: client_records.Record) -> client_records.Record:
    """Where a wrapper marks the person's text, the rest of a message is injected; tools' results begin like this."""
    texts: list[str] = []
    is_output, is_wrapped = False, any(client_records.inside(text, _WRAPPERS) is not None for text in record.texts)
    for text in record.texts:
        words = client_records.inside(text, _WRAPPERS)
        is_output |= words is None and _is_output(text)
        if words is not None:
            texts.append(words)
        elif not is_wrapped and (not is_output or text.lstrip().startswith("<environment_details>")):
            texts.append(text)
        elif text.lstrip().startswith("<environment_details>"):
            record.left_out[client_records.CONTEXT] += 1
        else:
            record.left_out[client_records.TOOL_OUTPUT] += 1
    return client_records.Record(record.speaker, tuple(texts), record.at, record.id, record.left_out)


def _is_output(text: str) -> bool:
    first = text.lstrip()[:500].split("\n", 1)[0].rstrip()
    return first.startswith(("[TASK RESUMPTION]", "[ERROR]")) or (first.startswith("[") and "] Result:" in first)


def _is_prompt(record: Fields) -> bool:
    """Beginnings of the parts of such a message, and of no other."""
    content = record.get("content")
    texts = client_records.parts(content)[0] if record.get("role") == "user" and isinstance(content, list) else ()
    return any(
        text.lstrip().startswith(("<user_input", "<environment_details>", "[TASK RESUMPTION]")) for text in texts
    )


CLINE = client_records.Client(
    format=Format.CLINE,
    is_own=lambda record: (
        ("agent" in record and "sessionId" in record and isinstance(record.get("messages"), list))
        or _is_prompt(record)
    ),
    record=_records,
    files=("api_conversation_history.json",),
    user=client_records.injecting(
        "environment_details", "file_content", "folder_content", "url_content", "explicit_instructions"
    ),
    model=client_records.Marks(
        blocks={**dict.fromkeys(_TOOLS, client_records.TOOL_CALL), "thinking": client_records.REASONING},
        unwrapped=(
            "attempt_completion", "result", "ask_followup_question", "question", "plan_mode_respond", "response",
        ),
    ),
)  # fmt: skip
