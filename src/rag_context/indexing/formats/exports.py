"""Exported talks of chat programs, each conversation as a `Talk`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter

from rag_context.indexing.formats.json_stream import BrokenOffError, Fields, lines, whole_elements
from rag_context.indexing.formats.talk import Talk
from rag_context.indexing.formats.turn import Turn, moment, role_name, talk_of, text_of, time_of, turn_of

_SHOWN_CONTENT = ("text", "multimodal_text", "code")


def chatgpt(data: bytes) -> Iterator[Talk]:
    """The conversations of `conversations.json`, each along the branch that was open last.

    Raises:
        BrokenOffError: the file ends before its array does; the conversations so far were whole.
    """
    for number, conversation in enumerate(whole_elements(data), 1):
        id_ = _word(conversation, "conversation_id", "id") or f"conversation-{number}"
        mapping = conversation.get("mapping")
        nodes = mapping if isinstance(mapping, dict) else {}
        messages = [_fields(node.get("message")) for node in _branch(nodes, conversation.get("current_node"))]
        yield Talk(id_, _word(conversation, "title"), list(filter(None, map(_chatgpt_turn, messages))), part=id_)


def _branch(nodes: Mapping[str, object], last: object) -> list[Fields]:
    """The nodes from the root to `last`; where that is not known, to the newest message."""
    if not isinstance(last, str) or last not in nodes:
        written = {key: time_of(_fields(_fields(node).get("message"))) for key, node in nodes.items()}
        last = max((key for key in written if written[key]), key=lambda key: str(written[key]), default=None)
    path: list[Fields] = []
    seen: set[str] = set()
    while isinstance(last, str) and last in nodes and last not in seen:
        seen.add(last)
        path.append(_fields(nodes[last]))
        last = path[-1].get("parent")
    return path[::-1]


def _chatgpt_turn(message: Fields) -> Turn | None:
    author, content = _fields(message.get("author")), _fields(message.get("content"))
    role = _word(author, "role")
    hidden = _fields(message.get("metadata")).get("is_visually_hidden_from_conversation")
    if role not in ("user", "assistant") or hidden or content.get("content_type") not in _SHOWN_CONTENT:
        return None
    text = text_of(content.get("parts")) or text_of(content.get("text"))
    return Turn(_word(author, "name") or role_name(role), text, moment(message.get("create_time")))


def claude(data: bytes) -> Iterator[Talk]:
    """The conversations of `conversations.json`, with the texts that were attached to their messages.

    Raises:
        BrokenOffError: the file ends before its array does; the conversations so far were whole.
    """
    for number, conversation in enumerate(whole_elements(data), 1):
        id_ = _word(conversation, "uuid") or f"conversation-{number}"
        turns = [_claude_turn(message) for message in _list(conversation.get("chat_messages"))]
        yield Talk(id_, _word(conversation, "name"), turns, part=id_)


def _claude_turn(message: Fields) -> Turn:
    attached = [_word(file, "extracted_content") for file in _list(message.get("attachments"))]
    text = text_of(message.get("content")) or _word(message, "text")
    said = "\n\n".join(filter(None, [text, *attached]))
    return Turn(role_name(_word(message, "sender") or "assistant"), said, moment(message.get("created_at")))


def claude_code(data: bytes, name: str) -> Talk:
    """What was said in a session of Claude Code; what tools were called with and answered is left out."""
    title, session, turns = "", name, []
    for line in lines(data):
        session = _word(line, "sessionId") or session
        title = _word(line, "summary") if line.get("type") == "summary" else title
        message = _fields(line.get("message"))
        if line.get("type") in ("user", "assistant") and not line.get("isMeta") and not line.get("isSidechain"):
            speaker = role_name(_word(message, "role") or str(line["type"]))
            turns.append(Turn(speaker, text_of(message.get("content")), moment(line.get("timestamp"))))
    return Talk(session, title, _joined(turns))


def codex(data: bytes, name: str) -> Talk:
    """What was said in a session of Codex; what tools were called with and answered is left out."""
    session, turns = name, []
    for line in lines(data):
        payload = _fields(line["payload"]) if "payload" in line else line
        if line.get("type") == "session_meta":
            session = _word(payload, "id") or session
        elif payload.get("type") == "message" and payload.get("role") in ("user", "assistant"):
            at = moment(line.get("timestamp"))
            turns.append(Turn(role_name(_word(payload, "role")), text_of(payload.get("content")), at))
    return Talk(session, "", _joined(turns))


def slack(data: bytes, channel: str, names: Mapping[str, str]) -> Talk:
    """One day of a channel, each answer in a thread behind what it answers; `names` are those of user ids.

    Raises:
        BrokenOffError: the file ends before its array does.
    """
    found = [item for item in whole_elements(data) if item.get("type") == "message"]
    found.sort(key=lambda item: (_number(item, "thread_ts") or _number(item, "ts"), _number(item, "ts")))
    return Talk(channel, "", [_slack_turn(item, names) for item in found])


def _slack_turn(item: Fields, names: Mapping[str, str]) -> Turn:
    profile, user = _fields(item.get("user_profile")), _word(item, "user")
    speaker = _word(profile, "display_name", "real_name", "name") or names.get(user) or _word(item, "username")
    text = _word(item, "text")
    for id_, name in names.items():
        if id_ in text:
            text = text.replace(f"<@{id_}>", f"@{name}")
    text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return Turn(speaker or user or "Bot", text, moment(item.get("ts")))


def slack_names(data: bytes) -> dict[str, str]:
    """The names in an export's `users.json` by user id, as far as it is there and whole."""
    found = {}
    with suppress(BrokenOffError):
        for user in lines_or_elements(data):
            name = _word(_fields(user.get("profile")), "display_name", "real_name") or _word(user, "real_name", "name")
            if (id_ := _word(user, "id")) and name:
                found[id_] = name
    return found


