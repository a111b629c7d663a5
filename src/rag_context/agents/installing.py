"""Installs into the files of clients, and takes it out again: each file changes whole or not at all.

A manifest in the user's data directory says what was written. With it a file becomes what it was, byte for byte, also
when people have changed other parts of it meanwhile; without it our own entries are found and removed.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from rag_context.agents.clients import CLIENTS, Client, PluginMark, Scope
from rag_context.agents.entries import Launch, Machine, files_of
from rag_context.agents.json_text import find, parse
from rag_context.agents.pieces import Piece
from rag_context.errors import ConfigurationError, InvalidInputError
from rag_context.whole_files import write_whole


@dataclass(frozen=True, slots=True)
class Edit:
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
    """What was done to a file: edits in their order, and the folders that were made for it.

    The last of `users` that is uninstalled takes it out; `is_ours`: there was no such file before.
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


MANIFEST: Final = "installed.json"
_PRIVATE, _SHARED = 0o600, 0o666


@dataclass(frozen=True, slots=True)
class FileChange:
    """What is to become of a file; `before` and `after` are None where there is none."""

    path: Path
    before: bytes | None
    after: bytes | None
    record: Record | None
    is_private: bool = True

    @property
    def is_needed(self) -> bool:
        return self.before != self.after


class State(StrEnum):
    NONE = "not installed"
    PART = "outdated"
    ALL = "installed"


@dataclass(frozen=True, slots=True)
class Installer:
    """Installs on a machine, for a project if there is one; the manifest is in the user's own `data_dir`."""

    machine: Machine
    data_dir: Path
    project: Path | None = None

    def is_found(self, client: Client) -> bool:
        path = self.machine.environment.get("PATH", "")
        programs = (Path(folder) / name for folder in path.split(os.pathsep) if folder for name in client.programs)
        names = ("", ".exe", ".cmd")
        return any(self.machine.path(place).is_dir() for place in client.folders) or any(
            program.with_name(program.name + end).is_file() for program in programs for end in names
        )

    def scopes(self, client: Client) -> list[Scope]:
        return [scope for scope in Scope if files_of(client, scope, self.machine, self.project, Launch())]

    def state(self, client: Client, scope: Scope, launch: Launch) -> State:
        """What is installed. Raises: ConfigurationError (a file cannot be read)."""
        missing = present = 0
        for path, pieces in self._files(client, scope, launch).items():
            text = _text(path, _read(path))
            for piece in pieces:
                with _located(path):
                    missing += next(piece.steps(text), None) is not None
                    present += piece.removed(text) != text
        return State.NONE if not present else State.PART if missing else State.ALL

    def plugin(self, client: Client) -> str | None:
        """What shows that the client has this program as a plug-in; None if nothing does."""
        mark = client.plugin
        if mark is None:
            return None
        path = self.machine.path(mark.place)
        if not mark.section:
            return str(path) if path.exists() else None
        try:
            return _plugin_in(path, mark)
        except (OSError, ValueError):
            return None

    def install(self, client: Client, scope: Scope, launch: Launch) -> list[FileChange]:
        """Write what is missing; returns what was changed.

        Raises: ConfigurationError (a file cannot be changed; none is, if that can be known before), InvalidInputError
        (no settings of this scope, or this program is there as a plug-in).
        """
        with self._manifest():
            changes = self.planned(client, scope, launch)
            for change in changes:
                self._write(change)
            return changes

    def uninstall(self, client: Client, scopes: Sequence[Scope]) -> list[FileChange]:
        """Remove what was written, in all projects that the manifest knows. Raises: ConfigurationError."""
        with self._manifest():
            changes = self.planned_removal(client, scopes)
            for change in changes:
                self._write(change)
            return changes

    def planned(self, client: Client, scope: Scope, launch: Launch) -> list[FileChange]:
        """What `install` would do. Raises: as `install`."""
        files = self._files(client, scope, launch)
        if not files:
            other = ", ".join(f"--scope {known}" for known in Scope if known != scope)
            raise InvalidInputError(f"{client.title} has no settings of this scope: use {other}")
        if (plugin := self.plugin(client)) is not None:
            raise InvalidInputError(
                f"{client.title} already has the plug-in of rag-context ({plugin}); with entries in its settings "
                "everything would run twice. Remove the plug-in first"
            )
        return [self._added(path, pieces, self._user(client, scope)) for path, pieces in files.items()]

    def planned_removal(self, client: Client, scopes: Sequence[Scope]) -> list[FileChange]:
        """What `uninstall` would do. Raises: ConfigurationError."""
        users = {
            user: None
            for record in self.records().values()
            for user in record.users
            if user.client == client.name and user.scope in scopes
        } | {self._user(client, scope): None for scope in scopes if scope is Scope.USER or self.project is not None}
        changes: dict[Path, FileChange] = {}
        for user in users:
            project = Path(user.project) if user.project is not None else None
            for path, pieces in files_of(client, user.scope, self.machine, project, Launch()).items():
                if path not in changes:
                    changes[path] = self._removed(path, pieces, user)
        return [change for change in changes.values() if change.is_needed or change.record is not None]

    def records(self) -> dict[str, Record]:
        """What the manifest says, by path. Raises: ConfigurationError (it is damaged)."""
        return read_manifest(self.data_dir / MANIFEST)

    def _user(self, client: Client, scope: Scope) -> User:
        is_project = scope is Scope.PROJECT and self.project is not None
        return User(client.name, scope, str(self.project) if is_project else None)

    def _files(self, client: Client, scope: Scope, launch: Launch) -> dict[Path, list[Piece]]:
        if scope is Scope.PROJECT and self.project is None:
            raise InvalidInputError("This folder belongs to no project: change to one, or use --scope user")
        return files_of(client, scope, self.machine, self.project, launch)

    def _added(self, path: Path, pieces: Sequence[Piece], user: User) -> FileChange:
        before = _read(path)
        text = _text(path, before)
        known = self.records().get(str(path))
        edits = known.edits if known is not None else ()
        for piece in pieces:
            with _located(path):
                for after in piece.steps(text):
                    edits = with_edit(edits, text, after)
                    text = after
        users = tuple({**dict.fromkeys(known.users if known is not None else ()), user: None})
        record = Record(
            str(path),
            users,
            edits,
            known.is_ours if known is not None and before is not None else before is None,
            known.folders if known is not None and before is not None else tuple(_missing_folders(path)),
        )
        return FileChange(path, before, text.encode(), record, is_private=user.scope is Scope.USER)

    def _removed(self, path: Path, pieces: Sequence[Piece], user: User) -> FileChange:
        before = _read(path)
        known = self.records().get(str(path))
        if known is not None:
            left = tuple(other for other in known.users if other != user)
            if left:
                same = user in known.users
                return FileChange(path, before, before, replace(known, users=left) if same else None)
        if before is None:
            return FileChange(path, None, None, replace(known, users=()) if known is not None else None)
        text = _text(path, before)
        after = undone(text, known.edits if known is not None else ())
        with _located(path):
            try:
                after = _all_removed(after, pieces)
            except (ValueError, TypeError):
                after = _all_removed(text, pieces)
        is_gone = (
            after != text and _holds_nothing(after) and (known.is_ours if known is not None else not after.strip())
        )
        record = replace(known, users=()) if known is not None else None
        return FileChange(path, before, None if is_gone else after.encode(), record)

    @contextmanager
    def _manifest(self) -> Iterator[None]:
        """Let no other process install meanwhile."""
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.data_dir, os.O_RDONLY) if os.name == "posix" else None
        except OSError as error:
            raise ConfigurationError(
                f"Cannot record in {self.data_dir} what is installed: {error.strerror}. Let this user write there"
            ) from error
        try:
            if descriptor is not None:
                import fcntl  # noqa: PLC0415  (only Unix has it)

                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)
            with suppress(OSError):  # it holds something
                self.data_dir.rmdir()

    def _write(self, change: FileChange) -> None:
        if change.is_needed:
            _replace_file(change)
        if change.record is None:
            return
        records = self.records()
        if change.record.users:
            records[change.record.path] = change.record
        else:
            for folder in change.record.folders if change.after is None else ():
                with suppress(OSError):  # something else is in it
                    Path(folder).rmdir()
            records.pop(change.record.path, None)
        path = self.data_dir / MANIFEST
        if records:
            manifest = {"version": 1, "files": [asdict(each) for each in records.values()]}
            _replace_file(FileChange(path, _read(path), json.dumps(manifest, indent=1).encode(), None))
        else:
            path.unlink(missing_ok=True)


