"""What was written into the files of clients, so that it can be taken out again, also when these have changed since."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rag_context.agents.clients import Scope
from rag_context.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of a file: `old` became `new`."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class User:
    """For which client, in which scope and project, a file was changed."""

    client: str
    scope: Scope
    project: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """What was done to a file.

    Attributes:
        path: of the file, as the client knows it.
        users: those for whom; the last one that is uninstalled takes it out.
        edits: in their order.
        is_ours: there was no such file before.
        folders: those that were made for it.
    """

    path: str
    users: tuple[User, ...]
    edits: tuple[Edit, ...] = ()
    is_ours: bool = False
    folders: tuple[str, ...] = ()


def read_manifest(path: Path) -> dict[str, Record]:
    """What a manifest says, by the path of each file. Raises: ConfigurationError (it is damaged)."""
    try:
        content = json.loads(path.read_bytes())
        return {entry["path"]: _record(entry) for entry in content["files"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error}): move it away; uninstalling then removes entries by their programs"
        ) from error


def as_manifest(records: Iterable[Record]) -> str:
    """The text of a manifest."""
    return json.dumps({"version": 1, "files": [asdict(each) for each in records]}, indent=1)


def _record(entry: Any) -> Record:
    users = tuple(User(each["client"], Scope(each["scope"]), each["project"]) for each in entry["users"])
    edits = tuple(Edit(each["old"], each["new"]) for each in entry["edits"])
    return Record(entry["path"], users, edits, bool(entry["is_ours"]), tuple(entry["folders"]))


def with_edit(edits: tuple[Edit, ...], before: str, after: str) -> tuple[Edit, ...]:
    """The edits with one more; one within what we have written changes the record of that instead."""
    start = _same(before, after)
    end = min(_same(before[::-1], after[::-1]), len(before) - start, len(after) - start)
    for index, edit in enumerate(edits):
        place = before.find(edit.new)
        if edit.new and place >= 0 and place <= start and len(before) - end <= place + len(edit.new):
            grown = after[place : place + len(edit.new) + len(after) - len(before)]
            return (*edits[:index], replace(edit, new=grown), *edits[index + 1 :])
    return (*edits, Edit(before[start : len(before) - end], after[start : len(after) - end]))


def _same(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def undone(text: str, edits: Sequence[Edit]) -> str:
    """The text without the edits, as far as they are found in it."""
    for edit in reversed(edits):
        if edit.new and text.count(edit.new) == 1:
            text = text.replace(edit.new, edit.old)
    return text
