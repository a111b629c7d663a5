"""Maps any name to a name that an engine allows, one to one."""

import re
import unicodedata
from hashlib import sha256

_PLAIN = re.compile(r"[a-z0-9]|[a-z0-9][a-z0-9_-]{0,98}[a-z0-9]")
_OTHER = re.compile(r"[^a-z0-9]+")

_READABLE = 40
"""Characters of a name that is kept beside its digest."""

_DIGITS = 32
"""Hexadecimal ones: 128 bits of SHA-256."""


def engine_name(prefix: str, name: str) -> str:
    """The name by which an engine knows a collection; `prefix` has no dot.

    Lower-case letters, digits, dots, dashes and underscores only, because some engines make folders of names on disks
    that ignore case. A name of only these is kept; any other keeps its readable part, before a
    digest of the whole name.
    """
    if _PLAIN.fullmatch(name):
        return f"{prefix}.{name}"
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    readable = _OTHER.sub("-", plain)[:_READABLE].strip("-") or "x"
    return f"{prefix}.{readable}.{sha256(name.encode()).hexdigest()[:_DIGITS]}"
