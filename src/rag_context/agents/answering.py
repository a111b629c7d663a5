"""What a process that has the memory open answers to hooks: what a client says, and a block of quotations or nothing.

All judgement is here and in `gate`; the program that the client runs only sends events and prints.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rag_context.agents.digests import framed
from rag_context.agents.gate import Gate, Moment, Scores, Shown, Verdict, Withheld
from rag_context.agents.hook import FORGETFUL, PLAIN, cwd_of, is_subagent
from rag_context.agents.sessions import Sessions, SessionState
from rag_context.agents.workspace import Workspace, workspace
from rag_context.domain.documents import utc_now
from rag_context.domain.reports import Injection
from rag_context.files.histories.client_records import INJECTED, LeftOut, Marks
from rag_context.ports.models import Tokenizer

logger = logging.getLogger(__name__)

FRAME_TOKENS = 60
"""What the heading of a block and the line above a quotation cost, at least."""

MAX_WITHHELD = 20
"""How many withheld candidates of one moment are recorded, the strongest."""

SUBJECT_CHARS = 200
ANNOUNCES_TOO_MUCH = frozenset({"claude-code", "gemini"})
"""Clients that announce compactions of nothing: Gemini before the first prompt, Claude Code in a conversation too short
for one. Claude Code starts the session again after a real one."""

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


@dataclass(frozen=True, slots=True)
class HookReply:
    """What is printed, and what is recorded: `shown` only once it was printed, `withheld` in any case."""

    text: str = ""
    shown: tuple[Injection, ...] = ()
    withheld: tuple[Injection, ...] = ()


_SILENCE = HookReply()


async def _without_notes(passages: Sequence[Shown], _project: Workspace) -> Sequence[Shown]:
    return passages


@dataclass(eq=False)
class HookAnswers:
    """Answers hooks.

    `on_project` is called with a project in which an agent works; `annotate` adds to passages what became of what they
    cite; `capture` begins to take in a transcript.
    """

    gate: Gate
    sessions: Sessions
    tokenizer: Tokenizer
    redact: Callable[[str], str]
    _: KW_ONLY
    is_enabled: bool = True
    silent_projects: Collection[str] = ()
    on_project: Callable[[Workspace], None] = lambda _project: None
    annotate: Callable[[Sequence[Shown], Workspace], Awaitable[Sequence[Shown]]] = _without_notes
    capture: Callable[[Call, Workspace], None] | None = None
    now: Callable[[], datetime] = utc_now

    def __post_init__(self) -> None:
        self._silent_projects = frozenset(self.silent_projects)

    async def answer(self, question: Mapping[str, Any], bound_s: float) -> HookReply:
        """Answer within the time budget, else with nothing. Raises: ValueError, TypeError, KeyError (no question)."""
        call = read_call(question)
        if not self.is_enabled or call.is_subagent or not call.session_id:
            return _SILENCE
        project = await asyncio.to_thread(workspace, call.cwd)
        if project is None or project.tag in self._silent_projects:
            return _SILENCE
        self.on_project(project)
        match call.event:
            case "session-start":
                source = "clear" if call.client in FORGETFUL else call.source
                await self.sessions.start(call.session_id, source)
                await self.sessions.record(self._printed(call, project))
            case "prompt" if call.prompt:
                return await self._said(call, project, "prompt", call.prompt, None, bound_s)
            case "action" if call.action is not None:
                path = None if call.action.path is None else _below(call.action.path, call.cwd, project.root)
                return await self._said(call, project, "action", call.action.text, path, bound_s)
            case "stop" | "compact":
                if call.event == "compact" and call.client not in ANNOUNCES_TOO_MUCH:
                    await self.sessions.start(call.session_id, "compact")
                if self.capture is not None and call.transcript is not None:
                    self.capture(call, project)
        return _SILENCE

    async def printed(self, reply: HookReply) -> None:
        await self.sessions.record([*reply.shown, *reply.withheld])

    async def lost(self, reply: HookReply) -> None:
        """Record a reply for which the hook did not wait: nothing of it was shown."""
        late = (replace(each, reason="the hook had ended", tokens=0) for each in reply.shown)
        await self.sessions.record([*late, *reply.withheld])

    async def _said(
        self,
        call: Call,
        project: Workspace,
        event: Literal["prompt", "action"],
        text: str,
        path: str | None,
        bound_s: float,
    ) -> HookReply:
        """What is said at a prompt, or before an action; about a file or a command once in a session."""
        subject = "" if event == "prompt" else self.redact(path or " ".join(text.split()))[:SUBJECT_CHARS]
        state = await self.sessions.state(call.session_id)
        if subject in state.subjects:
            return _SILENCE
        moment = Moment(
            event=event,
            text=text,
            project_tag=project.tag,
            session_id=call.session_id,
            agent=call.client,
            path=path,
            shown=state.chunk_ids,
            tokens_left=max(state.tokens_left - FRAME_TOKENS, 0),
        )
        try:
            async with asyncio.timeout(bound_s):
                verdict = _strong(await self.gate.decide(moment), state)
                verdict = replace(verdict, passages=tuple(await self.annotate(verdict.passages, project)))
        except TimeoutError:
            verdict = Verdict(reason="too late")
        return self._reply(call, project, subject, verdict, state)

    def _reply(self, call: Call, project: Workspace, subject: str, verdict: Verdict, state: SessionState) -> HookReply:
        block = framed(call.event, verdict.passages, self.tokenizer, state.tokens_left, now=self.now(), subject=subject)
        kept = len(block.tokens)
        record = Injection(
            self.now(), call.session_id, call.client, call.event, project.tag, subject, reason=verdict.reason
        )
        shown = tuple(
            replace(_of(record, passage), reason="", tokens=tokens)
            for passage, tokens in zip(verdict.passages, block.tokens, strict=False)
        )
        left_out = [replace(_of(record, passage), reason="no tokens left") for passage in verdict.passages[kept:]]
        withheld = [_held_back(record, each) for each in verdict.withheld[:MAX_WITHHELD]]
        return HookReply(block.text, shown, tuple(left_out + withheld) or (() if shown else (record,)))

    def _printed(self, call: Call, project: Workspace) -> list[Injection]:
        """What the hook said by itself, from the digest of the project."""
        passages: Sequence[Mapping[str, Any]] = () if call.printed is None else call.printed["passages"]
        return [
            Injection(
                *(call.at or self.now(), call.session_id, call.client, call.event, project.tag),
                document_id=str(each["document"]),
                chunk_ids=tuple(map(str, each["chunks"])),
                tokens=int(each["tokens"]),
            )
            for each in passages
        ]


def _strong(verdict: Verdict, state: SessionState) -> Verdict:
    """The verdict without what is too weak for what is left of the session's tokens."""
    weak = [each for each in verdict.passages if each.scores.relevance < state.least_relevance]
    if not weak:
        return verdict
    reason = "only the strongest are shown so late in a session"
    withheld = [Withheld(each.document_id, each.chunk_ids[-1], each.source, reason, each.scores) for each in weak]
    passages = tuple(each for each in verdict.passages if each not in weak)
    return Verdict(passages, (*withheld, *verdict.withheld), verdict.reason)


def _of(record: Injection, passage: Shown) -> Injection:
    return replace(
        record, document_id=passage.document_id, chunk_ids=passage.chunk_ids, scores=_numbers(passage.scores)
    )


def _held_back(record: Injection, each: Withheld) -> Injection:
    return replace(
        record,
        document_id=each.document_id,
        chunk_ids=(each.chunk_id,),
        reason=each.reason,
        scores=_numbers(each.scores),
    )


def _numbers(scores: Scores) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in asdict(scores).items() if value is not None}


def _below(path: str, cwd: Path, root: Path) -> str:
    """The path below the root of the project, as documents name it; outside of it as it is."""
    absolute = cwd / path
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else absolute.as_posix()
