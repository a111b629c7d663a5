"""One conversation as each client writes it down: two sentences of each side, and all that is no message.

Written by hand after files of the clients. `ASKED`, `AGAIN`, `ANSWERED` and `CLOSED` occur in each; whatever must
not be kept holds `INJECTED`.
"""

import json
from collections.abc import Mapping

Item = Mapping[str, object]

ASKED = "Which pump failed at pontoon C?"
ANSWERED = "The bilge pump with the cracked impeller."
AGAIN = "Order a spare one by Friday."
CLOSED = "The spare impeller is ordered."
GEMINI_CLI = "This is the Gemini CLI. We are setting up the context for our chat."
INJECTED = "ZEBRA"

AT = "2026-01-02T03:04:05.000Z"
LATER = "2026-01-02T03:05:05.000Z"


def lines(*items: Item) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


def text(said: str, type_: str = "text") -> dict[str, object]:
    return {"type": type_, "text": said}


def claude_code() -> str:
    number = 0

    def line(role: str, content: object, **more: object) -> Item:
        nonlocal number
        number += 1
        base = {"parentUuid": None, "isSidechain": False, "type": role, "message": {"role": role, "content": content}}
        return {**base, "uuid": f"u{number}", "timestamp": AT, "cwd": "/w", "sessionId": "claude-1", **more}

    reminder = f"<system-reminder>\n{INJECTED} as a reminder\n</system-reminder>"
    command = (
        "<command-name>/compact</command-name>\n<command-message>ZEBRA</command-message>\n<command-args></command-args>"
    )
    asked = line("user", f"{reminder}\n{ASKED}")
    return lines(
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "claude-1", "content": INJECTED},
        {"type": "attachment", "attachment": {"type": "hook_success", "content": INJECTED}, "sessionId": "claude-1"},
        line("user", f"{INJECTED} caveat", isMeta=True),
        asked,
        line("assistant", [{"type": "thinking", "thinking": f"{INJECTED} thought"}]),
        line("assistant", [text(ANSWERED)]),
        line("assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": INJECTED}}]),
        line("user", [{"type": "tool_result", "tool_use_id": "t1", "content": f"{INJECTED} output"}]),
        line("assistant", f"{INJECTED} of a sub-agent", isSidechain=True),
        {"type": "system", "subtype": "compact_boundary", "content": INJECTED, "sessionId": "claude-1"},
        line("user", f"{INJECTED} in short", isCompactSummary=True),
        line("user", f"This session is being continued from a previous conversation. {INJECTED}"),
        line("user", command),
        line("user", f"<local-command-stdout>{INJECTED}</local-command-stdout>"),
        line("user", [text(reminder), text(AGAIN)], timestamp=LATER),
        line("user", "[Request interrupted by user]"),
        asked,
        line("assistant", f"{INJECTED} API error", isApiErrorMessage=True),
        line("assistant", [text(CLOSED)], timestamp=LATER),
    )


def codex() -> str:
    def item(payload: Item, type_: str = "response_item", at: str = AT) -> Item:
        return {"timestamp": at, "type": type_, "payload": payload}

    def message(role: str, *parts: str, at: str = AT, kind: str = "") -> Item:
        said = [text(part, "output_text" if role == "assistant" else "input_text") for part in parts]
        metadata = {"internal_chat_message_metadata_passthrough": {"content_item_kinds": [kind]}} if kind else {}
        return item({"type": "message", "role": role, "content": said, **metadata}, at=at)

    agents = f"# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\n{INJECTED}\n</INSTRUCTIONS>"
    environment = f"<environment_context>\n  <cwd>/{INJECTED}</cwd>\n</environment_context>"
    ide = f"# Context from my IDE setup:\n\n## Open tabs:\n- {INJECTED}\n\n## My request for Codex:\n{AGAIN}"
    return lines(
        item({"id": "codex-1", "cwd": "/w", "base_instructions": {"text": INJECTED}}, "session_meta"),
        message("developer", f"<permissions instructions>{INJECTED}</permissions instructions>"),
        message("user", agents, environment),
        message("user", f"<user_instructions>\n{INJECTED}\n</user_instructions>"),
        message("user", INJECTED, kind="agents.md"),
        message("user", ASKED, kind="user.text"),
        item({"type": "user_message", "message": f"{ASKED} {INJECTED}"}, "event_msg"),
        message("developer", f"{INJECTED} of a hook"),
        item({"type": "reasoning", "summary": [text(INJECTED, "summary_text")]}),
        item({"type": "function_call", "name": "shell", "arguments": INJECTED}),
        item({"type": "function_call_output", "call_id": "c1", "output": INJECTED}),
        message("assistant", ANSWERED),
        item({"message": INJECTED, "replacement_history": []}, "compacted"),
        message("user", ide, at=LATER),
        message("assistant", CLOSED, at=LATER),
    )


