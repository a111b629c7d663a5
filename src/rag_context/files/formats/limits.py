"""How much a conversion may use."""

from dataclasses import dataclass

MAX_FILE_BYTES = 64 << 20
"""Size above which a file is not converted, unless the caller says otherwise."""

MAX_CHARS = 2_000_000
"""Longest text of one document; a longer talk comes in several parts, any other document is refused."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one conversion.

    `cpu_s` is computing time, so that a busy machine changes no outcome; `wall_s` ends what waits instead.
    Memory is address space; where a platform cannot bound it (macOS, Windows), the size of what is unpacked still is.
    """

    cpu_s: int = 30
    wall_s: float = 180.0
    memory_bytes: int = 1 << 30
    unpacked_bytes: int = 256 << 20
