"""Exports of chat programs, each conversation as a `Conversation`."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from rag_context.domain.provenance import role_name
from rag_context.files.formats.json_stream import BrokenOffError, Fields, fields, lines, objects, whole_elements, word
from rag_context.files.histories import conversation as conversations
from rag_context.files.histories.client_records import LeftOut, left_out_role
from rag_context.files.histories.conversation import Conversation, Message, text_of, timestamp

_SHOWN_CONTENT = ("text", "multimodal_text", "code")
_CONTENT = {
    "thoughts": LeftOut.REASONING,
    "reasoning_recap": LeftOut.REASONING,
    "user_editable_context": LeftOut.CONTEXT,
}


def chatgpt(data: bytes) -> Iterator[Conversation]:
    """The conversations of an export, each along the branch that was open last. Raises: BrokenOffError, as `claude`."""
    for number, conversation in enumerate(whole_elements(data), 1):
        id_ = word(conversation, "conversation_id", "id") or f"conversation-{number}"
        mapping = conversation.get("mapping")
        nodes = mapping if isinstance(mapping, dict) else {}
        left_out: Counter[str] = Counter()
        messages: list[Message] = []
        for node in _branch(nodes, conversation.get("current_node")):
            found = _chatgpt_message(fields(node.get("message")))
            if isinstance(found, Message):
                messages.append(found)
            elif found:
                left_out[found] += 1
        yield Conversation(id_, word(conversation, "title"), messages, part=id_, left_out=left_out)


def _branch(nodes: Mapping[str, object], last: object) -> list[Fields]:
    """The nodes from the root to `last`; where that is not known, to the newest message."""
    if not isinstance(last, str) or last not in nodes:
        written = {key: conversations.time_of(fields(fields(node).get("message"))) for key, node in nodes.items()}
        last = max((key for key in written if written[key]), key=lambda key: str(written[key]), default=None)
    path: list[Fields] = []
    seen: set[str] = set()
    # `seen`, because parents may form a circle in a damaged file.
    while isinstance(last, str) and last in nodes and last not in seen:
        seen.add(last)
        path.append(fields(nodes[last]))
        last = path[-1].get("parent")
    return path[::-1]


def _chatgpt_message(message: Fields) -> Message | str:
    """The message of a node, or its kind if it has none; empty for the root of a conversation."""
    author, content = fields(message.get("author")), fields(message.get("content"))
    role = word(author, "role")
    hidden = fields(message.get("metadata")).get("is_visually_hidden_from_conversation")
    if role not in ("user", "assistant"):
        return left_out_role(role) if role else ""
    if hidden or content.get("content_type") not in _SHOWN_CONTENT:
        return _CONTENT.get(word(content, "content_type"), LeftOut.RECORD)
    if word(message, "recipient") not in ("", "all"):
        return LeftOut.TOOL_CALL
    text = text_of(content.get("parts")) or text_of(content.get("text"))
    return Message(word(author, "name") or role_name(role), text, timestamp(message.get("create_time")))


def claude(data: bytes) -> Iterator[Conversation]:
    """Conversations with the texts that were attached. Raises: BrokenOffError (those before it are complete)."""
    for number, conversation in enumerate(whole_elements(data), 1):
        id_ = word(conversation, "uuid") or f"conversation-{number}"
        messages = [_claude_message(message) for message in objects(conversation.get("chat_messages"))]
        yield Conversation(id_, word(conversation, "name"), messages, part=id_)


def _claude_message(message: Fields) -> Message:
    attached = [word(file, "extracted_content") for file in objects(message.get("attachments"))]
    text = text_of(message.get("content")) or word(message, "text")
    # Marked, because what is attached is not what the person says.
    text = "\n\n".join(filter(None, [text, *(f"<attachment>\n{each}\n</attachment>" for each in attached if each)]))
    return Message(role_name(word(message, "sender") or "assistant"), text, timestamp(message.get("created_at")))


def slack(data: bytes, channel: str, names: Mapping[str, str]) -> Conversation:
    """One day of a channel, each reply behind its thread's message; `names` by user id. Raises: BrokenOffError."""
    found = [item for item in whole_elements(data) if item.get("type") == "message"]
    found.sort(key=lambda item: (_number(item, "thread_ts") or _number(item, "ts"), _number(item, "ts")))
    return Conversation(channel, "", [_slack_message(item, names) for item in found])