def gemini() -> str:
    def message(id_: str, type_: str, content: object, at: str = AT, **more: object) -> Item:
        return {"id": id_, "timestamp": at, "type": type_, "content": content, **more}

    hook = f"<hook_context>{INJECTED} &lt;hook&gt;</hook_context>"
    context = message("m0", "user", f"<session_context>\n{GEMINI_CLI}\n{INJECTED}\n</session_context>")
    call = {"name": "shell", "args": {}, "result": [{"functionResponse": {"response": {"output": INJECTED}}}]}
    return lines(
        {"sessionId": "gemini-1", "projectHash": "p", "startTime": AT, "lastUpdated": AT, "kind": "main"},
        {"$set": {"messages": [context]}},
        message("m1", "user", f"{hook}\n\n{ASKED}", displayContent=[{"text": f"{hook}\n\n{ASKED}"}]),
        message("m2", "gemini", "", thoughts=[{"subject": INJECTED}], toolCalls=[call]),
        message("m2", "gemini", ANSWERED, thoughts=[{"subject": INJECTED}], toolCalls=[call]),
        message("m3", "user", f"{INJECTED} that is taken back"),
        message("m4", "gemini", f"{INJECTED} to what is taken back"),
        {"$rewindTo": "m3"},
        message("m5", "info", f"{INJECTED} update"),
        message("m6", "user", [{"text": f"{AGAIN}\n\n{hook}"}], LATER),
        message("m7", "gemini", [{"text": CLOSED}, {"text": INJECTED, "thought": True}], LATER),
    )


def gemini_object() -> str:
    head, _, *rest = [json.loads(line) for line in gemini().splitlines()]
    return json.dumps(
        {**head, "messages": [line for line in rest if line.get("id") not in (None, "m3", "m4")]}, indent=2
    )


def copilot() -> str:
    def event(number: int, type_: str, data: Item, at: str = AT) -> Item:
        return {"type": type_, "data": data, "id": f"e{number}", "timestamp": at, "parentId": None}

    def user(number: int, content: str, **more: object) -> Item:
        return event(number, "user.message", {"content": content, "transformedContent": INJECTED, **more})

    return lines(
        event(0, "session.start", {"sessionId": "copilot-1", "context": {"cwd": "/w"}}),
        event(1, "system.message", {"role": "system", "content": INJECTED * 1000}),
        user(2, f"{INJECTED} of a skill", source="skill-pumps"),
        user(3, f"{ASKED}\n\n<system_reminder>\n{INJECTED}\n</system_reminder>"),
        event(4, "assistant.turn_start", {"turnId": "0"}),
        event(5, "assistant.message", {"content": ANSWERED, "reasoningText": INJECTED, "toolRequests": []}),
        event(6, "tool.execution_start", {"toolName": "bash", "arguments": {"command": INJECTED}}),
        event(7, "tool.execution_complete", {"result": {"content": INJECTED}}),
        event(8, "assistant.message", {"content": INJECTED, "parentToolCallId": "t1"}),
        event(9, "session.compaction_complete", {"summaryContent": INJECTED}),
        user(10, AGAIN),
        event(11, "assistant.message", {"content": CLOSED}, LATER),
    )


