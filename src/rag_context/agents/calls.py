"""What a client says at a moment of a session, read from the payloads of all clients, which use different names."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rag_context.agents.hook import PLAIN, cwd_of, is_subagent
from rag_context.files.histories.client_records import INJECTED, LeftOut, Marks

_INJECTED = Marks(
    {
        **INJECTED,
        **dict.fromkeys(
            ("hook_context", "session_context", "user-prompt-submit-hook", "session-start-hook", "environment_context"),
            LeftOut.CONTEXT,
        ),
    }
)
_SESSION = ("session_id", "sessionId", "conversation_id", "taskId")
_PATHS = ("file_path", "filePath", "path", "notebook_path", "absolute_path", "target_file")
_CHANGES = frozenset((
    "content", "contents", "new_string", "newString", "old_string", "oldString", "new_str", "old_str", "new_source",
    "edits", "file_text", "patch", "diff", "code_edit",
))  # fmt: skip
"""Arguments of tools that write a file: those that only read one have none of these."""

_AFTER_READING = frozenset({"gemini", "opencode"})
"""Clients that take text only after a tool: there the decision about a file comes when it is read."""

_QUOTED = re.compile(r'\s*"([^"]*)"\s*')
_PATCHED = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Action:
    """What an agent is about to do: edit the file `path` to hold `text`, or run `text`, a command (no path)."""

    path: str | None
    text: str

    @property
    def subject(self) -> str:
        """What is spoken about once a session."""
        return self.path if self.path is not None else " ".join(self.text.split())


@dataclass(frozen=True, slots=True)
class Call:
    """One event of a session.

    Attributes:
        event: one of `hook.EVENTS`.
        client: as `--client` names it.
        session_id: of the client; "" where it names none.
        source: why a session starts, or what compacts it; "" where the client does not say.
        prompt: the person's words, without what was injected.
        transcript: the file in which the client keeps the session, if it names one.
        printed: what the hook said by itself from the digest: its documents and tokens.
        at: when, if that is not now: the hook noted it while no process answered.
    """

    event: str
    client: str
    session_id: str
    cwd: Path
    is_subagent: bool
    source: str
    prompt: str
    action: Action | None
    transcript: Path | None
    printed: Mapping[str, Any] | None
    at: datetime | None


def read_call(question: Mapping[str, Any]) -> Call:
    """The event of a hook's question. Raises: KeyError, TypeError, ValueError (it is no question of a hook)."""
    payload, client = dict(question["payload"]), str(question["client"])
    cwd = cwd_of(payload)
    session_id = next((str(payload[name]) for name in _SESSION if payload.get(name)), "")
    source = str(payload.get("source") or payload.get("trigger") or "")
    if client in PLAIN and not session_id:
        # It names no session: all of a day in a folder count as one, which each start empties.
        session_id, source = f"{client} {datetime.now(UTC).date()} {cwd}", source or "clear"
    transcript = payload.get("transcript_path") or payload.get("transcriptPath")
    prompt = payload.get("prompt")
    return Call(
        event=str(question["event"]),
        client=client,
        session_id=session_id,
        cwd=Path(cwd),
        is_subagent=is_subagent(payload),
        source=source,
        prompt=spoken(prompt) if isinstance(prompt, str) else "",
        action=next(_actions(payload, client), None),
        transcript=Path(transcript) if isinstance(transcript, str) else None,
        printed=question.get("printed"),
        at=datetime.fromtimestamp(question["at"], UTC) if "at" in question else None,
    )


def spoken(prompt: str) -> str:
    """A prompt without blocks of memories or the client, and without the quotation marks of OpenCode's command line."""
    words = _INJECTED.words(prompt)[0]
    quoted = _QUOTED.fullmatch(words)
    return quoted[1] if quoted is not None else words


def _actions(payload: Mapping[str, Any], client: str) -> Iterator[Action]:
    arguments = payload.get("tool_input") or payload.get("toolArgs") or payload.get("toolInput")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return
    if not isinstance(arguments, dict):
        return
    command = arguments.get("command") or arguments.get("cmd") or arguments.get("input")
    text = " ".join(map(str, command)) if isinstance(command, list) else str(command or "")
    for path in _PATCHED.findall(text):
        yield Action(path.strip(), text)
    changes = [str(value) for name, value in arguments.items() if name in _CHANGES]
    for name in _PATHS:
        if (changes or client in _AFTER_READING) and isinstance(arguments.get(name), str):
            yield Action(arguments[name], "\n".join(changes))
    if text:
        yield Action(None, text)