def _slack_message(item: Fields, names: Mapping[str, str]) -> Message:
    profile, user = fields(item.get("user_profile")), word(item, "user")
    speaker = word(profile, "display_name", "real_name", "name") or names.get(user) or word(item, "username")
    text = word(item, "text")
    for id_, name in names.items():
        if id_ in text:
            text = text.replace(f"<@{id_}>", f"@{name}")
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return Message(speaker or user or "Bot", text, timestamp(item.get("ts")))


def slack_names(data: bytes) -> dict[str, str]:
    """The names in an export's `users.json` by user id, as far as it exists and is complete."""
    found = {}
    with suppress(BrokenOffError):
        for user in lines_or_elements(data):
            name = word(fields(user.get("profile")), "display_name", "real_name") or word(user, "real_name", "name")
            if (id_ := word(user, "id")) and name:
                found[id_] = name
    return found


def transcript(data: bytes, name: str) -> Iterator[Conversation]:
    """The conversations of a transcript: of all messages, or of each item that has some. Raises: BrokenOffError."""
    messages: list[Message] = []
    left_out: Counter[str] = Counter()
    # One item ahead: a conversation that is alone in its file is named after the file, and has no part.
    items = lines_or_elements(data)
    item, number = next(items, None), 1
    while item is not None:
        following = next(items, None)
        if (message := conversations.message_of(item)) is not None:
            messages += _spoken([message], left_out)
        elif (inner := conversations.messages_of(item)) is not None:
            is_alone = number == 1 and following is None
            id_ = word(item, "id", "conversation_id", "session_id") or (name if is_alone else f"{name}-{number}")
            others: Counter[str] = Counter()
            found = _spoken(filter(None, map(conversations.message_of, inner)), others)
            yield Conversation(id_, word(item, "title", "name"), found, part="" if is_alone else id_, left_out=others)
        item, number = following, number + 1
    if messages or left_out:
        yield Conversation(name, "", messages, left_out=left_out)


def _spoken(messages: Iterable[Message], left_out: Counter[str]) -> list[Message]:
    """The messages of people and models; those of programs are counted."""
    found = []
    for message in messages:
        if kind := left_out_role(message.speaker):
            left_out[kind] += 1
        else:
            found.append(message)
    return found


def aider(data: bytes, name: str) -> Iterator[Conversation]:
    """The conversations of Aider's history, Markdown: what follows `#### ` is the person's, and after `> ` a tool's."""
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    starts = [*_AIDER_START.finditer(text)]
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        at = timestamp(start["at"])
        id_ = hashlib.blake2b(f"{name}\n{start['at']}".encode(), digest_size=8).hexdigest()
        body = text[start.end() : following.start() if following else None]
        messages, outputs = _aider_messages(body)
        first = [Message(each.speaker, each.text, at) for each in messages[:1]]
        # Its command line may hold keys: it is a line of the tool's, as all that begins with `> `.
        yield Conversation(id_, "", [*first, *messages[1:]], part=id_, left_out={LeftOut.TOOL_OUTPUT: outputs})


_AIDER_START = re.compile(r"^# aider chat started at (?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[ \t]*$", re.MULTILINE)


def _aider_messages(body: str) -> tuple[list[Message], int]:
    said: list[tuple[str, list[str]]] = []
    outputs, fence = 0, False
    for line in body.split("\n"):
        is_user = not fence and line.startswith("####")
        if not fence and not is_user and line.startswith(">"):
            outputs += 1
            continue
        fence ^= not is_user and line.startswith("```")
        speaker = "User" if is_user else "Assistant"
        if not said or said[-1][0] != speaker:
            said.append((speaker, []))
        said[-1][1].append((line[4:].strip() if is_user else line).rstrip())
    return [Message(speaker, text) for speaker, lines_ in said if (text := "\n".join(lines_).strip())], outputs


def lines_or_elements(data: bytes) -> Iterator[Fields]:
    """The objects of a file: of its array, its lines, or itself. Raises: BrokenOffError (an array without its end)."""
    if not data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return whole_elements(data)
    try:
        # As one value first: the lines of an object that is written over several lines are no objects.
        return iter([fields(json.loads(data))])
    except (ValueError, RecursionError):
        first = data.split(b"\n", 1)[0]
        return lines(data) if next(lines(first), None) is not None else whole_elements(data)


def _number(item: Fields, key: str) -> float:
    try:
        return float(str(item.get(key)))
    except ValueError:
        return 0.0