def qwen() -> str:
    def line(number: int, type_: str, role: str, *parts: Item, at: str = AT) -> Item:
        message = {"role": role, "parts": list(parts)}
        return {"uuid": f"q{number}", "sessionId": "qwen-1", "timestamp": at, "type": type_, "message": message}

    return lines(
        {"uuid": "q0", "sessionId": "qwen-1", "timestamp": AT, "type": "system", "subtype": "ui_telemetry"},
        line(1, "user", "user", {"text": ASKED}, {"text": f"{INJECTED} of a hook"}),
        line(2, "assistant", "model", {"text": INJECTED, "thought": True}, {"text": ANSWERED}),
        line(3, "assistant", "model", {"functionCall": {"name": "shell", "args": {"command": INJECTED}}}),
        line(4, "tool_result", "user", {"functionResponse": {"response": {"output": INJECTED}}}),
        line(5, "user", "user", {"text": AGAIN}, at=LATER),
        line(6, "assistant", "model", {"text": CLOSED}, at=LATER),
    )


def cline() -> str:
    def message(role: str, *parts: Item, at: int = 1767323045000) -> Item:
        return {"id": f"{role}-{at}", "role": role, "content": list(parts), "ts": at}

    messages = [
        message("user", text(f'<user_input mode="act">{ASKED}</user_input>')),
        message("assistant", text(ANSWERED), {"type": "tool_use", "name": "bash", "input": {"command": INJECTED}}),
        message("user", {"type": "tool_result", "content": INJECTED}, at=1767323050000),
        message("user", text(f'<user_input mode="act">{AGAIN}</user_input>'), at=1767323105000),
        message("assistant", text(CLOSED), at=1767323105001),
    ]
    head = {"version": 1, "updated_at": AT, "agent": "lead", "sessionId": "cline-1"}
    return json.dumps({**head, "messages": messages, "system_prompt": INJECTED * 1000})


def roo() -> str:
    environment = text(f"<environment_details>\n{INJECTED}\n</environment_details>")
    tool = f"<execute_command>\n<command>{INJECTED}</command>\n</execute_command>"
    done = f"<attempt_completion>\n<result>\n{CLOSED}\n</result>\n</attempt_completion>"
    said = [
        ("user", [text(f"<task>\n{ASKED}\n</task>"), environment]),
        ("assistant", [text(f"<thinking>{INJECTED}</thinking>\n\n{ANSWERED}\n\n{tool}")]),
        ("user", [text("[execute_command for 'ls'] Result:"), text(f"{INJECTED} output"), environment]),
        ("user", [text(f"[attempt_completion] Result:\n{INJECTED}\n<feedback>\n{AGAIN}\n</feedback>"), environment]),
        ("assistant", [text(done)]),
    ]
    return json.dumps([{"role": role, "content": parts} for role, parts in said])


def continue_() -> str:
    said = [("system", INJECTED), ("user", ASKED), ("assistant", ANSWERED), ("tool", INJECTED)]
    said += [("user", AGAIN), ("assistant", CLOSED)]
    history = [
        {"message": {"role": role, "content": content}, "contextItems": [{"content": INJECTED}]}
        for role, content in said
    ]
    return json.dumps({"sessionId": "continue-1", "title": "Pumps", "workspaceDirectory": "/w", "history": history})


def cursor() -> str:
    def line(role: str, *said: Item) -> Item:
        return {"role": role, "message": {"content": list(said)}}

    return lines(
        line("user", text(f"{INJECTED}\n<user_query>\n{ASKED}\n</user_query>")),
        line("assistant", text(ANSWERED), {"type": "tool_use", "name": "Shell", "input": {"command": INJECTED}}),
        {"type": "turn_ended", "status": INJECTED},
        line("user", text(f"<user_query>\n{AGAIN}\n</user_query>")),
        line("assistant", text(CLOSED)),
    )


def goose() -> str:
    def line(role: str, *parts: Item, created: int = 1767323045) -> Item:
        return {"id": None, "role": role, "created": created, "content": list(parts)}

    return lines(
        {"description": "Pumps", "working_dir": "/w", "message_count": 5},
        line("user", text(ASKED)),
        line("assistant", text(ANSWERED), {"type": "toolRequest", "id": "t1", "toolCall": {"value": INJECTED}}),
        line("user", {"type": "toolResponse", "id": "t1", "toolResult": {"value": [text(INJECTED)]}}),
        line("user", text(AGAIN)),
        line("assistant", text(CLOSED)),
    )


