"""Who said something: speakers by the names that all sources share, and the roles among them. And what users ask for
once and for all: standing instructions such as "always answer in metric units".
"""

import re

from rag_context.domain.documents import CHAT, Chunk

USER = "User"

_ROLES = {
    "user": USER,
    "human": USER,
    "prompter": USER,
    "assistant": "Assistant",
    "ai": "Assistant",
    "bot": "Assistant",
    "gpt": "Assistant",
    "model": "Assistant",
    "chatgpt": "Assistant",
    "system": "System",
    "developer": "System",
    "tool": "Tool",
    "function": "Tool",
}

_NAMES = frozenset(_ROLES.values())

SPEAKER_FIELDS = ("speaker", "role")
"""The metadata of a single message that name who said it."""


def role_name(speaker: str) -> str:
    """A speaker as people read it: `human` and `user` are the same."""
    return _ROLES.get(speaker.lower(), speaker)


def is_role(speaker: str) -> bool:
    """Whether a speaker, as `role_name` writes it, is a role and no person."""
    return speaker in _NAMES


# Linear on any text: every repeat is possessive or bounded, and starts where no other one of its kind can.
_INSTRUCTION = re.compile(
    # The beginning of a line, of a sentence, or of a message behind its speaker; then the mark of a list.
    r"(?:^[^\S\n]*+|[.!?:;>*\]][\"”)]?\s++)(?:[-*+•]\s++|\d{1,3}[.)]\s++)?+"
    r"(?:(?:please|and|also|but|so|ok|okay|oh),?\s++)?+"
    r"(?:(?:always|never)\b(?!\W{1,4}(?:mind|been|had|heard|seen|knew|thought|said|wanted|liked|loved|used|tried)\b)"
    r"|(?:from now on|in (?:the )?future|whenever|every ?time|remember to|when I ask)\b)"
    r"(?![^.!?\n]{0,300}\?)",  # a question is no instruction
    re.IGNORECASE | re.MULTILINE,
)


def is_standing(chunk: Chunk, content_type: str) -> bool:
    """Whether a chunk of a document of this type holds a standing instruction.

    Only conversations do, and of those between a user and an assistant what the user says.
    """
    by_other_role = chunk.speaker is not None and chunk.speaker != USER and is_role(chunk.speaker)
    return content_type == CHAT and not by_other_role and _INSTRUCTION.search(chunk.text) is not None
