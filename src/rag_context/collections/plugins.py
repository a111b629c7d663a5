"""Providers that other distributions bring along, found by their entry points."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TypeAlias

GROUP = "rag_context.providers"

_LONGEST = 300

EntryPoints: TypeAlias = Callable[[], Iterable[EntryPoint]]


@dataclass(frozen=True, slots=True)
class Plugin:
    """What an entry point leads to; where it leads nowhere, the reason in its place."""

    name: str
    distribution: str
    value: object = None
    reason: str | None = None


def installed() -> Iterable[EntryPoint]:
    """The entry points of all distributions that are installed."""
    return entry_points(group=GROUP)


def load(found: EntryPoints = installed) -> list[Plugin]:
    """Import what is behind the entry points, by name and distribution. Whatever fails is said, and harms nobody."""
    return sorted((_loaded(each) for each in found()), key=lambda plugin: (plugin.name, plugin.distribution))


def _loaded(entry: EntryPoint) -> Plugin:
    distribution = entry.dist.name if entry.dist is not None else "an unknown distribution"
    try:
        return Plugin(entry.name, distribution, entry.load())
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a stranger's module may do anything)
        return Plugin(entry.name, distribution, reason=f"It cannot be loaded: {sentence_of(error)}.")


def sentence_of(error: BaseException) -> str:
    """A stranger's error in one line: its kind and the first line of what it says."""
    said = str(error).strip().partition("\n")[0][:_LONGEST].rstrip(". ")
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