def vscode() -> str:
    requests = [
        {
            "requestId": "r1",
            "timestamp": 1767323045000,
            "message": {"text": ASKED, "parts": [{"text": ASKED}]},
            "variableData": {"variables": [{"value": INJECTED}]},
            "response": [
                {"kind": "thinking", "value": INJECTED},
                {"value": "The bilge pump "},
                {"kind": "toolInvocationSerialized", "resultDetails": INJECTED},
                {"kind": "markdownContent", "content": {"value": ANSWERED.removeprefix("The bilge pump ")}},
            ],
        },
        {"requestId": "r2", "timestamp": 1767323105000, "message": {"text": AGAIN}, "response": [{"value": CLOSED}]},
    ]
    return json.dumps({"version": 3, "sessionId": "vscode-1", "customTitle": "Pumps", "requests": requests})


def vscode_log() -> str:
    whole = json.loads(vscode())
    first, second = whole.pop("requests")
    answer, first["response"] = first["response"], []
    return lines(
        {"kind": 0, "v": {**whole, "requests": []}},
        {"kind": 2, "k": ["requests"], "v": [first, {**second, "message": {"text": INJECTED}}]},
        {"kind": 1, "k": ["requests", 0, "response"], "v": answer},
        {"kind": 2, "k": ["requests"], "i": 1, "v": [{**second, "inputText": INJECTED}]},
        {"kind": 3, "k": ["requests", 1, "inputText"]},
        {"kind": 1, "k": ["requests", 7, "response"], "v": INJECTED},
    )


def amp() -> str:
    said: list[tuple[str, list[Item]]] = [
        ("user", [text(ASKED)]),
        ("assistant", [{"type": "thinking", "thinking": INJECTED}, text(ANSWERED)]),
        ("user", [{"type": "tool_result", "run": {"result": INJECTED}}]),
        ("user", [text(AGAIN)]),
        ("assistant", [text(CLOSED)]),
    ]
    at = [1767323045000, 1767323045000, 1767323045000, 1767323105000, 1767323105000]
    messages = [
        {"role": role, "content": parts, "meta": {"sentAt": when}} for (role, parts), when in zip(said, at, strict=True)
    ]
    return json.dumps({"v": 1, "id": "T-amp-1", "created": 1767323045000, "title": "Pumps", "messages": messages})


def droid() -> str:
    def line(number: int, role: str, *parts: Item, at: str = AT) -> Item:
        message = {"role": role, "content": list(parts)}
        return {"type": "message", "id": f"d{number}", "timestamp": at, "message": message}

    return lines(
        {"type": "session_start", "id": "droid-1", "title": "Pumps", "cwd": "/w"},
        line(1, "user", text(f"<system-reminder>{INJECTED}</system-reminder>"), text(ASKED)),
        line(2, "assistant", text(ANSWERED), {"type": "tool_use", "id": "t1", "name": "Execute", "input": {}}),
        line(3, "user", {"type": "tool_result", "tool_use_id": "t1", "content": INJECTED}),
        {"type": "todo_state", "id": "d4", "todos": INJECTED},
        line(5, "user", text(AGAIN), at=LATER),
        line(6, "assistant", text(CLOSED), at=LATER),
    )


def aider() -> str:
    return f"""
# aider chat started at 2026-01-02 03:04:05

> aider --api-key {INJECTED}
> Aider v0.86.2

#### {ASKED}

{ANSWERED}

> Tokens: {INJECTED}

#### {AGAIN}

{CLOSED}
"""


FILES = {
    "claude/claude-1.jsonl": claude_code(),
    "codex/rollout-2026-01-02-codex-1.jsonl": codex(),
    "gemini/session-2026-01-02-gemini-1.jsonl": gemini(),
    "gemini/session-2025-01-02-gemini-1.json": gemini_object(),
    "copilot/events.jsonl": copilot(),
    "qwen/qwen-1.jsonl": qwen(),
    "cline/cline-1.messages.json": cline(),
    "roo/api_conversation_history.json": roo(),
    "continue/continue-1.json": continue_(),
    "cursor/transcript.jsonl": cursor(),
    "goose/20260102_1.jsonl": goose(),
    "vscode/vscode-1.json": vscode(),
    "vscode/vscode-2.jsonl": vscode_log(),
    "amp/T-amp-1.json": amp(),
    "droid/droid-1.jsonl": droid(),
    "aider/.aider.chat.history.md": aider(),
}
"""A file of each client, by a path like those the clients use."""