def transcript(data: bytes, name: str) -> Iterator[Talk]:
    """The talks of a transcript: one of all its turns, or one of each item that holds turns itself.

    Raises:
        BrokenOffError: the file ends before its array does; what was read so far was whole.
    """
    turns: list[Turn] = []
    items = lines_or_elements(data)
    item, number = next(items, None), 1
    while item is not None:
        following = next(items, None)
        if (turn := turn_of(item)) is not None:
            turns.append(turn)
        elif (inner := talk_of(item)) is not None:
            is_alone = number == 1 and following is None
            id_ = _word(item, "id", "conversation_id", "session_id") or (name if is_alone else f"{name}-{number}")
            found = [turn for turn in map(turn_of, inner) if turn is not None]
            yield Talk(id_, _word(item, "title", "name"), found, part="" if is_alone else id_)
        item, number = following, number + 1
    if turns:
        yield Talk(name, "", turns)


def lines_or_elements(data: bytes) -> Iterator[Fields]:
    """The objects of a file: of its array, its lines, or itself. Raises: BrokenOffError (an array without its end)."""
    if not data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return whole_elements(data)
    try:
        return iter([_fields(json.loads(data))])
    except (ValueError, RecursionError):
        first = data.split(b"\n", 1)[0]
        return lines(data) if next(lines(first), None) is not None else whole_elements(data)


def _joined(turns: Iterable[Turn]) -> list[Turn]:
    """Turns with a text; those that a program wrote down in pieces, one after the other, as one."""
    joined: list[Turn] = []
    for turn in filter(attrgetter("text"), turns):
        if joined and joined[-1].speaker == turn.speaker:
            last = joined.pop()
            turn = Turn(turn.speaker, f"{last.text}\n\n{turn.text}", last.at)
        joined.append(turn)
    return joined


def _fields(said: object) -> Fields:
    return said if isinstance(said, dict) else {}


def _list(said: object) -> list[Fields]:
    return [item for item in said if isinstance(item, dict)] if isinstance(said, Sequence) else []


def _word(item: Fields, *keys: str) -> str:
    return next((said for key in keys if isinstance(said := item.get(key), str) and said), "")


def _number(item: Fields, key: str) -> float:
    try:
        return float(str(item.get(key)))
    except ValueError:
        return 0.0
