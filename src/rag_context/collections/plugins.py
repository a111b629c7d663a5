"""Finds and imports the providers of other distributions by their entry points."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TypeAlias

GROUP = "rag_context.providers"

_LONGEST = 300

EntryPoints: TypeAlias = Callable[[], Iterable[EntryPoint]]


@dataclass(frozen=True, slots=True)
class Plugin:
    """The object of an entry point, or the reason why it could not be imported."""

    name: str
    distribution: str
    value: object = None
    reason: str | None = None


def installed() -> Iterable[EntryPoint]:
    """The entry points of all installed distributions."""
    return entry_points(group=GROUP)


def load(found: EntryPoints = installed) -> list[Plugin]:
    """Import the entry points, sorted by name and distribution. A failed import is returned with its reason."""
    return sorted((_loaded(each) for each in found()), key=lambda plugin: (plugin.name, plugin.distribution))


def _loaded(entry: EntryPoint) -> Plugin:
    distribution = entry.dist.name if entry.dist is not None else "an unknown distribution"
    try:
        return Plugin(entry.name, distribution, entry.load())
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a plug-in may raise anything)
        return Plugin(entry.name, distribution, reason=f"It cannot be loaded: {sentence_of(error)}.")


def sentence_of(error: BaseException) -> str:
    """An error of a plug-in in one line: its type and the first line of its message."""
    message = str(error).strip().partition("\n")[0][:_LONGEST].rstrip(". ")
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
