"""Who said something: speakers by the names that all sources share, and the roles among them."""

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
