"""Reads a conversation from a client's records: the messages of the person and the model, and nothing else.

What differs between clients is declared in `transcripts`; this module reads any of them. Text that programs inject
into a person's message is recognised by its marks.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from types import MappingProxyType

from rag_context.files.formats.exchange import SUBAGENT as BY_AGENT
from rag_context.files.formats.exchange import Format, Ways
from rag_context.files.formats.json_stream import Fields, beginning, fields, lines, whole_elements, word
from rag_context.files.histories.conversation import Conversation, Message, joined, text_of, timestamp


class LeftOut(StrEnum):
    """Kinds of text that are left out; receipts count them by these names."""

    TOOL_CALL = "tool-call"
    TOOL_OUTPUT = "tool-output"
    REASONING = "reasoning-block"
    SYSTEM = "system-message"
    SUMMARY = "compaction-summary"
    COMMAND = "command-echo"
    CONTEXT = "injected-context"
    SUBAGENT = "subagent-message"
    NOTICE = "client-notice"
    PRIVATE = "private-span"
    REPETITION = "repetition"
    RECORD = "other-record"
    ATTACHMENT = "attachment"


_ROLES = {
    **dict.fromkeys(("system", "developer"), LeftOut.SYSTEM),
    **dict.fromkeys(("tool", "tool_result", "function"), LeftOut.TOOL_OUTPUT),
    "thinking": LeftOut.REASONING,
}
_MEMORIES = (
    "rag-context", "claude-mem-context", "supermemory-context", "hindsight_memories", "deja-recall",
    "relevant-memories", "relevant_memories", "memory-context",
)  # fmt: skip
INJECTED = {
    **dict.fromkeys((*_MEMORIES, "system-reminder", "system_reminder"), LeftOut.CONTEXT),
    "private": LeftOut.PRIVATE,
}
"""Tags of blocks that are left out whichever client wrote them. An index must not store its own answers."""

USER, ASSISTANT = "User", "Assistant"

MESSAGE_FIELDS = ("messages", "history", "requests")
"""Fields of an object that hold the messages of a conversation."""

_FOLDERS = ("cwd", "workspaceDirectory", "working_dir", "workspace_root", "directory")
_HEAD_BYTES = 1 << 16
"""The other fields of an object are read from so many bytes before its messages."""

_PARTS = {
    **dict.fromkeys(("thinking", "redacted_thinking", "reasoning"), LeftOut.REASONING),
    **dict.fromkeys(("tool_use", "server_tool_use", "toolRequest", "functionCall"), LeftOut.TOOL_CALL),
    **dict.fromkeys(("tool_result", "web_search_tool_result", "toolResponse", "functionResponse"), LeftOut.TOOL_OUTPUT),
    **dict.fromkeys(("image", "document", "input_image", "inlineData"), LeftOut.ATTACHMENT),
}
"""Parts of a message that are no text: of this `type`, or with a field of this name."""

_SPEAKERS = {"user": USER, "human": USER, "assistant": ASSISTANT, "model": ASSISTANT, "gemini": ASSISTANT}


@dataclass(frozen=True)
class Preface:
    """Injected text between two marks that are no tags. Without an `end` it goes on to the end of the message."""

    start: str
    end: str
    kind: str


@dataclass(frozen=True)
class Marks:
    """How a client marks what it injects: tags with kinds, text between other marks, tags around text that stays."""

    blocks: Mapping[str, str] = field(default_factory=dict)
    prefaces: Sequence[Preface] = ()
    unwrapped: Sequence[str] = ()

    @cached_property
    def _tag(self) -> re.Pattern[str]:
        names = "|".join(map(re.escape, (*self.blocks, *self.unwrapped)))
        return re.compile(rf"<(?P<slash>/?)(?P<name>{names})(?=[\s/>])[^<>]{{0,1000}}(?<!/)>" if names else r"(?!)")

    def words(self, text: str) -> tuple[str, set[str]]:
        """The text without its injected parts, and their kinds."""
        kinds: set[str] = set()
        for preface in self.prefaces:
            text = _without(text, preface, kinds)
        kept: list[str] = []
        # Where each tag is closed for the last time: a tag that is never closed behind a place is only mentioned there.
        last = {match["name"]: match.end() for match in self._tag.finditer(text) if match["slash"]}
        at, name, depth = 0, "", 0
        for match in self._tag.finditer(text):
            if name:
                if match["name"] != name:
                    continue
                depth += -1 if match["slash"] else 1
                if depth == 0 or match.end() == last[name]:  # the latter: an inner mention that is never closed
                    at, name, depth = match.end(), "", 0
            elif match["name"] in self.unwrapped:
                kept.append(text[at : match.start()])
                at = match.end()
            elif not match["slash"] and self._is_block(text, match, at, last):
                kept.append(text[at : match.start()])
                name, depth = match["name"], 1
                kinds.add(self.blocks[name])
        return "".join([*kept, text[at:]]).strip(), kinds

    def _is_block(self, text: str, match: re.Match[str], at: int, last: Mapping[str, int]) -> bool:
        """Whether a block begins here. A tag inside a sentence is only mentioned."""
        end = last.get(match["name"], -1)
        if end < match.start():
            return False
        before = text[max(at, text.rfind("\n", at, match.start()) + 1) : match.start()]
        return not before.strip() or self.blocks[match["name"]] == LeftOut.PRIVATE or not text[end : end + 1000].strip()


def inside(text: str, tags: Sequence[str]) -> str | None:
    """The content of the tag that a client wraps the person's text in; None without one."""
    for tag in tags:
        opening = re.search(rf"^[ \t]*<{tag}(?:\s[^<>]*)?>", text, re.MULTILINE)
        # The last one, because the person may mention the tag.
        end = text.rfind(f"</{tag}>")
        if opening is not None and end >= opening.end():
            return text[opening.end() : end].strip()
    return None


