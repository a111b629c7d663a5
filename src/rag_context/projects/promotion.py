"""Writes a promotion level to the front matter of a file; every other byte stays unchanged.

The file is the source of truth, so it is written first, atomically. If the process is killed before the index is
written, the next synchronisation completes the change; if the index fails, the file is restored.
"""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from rag_context.errors import FieldError
from rag_context.files.descriptors import Folder, open_folder
from rag_context.ingest.chunking.prose import front_matter
from rag_context.projects.front_matter import MAX_FRONT_MATTER_CHARS, read_front_matter
from rag_context.projects.records import FileSystemError, PromotionLevel, SchemaValidationError

KEY = "promotion_level"

_MARK = "\ufeff"
_OPENING = re.compile(r"\ufeff?---[ \t]*+(?P<end>\r?\n)")
_LINE_END = re.compile(r"\r?\n")


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A replaced file, with its content before and after."""

    path: Path
    before: bytes
    after: bytes

    @property
    def previous(self) -> PromotionLevel:
        """The level that the file had before."""
        return read_front_matter(self.before.decode()).promotion_level

    def undo(self) -> None:
        """Restore the file, unless it was changed since. Raises: FileSystemError."""
        with _mapped(self.path), open_folder(self.path.parent) as folder:
            if _content(folder, self.path.name) == self.after:
                _replace(folder, self.path.name, self.before)


def rewrite(path: Path, level: PromotionLevel) -> Rewrite:
    """Write a promotion level into a file, atomically; its mode and owner stay.

    All steps use one open folder, so that replacing the folder by a link meanwhile has no effect.

    Raises:
        FileSystemError: the file cannot be read or written; nothing has changed.
        SchemaValidationError: it is not UTF-8, or its front matter is not YAML with one value to change.
    """
    with _mapped(path), open_folder(path.parent) as folder:
        before = _content(folder, path.name)
        try:
            text = before.decode()
        except UnicodeDecodeError as error:
            raise _unusable(f"{path.name!r} is not valid UTF-8") from error
        after = promoted(text, level).encode()
        if after != before:
            if _content(folder, path.name) != before:
                raise FileSystemError(f"Another program is changing {path.name!r}: try again")
            _replace(folder, path.name, after)
        return Rewrite(path, before, after)


def promoted(text: str, level: PromotionLevel) -> str:
    """The text with this promotion level in its front matter, which is added if there is none.

    Raises:
        SchemaValidationError: the front matter is not YAML with one value to change.
    """
    if read_front_matter(text).promotion_level is level and not read_front_matter(text).warnings:
        return text
    start, end = front_matter(text)
    changed = _with_value(text, start, end, level) if end else _with_front_matter(text, level)
    read = read_front_matter(changed)
    if read.promotion_level is not level or read.values.get(KEY) != level.label:
        raise _unusable("; ".join(read.warnings) or "its front matter cannot be changed")
    return changed


def _with_front_matter(text: str, level: PromotionLevel) -> str:
    if level is PromotionLevel.STANDARD and not _OPENING.match(text):
        return text
    mark = _MARK if text.startswith(_MARK) else ""
    found = _LINE_END.search(text)
    line_end = found[0] if found else "\n"
    lines = ("---", f"{KEY}: {level.label}", "---", "")
    return f"{mark}{line_end.join(lines)}{line_end}{text.removeprefix(mark)}"


def _with_value(text: str, start: int, end: int, level: PromotionLevel) -> str:
    block = text[start:end]
    if len(block) > MAX_FRONT_MATTER_CHARS:
        raise _unusable(f"its front matter is longer than {MAX_FRONT_MATTER_CHARS} characters")
    try:
        node = yaml.compose(block, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _unusable("its front matter is not valid YAML; correct it first") from error
    if node is None:
        opening = _OPENING.match(text)
        line_end = opening["end"] if opening else "\n"
        return f"{text[:end]}{KEY}: {level.label}{line_end}{text[end:]}"
    if not isinstance(node, yaml.MappingNode):
        raise _unusable("its front matter is not made of `key: value` lines; correct it first")
    values = [value for key, value in node.value if key.value == KEY]
    return text[:start] + _set(block, node, values, level) + text[end:]


def _set(block: str, node: yaml.MappingNode, values: list[yaml.Node], level: PromotionLevel) -> str:
    """The block with each of its values replaced, from the last to the first, or with a new key at the end."""
    for value in reversed(values):
        begin = value.start_mark.index
        end = begin + len(block[begin : value.end_mark.index].rstrip())  # a block scalar ends behind its line
        gap = " " if block[begin - 1 : begin] == ":" else ""
        block = block[:begin] + gap + level.label + block[end:]
    if values:
        return block
    if node.flow_style:
        begin = node.start_mark.index + 1
        return f"{block[:begin]}{KEY}: {level.label}{', ' if node.value else ''}{block[begin:]}"
    found = _LINE_END.search(block)
    line_end = found[0] if found else "\n"
    indent = " " * int(node.start_mark.column)
    return f"{block}{indent}{KEY}: {level.label}{line_end}"


def _content(folder: Folder, name: str) -> bytes:
    with os.fdopen(folder.open(name), "rb") as file:
        return file.read()


def _replace(folder: Folder, name: str, data: bytes) -> None:
    """Replace a file atomically: readers see either the old or the new content."""
    with os.fdopen(folder.open(name), "rb") as replaced:
        status = os.fstat(replaced.fileno())
    new = f".{name[:100]}.{secrets.token_hex(8)}.tmp"
    handle = folder.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            _like(file.fileno(), status)
            os.fsync(file.fileno())
        folder.replace(new, name)
    except BaseException:
        with contextlib.suppress(OSError):
            folder.unlink(new)
        raise
    folder.sync()


def _like(handle: int, status: os.stat_result) -> None:
    """Give an open file the mode and, if permitted, the owner of another."""
    if hasattr(os, "fchown"):
        with contextlib.suppress(OSError):
            os.fchown(handle, status.st_uid, status.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(handle, stat.S_IMODE(status.st_mode))


@contextmanager
def _mapped(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileSystemError(f"{path.name!r} cannot be changed: {error.strerror}") from error


def _unusable(reason: str) -> SchemaValidationError:
    message = f"The promotion level cannot be written: {reason}"
    return SchemaValidationError(message, [FieldError("document_path", message)])
