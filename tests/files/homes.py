"""A home with a session of every client that is known, all in one project, at the places where clients keep them."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.files.transcripts import AGAIN, ANSWERED, ASKED, AT, CLOSED, FILES, INJECTED, LATER

CODE = ".config/Code/User"
DATA = ".local/share"
SOURCES = {
    "claude-code:claude-1": (".claude/projects/-w/claude-1.jsonl", "claude/claude-1.jsonl"),
    "codex:codex-1": (".codex/sessions/2026/01/02/rollout-codex-1.jsonl", "codex/rollout-2026-01-02-codex-1.jsonl"),
    "gemini:gemini-1": (".gemini/tmp/w/chats/session-1.jsonl", "gemini/session-2026-01-02-gemini-1.jsonl"),
    "copilot:copilot-1": (".copilot/session-state/copilot-1/events.jsonl", "copilot/events.jsonl"),
    "vscode:vscode-1": (f"{CODE}/workspaceStorage/w/chatSessions/vscode-1.jsonl", "vscode/vscode-2.jsonl"),
    "cursor:cursor-1": (".cursor/projects/w/agent-transcripts/cursor-1.jsonl", "cursor/transcript.jsonl"),
    "cline:cline-1": (".cline/data/sessions/cline-1/cline-1.messages.json", "cline/cline-1.messages.json"),
    "roo:roo-1": (
        f"{CODE}/globalStorage/rooveterinaryinc.roo-cline/tasks/roo-1/api_conversation_history.json",
        "roo/api_conversation_history.json",
    ),
    "qwen:qwen-1": (".qwen/projects/-w/chats/qwen-1.jsonl", "qwen/qwen-1.jsonl"),
    "goose:goose-1": (f"{DATA}/goose/sessions/goose-1.jsonl", "goose/20260102_1.jsonl"),
    "continue:continue-1": (".continue/sessions/continue-1.json", "continue/continue-1.json"),
    "amp:T-amp-1": (f"{DATA}/amp/threads/T-amp-1.json", "amp/T-amp-1.json"),
    "droid:droid-1": (".factory/sessions/droid-1.jsonl", "droid/droid-1.jsonl"),
}
"""The file of each session below the home, and which of `transcripts.FILES` it is, by the source of its document."""

BESIDE = {
    ".gemini/tmp/w/.project_root": "{folder}",
    f"{CODE}/workspaceStorage/w/workspace.json": '{{"folder": "file://{folder}"}}',
    ".cline/data/sessions/cline-1/cline-1.json": '{{"session_id": "cline-1", "workspace_root": "{folder}"}}',
    f"{CODE}/globalStorage/rooveterinaryinc.roo-cline/tasks/roo-1/history_item.json": '{{"workspace": "{folder}"}}',
    ".continue/sessions/sessions.json": "[]",
}
UNPLACED = {"cursor:cursor-1", "amp:T-amp-1"}
"""Sessions whose files do not say where they ran."""

IN_DATABASES = ("opencode:ses_1", "cursor:composer-1", "goose:20260102_2", "warp:warp-1")


def fill(home: Path, folder: Path) -> None:
    """Write all of them; those that can say so ran in `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".aider.chat.history.md").write_text(FILES["aider/.aider.chat.history.md"])
    for place, name in SOURCES.values():
        _write(home / place, FILES[name].replace('"/w"', json.dumps(str(folder))))
    qwen = home / SOURCES["qwen:qwen-1"][0]
    qwen.write_text(qwen.read_text().replace('"uuid":', f'"cwd": {json.dumps(str(folder))}, "uuid":'))
    for place, content in BESIDE.items():
        _write(home / place, content.format(folder=folder))
    opencode(home / DATA / "opencode/opencode.db", folder)
    goose(home / DATA / "goose/sessions/sessions.db", folder)
    cursor(home / ".config/Cursor/User/globalStorage/state.vscdb", folder)
    warp(home / ".local/state/warp-terminal/warp.sqlite", folder)


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def _database(path: Path, script: str) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.executescript(f"PRAGMA journal_mode = WAL; {script}")
    return connection


def opencode(path: Path, folder: Path) -> None:
    said = [
        ("user", ASKED, {}), ("assistant", ANSWERED, {}), ("assistant", INJECTED, {"summary": True}),
        ("user", AGAIN, {}), ("assistant", CLOSED, {}),
    ]  # fmt: skip
    script = """
        CREATE TABLE session (id, project_id, parent_id, title, directory, time_created, time_updated);
        CREATE TABLE message (id, session_id, time_created, data);
        CREATE TABLE part (id, message_id, session_id, data);
    """
    with closing(_database(path, script)) as connection, connection:
        sessions = [("ses_1", None, "Pumps"), ("ses_2", "ses_1", "Sub-agent")]
        connection.executemany(
            "INSERT INTO session VALUES (?, 'p', ?, ?, ?, 1767323045000, 1767323105000)",
            [(*each, str(folder)) for each in sessions],
        )
        for number, (role, text, more) in enumerate(said):
            for session, _, _ in sessions:
                at, id_ = 1767323045000 + number, f"msg_{session}_{number}"
                data = json.dumps({"role": role, "time": {"created": at}, **more})
                connection.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (id_, session, at, data))
                words = text if session == "ses_1" else INJECTED
                parts = [
                    {"type": "step-start"}, {"type": "text", "text": INJECTED, "synthetic": True},
                    {"type": "reasoning", "text": INJECTED}, {"type": "text", "text": words},
                    {"type": "tool", "state": {"output": INJECTED}},
                ]  # fmt: skip
                connection.executemany(
                    "INSERT INTO part VALUES (?, ?, ?, ?)",
                    [(f"prt_{number}_{at}", id_, session, json.dumps(part)) for at, part in enumerate(parts)],
                )


def goose(path: Path, folder: Path) -> None:
    said = [
        ("user", [{"type": "text", "text": ASKED}]),
        ("assistant", [{"type": "text", "text": ANSWERED}, {"type": "toolRequest", "id": "t", "toolCall": {}}]),
        ("user", [{"type": "toolResponse", "id": "t", "toolResult": {"value": INJECTED}}]),
        ("user", [{"type": "text", "text": AGAIN}]),
        ("assistant", [{"type": "text", "text": CLOSED}]),
    ]
    script = """
        CREATE TABLE sessions (id, description, working_dir, created_at, updated_at);
        CREATE TABLE messages (id, session_id, role, content_json, created_timestamp);
    """
    with closing(_database(path, script)) as connection, connection:
        connection.execute("INSERT INTO sessions VALUES ('20260102_2', 'Pumps', ?, ?, ?)", (str(folder), AT, LATER))
        connection.executemany(
            "INSERT INTO messages VALUES (?, '20260102_2', ?, ?, ?)",
            [(number, role, json.dumps(parts), 1767323045 + number) for number, (role, parts) in enumerate(said)],
        )


def cursor(path: Path, folder: Path) -> None:
    bubbles = [
        {"type": 1, "text": ASKED, "workspaceProjectDir": str(folder)}, {"type": 2, "text": "", "thinking": INJECTED},
        {"type": 2, "text": ANSWERED, "toolFormerData": {"result": INJECTED}}, {"type": 1, "text": AGAIN},
        {"type": 2, "text": CLOSED},
    ]  # fmt: skip
    headers = [{"bubbleId": f"b{number}", "type": each["type"]} for number, each in enumerate(bubbles)]
    composer = {"composerId": "composer-1", "name": "Pumps", "lastUpdatedAt": 1767323105000}
    rows = [
        ("composerData:composer-1", json.dumps({**composer, "fullConversationHeadersOnly": headers})),
        ("composerData:composer-2", None),
        ("bubbleId:composer-2:b0", json.dumps({"type": 1, "text": INJECTED})),
        *(
            (f"bubbleId:composer-1:b{number}", json.dumps({**each, "bubbleId": f"b{number}", "createdAt": AT}))
            for number, each in enumerate(bubbles)
        ),
    ]
    script = "CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);"
    with closing(_database(path, script)) as connection, connection:
        connection.executemany(
            "INSERT INTO cursorDiskKV VALUES (?, ?)", [(key, value and value.encode()) for key, value in rows]
        )


def warp(path: Path, folder: Path) -> None:
    script = "CREATE TABLE ai_queries (exchange_id, conversation_id, start_ts, input, working_directory);"
    with closing(_database(path, script)) as connection, connection:
        connection.executemany(
            "INSERT INTO ai_queries VALUES (?, 'warp-1', ?, ?, ?)",
            [
                (f"x{number}", f"2026-01-02 03:04:0{number}", json.dumps(given), str(folder))
                for number, given in enumerate(
                    [[{"Query": {"text": ASKED, "context": INJECTED}}], [{"ActionResult": INJECTED}],
                     [{"Query": {"text": AGAIN}}]]
                )
            ],
        )  # fmt: skip
