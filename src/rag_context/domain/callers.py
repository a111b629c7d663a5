"""Who makes a call."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallerId:
    """The identity of a caller, as the server knows it.

    Args:
        session: an MCP session or a stdio process, verified to be the caller's; None without one.
        key: name of the API key; None if the server needs none.
    """

    session: str | None = None
    key: str | None = None


ANONYMOUS = CallerId()
"""A caller without a session and without a key."""
