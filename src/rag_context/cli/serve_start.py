"""What a process of `serve` starts with: the command makes it, and each process of a server reads it."""

from dataclasses import dataclass
from pathlib import Path

from rag_context.server.options import ServerOptions
from rag_context.server.supervisor import WorkerSlot
from rag_context.settings import Settings


@dataclass(frozen=True, slots=True)
class Start:
    """What a process of a server starts with; `roots` are files and folders to index and follow."""

    settings: Settings
    options: ServerOptions
    roots: tuple[Path, ...]
    is_reindexing: bool
    place: WorkerSlot | None = None
    """Which of several workers it is; None: it is alone."""

    @property
    def is_first(self) -> bool:
        """Whether this process does what only one process of a server may do."""
        return self.place is None or self.place.number == 1