def left_out_role(role: str) -> str:
    """The kind of a message whose role is neither a person's nor a model's; empty for those."""
    return _ROLES.get(role.lower(), "")


def counted(left_out: Mapping[str, int]) -> str:
    """Counts of what was left out as people read them: `3 tool outputs, 1 compaction summary`."""
    return ", ".join(f"{count} {_plural(kind, count)}" for kind, count in sorted(left_out.items()) if count)


def _plural(kind: str, count: int) -> str:
    name = kind.replace("-", " ")
    if count == 1:
        return name
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}es" if name.endswith("o") else f"{name}s"


def _without(text: str, preface: Preface, kinds: set[str]) -> str:
    """The text without an injected stretch that it begins with, or that stands on lines of its own."""
    start = 0 if text.lstrip().startswith(preface.start) else text.find("\n" + preface.start)
    if start < 0:
        return text
    end = text.find(preface.end, start + len(preface.start)) if preface.end else len(text)
    if end < 0:
        return text
    kinds.add(preface.kind)
    return (text[:start] + "\n\n" + text[end + len(preface.end) :]).strip()


@dataclass(frozen=True, slots=True)
class Record:
    """The content of a record: the speaker, the texts, and counts of everything else."""

    speaker: str = ""
    texts: tuple[str, ...] = ()
    at: datetime | None = None
    id: str = ""
    """The message's id: a client that resumes a conversation may store the same message again."""
    left_out: Counter[str] = field(default_factory=Counter)


def other(kind: str, count: int = 1) -> Record:
    """A record without text of the person or the model."""
    return Record(left_out=Counter({kind: count}))


def parts(content: object) -> tuple[tuple[str, ...], Counter[str]]:
    """The texts in a message's content, and what else is in it."""
    left_out: Counter[str] = Counter()
    if isinstance(content, str):
        return (content,), left_out
    texts: list[str] = []
    for part in content if isinstance(content, list) else []:
        kind = _kind(part) if isinstance(part, dict) else ""
        if kind:
            left_out[kind] += 1
        else:
            texts.append(text_of(part))
    return tuple(filter(None, texts)), left_out


def _kind(part: Fields) -> str:
    if part.get("thought") is True:
        return LeftOut.REASONING
    found = _PARTS.get(word(part, "type")) or next((kind for name, kind in _PARTS.items() if name in part), "")
    # A part with a text is a text, whatever else it has; only reasoning has a text as well.
    return "" if isinstance(part.get("text"), str) and found != LeftOut.REASONING else found


def record_by(role: str, content: object, at: object, id_: str = "") -> Record:
    """A message of a role that most clients know."""
    if role not in _SPEAKERS:
        return other(left_out_role(role) or LeftOut.RECORD)
    texts, left_out = parts(content)
    return Record(_SPEAKERS[role], texts, timestamp(at), id_, left_out)


