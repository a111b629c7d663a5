"""What chunks hold: their terms, kept in memory once read.

A chunk's id is computed from its text and context, so what it holds never changes.
"""

import json
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from itertools import islice

REMEMBERED_CHUNKS = 20_000
"""Chunks in memory, of about a kilobyte each."""

Held = tuple[int, str]
"""How many terms a chunk has, and the terms, each between two spaces of its own."""

# One row instead of many: the interpreter's lock changes hands once.
_HELD = """
SELECT json_group_array(json_array(c.id, c.length, p.terms))
FROM json_each(?) AS asked
CROSS JOIN chunks AS c ON c.id = asked.value
CROSS JOIN passages AS p ON p.chunk = c.key
"""


class HeldTerms:
    """The terms of the chunks read last. Safe to use from several threads.

    A plain dictionary that forgets what it read first: it is asked for a hundred chunks by every search.
    """

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._lock = threading.Lock()

    def remembered(self, chunk_ids: Sequence[str]) -> dict[str, Held]:
        """Those that need no reading."""
        return {id_: held for id_ in chunk_ids if (held := self._held.get(id_)) is not None}

    def of(self, chunk_ids: Sequence[str], connection: sqlite3.Connection) -> Mapping[str, Held]:
        """What the chunks hold, by id; unknown chunks are left out."""
        found = self.remembered(chunk_ids)
        missing = [id_ for id_ in chunk_ids if id_ not in found]
        if missing:
            rows = json.loads(connection.execute(_HELD, (json.dumps(missing),)).fetchone()[0])
            read = {id_: (length, held) for id_, length, held in rows}
            with self._lock:
                self._held.update(read)
                for id_ in list(islice(self._held, max(len(self._held) - REMEMBERED_CHUNKS, 0))):
                    del self._held[id_]
            found.update(read)
        return found