def client_named(name: str) -> Client:
    """A client by its name. Raises: InvalidInputError (none is called so)."""
    try:
        return CLIENTS[name]
    except KeyError:
        raise InvalidInputError(f"No client {name!r} is known; known are {', '.join(CLIENTS)}") from None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"Cannot read {path}: {error.strerror}. Nothing was changed in it") from error


def _text(path: Path, content: bytes | None) -> str:
    try:
        return (content or b"").decode()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 (byte {error.start}): store it as UTF-8") from error


@contextmanager
def _located(path: Path) -> Iterator[None]:
    """Say of which file an error is. Raises: ConfigurationError."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ConfigurationError(f"Cannot change {path}: {error}. Correct it, then run this again") from error


def _all_removed(text: str, pieces: Sequence[Piece]) -> str:
    for piece in pieces:
        text = piece.removed(text)
    return text


def _holds_nothing(text: str) -> bool:
    if not text.strip("\ufeff \t\r\n"):
        return True
    try:
        return parse(text).value in ({}, {"version": 1}, {"version": 1, "hooks": {}})
    except ValueError:
        return False


def _missing_folders(path: Path) -> Iterator[str]:
    """The folders that are to be made for a file, the innermost first."""
    for folder in path.parents:
        if folder.exists():
            return
        yield str(folder)


def _plugin_in(path: Path, mark: PluginMark) -> str | None:
    if path.suffix == ".toml":
        import tomllib  # noqa: PLC0415

        table: Any = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        for key in mark.section:
            table = table.get(key, {}) if isinstance(table, dict) else {}
    else:
        node = find(parse(path.read_text(encoding="utf-8")), mark.section)
        table = node.value if node is not None else {}
    entries = table.items() if isinstance(table, dict) else ()
    for key, value in entries:
        is_on = value.get("enabled", True) if isinstance(value, dict) else bool(value)
        if str(key).startswith("rag-context@") and is_on:
            return f"{key} in {path}"
    return None


def _replace_file(change: FileChange) -> None:
    """Write a file, whole or not at all; a link stays one. Raises: ConfigurationError."""
    target = Path(os.path.realpath(change.path))
    try:
        if change.before is not None and not target.stat().st_mode & 0o222:
            raise PermissionError(0, "the file is read-only")
        if _read(target) != change.before:
            raise ConfigurationError(f"{change.path} was changed by another program meanwhile: run this again")
        if change.after is None:
            target.unlink()
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, change.after, _mode(change, target))
    except OSError as error:
        raise ConfigurationError(f"Cannot write {change.path}: {error.strerror}") from error


def _mode(change: FileChange, target: Path) -> int:
    if change.before is not None:
        return target.stat().st_mode & 0o7777
    if change.is_private:
        return _PRIVATE
    mask = os.umask(0)
    os.umask(mask)
    return _SHARED & ~mask