def injecting(
    *contexts: str, prefaces: Sequence[Preface] = (), blocks: Mapping[str, str] = MappingProxyType({})
) -> Marks:
    """The marks of a client that injects what most do, and these: names of tags around contexts, and other blocks."""
    return Marks({**INJECTED, **blocks, **dict.fromkeys(contexts, LeftOut.CONTEXT)}, prefaces)


_UNMARKED, _USUAL = Marks(), injecting()


@dataclass(frozen=True, slots=True)
class Client:
    """How one client writes conversations down.

    Args:
        format: its name.
        is_own: whether a record, or the beginning of a file that is one object, is of this client.
        record: reads the content of a record.
        session: fields that name the conversation, read from each record.
        title: fields with its title.
        user: how text is marked that is injected into the person's messages.
        model: how text is marked that is not the model's answer.
        replay: puts records in their final state, where later ones change earlier ones.
        header: where session and title stand in a record.
        files: names of files that only this client writes.
        driver: who talked to the model, as the first record says that says so.
    """

    format: Format
    is_own: Callable[[Fields], bool]
    record: Callable[[Fields], Iterable[Record]]
    session: tuple[str, ...] = ("sessionId",)
    title: tuple[str, ...] = ()
    user: Marks = _USUAL
    model: Marks = _UNMARKED
    replay: Callable[[Iterable[Fields]], Iterable[Fields]] = iter
    header: Callable[[Fields], Fields] = lambda record: record
    files: tuple[str, ...] = ()
    driver: Callable[[Fields], str] = lambda _: ""


def read(client: Client, data: bytes, name: str, ways: Ways) -> Conversation:
    """The conversation in a file; `name` is its id if it has none, or a sub-agent's. Raises: BrokenOffError."""
    session, title, seen = "", "", set[tuple[str, tuple[str, ...]]]()
    folder, remote, driver = "", "", ""
    messages: list[Message] = []
    keys: list[str] = []
    left_out: Counter[str] = Counter()
    for written in client.replay(_records(data)):
        session = word(client.header(written), *client.session) or session
        title = word(client.header(written), *client.title) or title
        header = client.header(written)
        # The first folder counts, because a model may change it.
        folder = folder or word(header, *_FOLDERS) or word(fields(header.get("context")), *_FOLDERS)
        remote = remote or word(fields(client.header(written).get("git")), "repository_url")
        driver = driver or client.driver(written)
        if driver == BY_AGENT and driver in (ways.drivers or ()):
            written = {key: value for key, value in written.items() if key not in ("isSidechain", "kind")}
        for record in client.record(written):
            if record.id and (record.id, record.texts) in seen:
                left_out[LeftOut.REPETITION] += 1
                continue
            seen.add((record.id, record.texts))
            left_out.update(record.left_out)
            text, kinds = _words(client, record)
            left_out.update(kinds)
            if text:
                messages.append(Message(record.speaker, text, record.at))
                keys.append(_key(record, text))
    repeated = frozenset(ways.repeated)
    left_out[LeftOut.REPETITION] += len(repeated)
    # `+` drops counts of 0.
    return Conversation(
        name if driver == BY_AGENT else session or name,
        title,
        joined(message for number, message in enumerate(messages) if number not in repeated),
        left_out=+left_out,
        folder=folder,
        remote=remote,
        driver=driver,
        keys=keys,
    )


def _key(record: Record, text: str) -> str:
    # With the text: servers of models have given all their answers one id.
    named = f"{record.id}\0{record.speaker}\0{text}".encode("utf-8", "surrogatepass")
    return blake2b(named, digest_size=16).hexdigest() if record.id else ""


def _words(client: Client, record: Record) -> tuple[str, set[str]]:
    marks = client.user if record.speaker == USER else client.model
    found = [marks.words(text) for text in record.texts]
    return "\n\n".join(text for text, _ in found if text), set().union(*(kinds for _, kinds in found))


def _records(data: bytes) -> Iterator[Fields]:
    """The lines of a file; of one that is an object, its other fields and then its messages."""
    start = data[:_HEAD_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"["):
        return whole_elements(data)
    # The messages may be many megabytes; the fields before them are read from the beginning alone.
    head = fields(beginning(start.decode("utf-8", "replace")))
    if not any(isinstance(head.get(key), list) for key in MESSAGE_FIELDS):
        return lines(data)
    return chain([{key: value for key, value in head.items() if key not in MESSAGE_FIELDS}], whole_elements(data))
