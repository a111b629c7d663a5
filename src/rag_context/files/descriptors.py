"""Opens and replaces files so that a path cannot lead to another file between its check and its use (TOCTOU).

A program that may write in a folder can replace a part of it by a symbolic link at any time, also after the check. So
a resolved path is walked from the top, folder by folder, each opened relative to the one before and none through a
link; reads and writes then go to the open folder, wherever it is moved to.

Linux walks with descriptors that need no right to read (`O_PATH`), macOS has a flag for the whole path. Elsewhere, and
on Windows, the path is resolved again once the file is open, and must lead to that file still.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# O_NONBLOCK, because opening a named pipe without a writer would wait for ever.
_PLAIN = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY", "O_NOCTTY"))
_NO_LINK_IN_PATH = getattr(os, "O_NOFOLLOW_ANY", 0)
_FOLDER = sum(getattr(os, name, 0) for name in ("O_PATH", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC"))
_WALKS = hasattr(os, "O_PATH") and {os.open, os.rename, os.unlink} <= os.supports_dir_fd


class NotRegularError(OSError):
    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "not a regular file", str(path))


@dataclass(frozen=True, slots=True)
class Folder:
    """An open folder. `descriptor` is None where the system has no calls relative to one; then the path is used."""

    path: Path
    descriptor: int | None

    def open(self, name: str, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
        """Open a file in it without waiting and, at any part of the path, through no link. Raises: OSError."""
        if self.descriptor is not None:
            return os.open(name, flags | _PLAIN, mode, dir_fd=self.descriptor)
        path = self.path / name
        descriptor = os.open(path, flags | (_NO_LINK_IN_PATH or _PLAIN) | _PLAIN, mode)
        if not _NO_LINK_IN_PATH and not _still_leads_to(path, descriptor):
            os.close(descriptor)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        return descriptor

    def read(self, name: str) -> bytes:
        """The bytes of one of its files. Raises: OSError."""
        with os.fdopen(self.open(name), "rb") as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        """Replace one of its files atomically; its mode and, where permitted, its owner stay. Raises: OSError."""
        with os.fdopen(self.open(name), "rb") as replaced:
            status = os.fstat(replaced.fileno())
        new = f".{name[:100]}.{secrets.token_hex(8)}.tmp"
        handle = self.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                _set_mode_and_owner(file.fileno(), status)
                os.fsync(file.fileno())
            self._rename(new, name)
        except BaseException:
            with contextlib.suppress(OSError):
                self._unlink(new)
            raise
        self._sync()

    def _rename(self, source: str, target: str) -> None:
        if self.descriptor is not None:
            os.replace(source, target, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        else:
            (self.path / source).replace(self.path / target)

    def _unlink(self, name: str) -> None:
        if self.descriptor is not None:
            os.unlink(name, dir_fd=self.descriptor)
        else:
            (self.path / name).unlink()

    def _sync(self) -> None:
        """Flush its entries to the disk, where the system supports that."""
        with contextlib.suppress(OSError):
            # A descriptor of O_PATH cannot be flushed, so the folder is opened once more, relative to it.
            handle = os.open(".", os.O_RDONLY, dir_fd=self.descriptor) if _WALKS else os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


@contextmanager
def open_folder(path: Path) -> Iterator[Folder]:
    """Open a folder by an absolute path without links. Raises: OSError, also if a part of it has become a link."""
    if not _WALKS:
        yield Folder(path, None)
        return
    descriptor = os.open(path.anchor, _FOLDER)
    try:
        for part in path.parts[1:]:
            # A link in place of a folder fails here, wherever it leads: O_DIRECTORY rejects the link itself.
            inner = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield Folder(path, descriptor)
    finally:
        os.close(descriptor)


def open_file(path: Path) -> int:
    """A descriptor to read a regular file by an absolute path without links. Raises: NotRegularError, OSError."""
    with open_folder(path.parent) as folder:
        descriptor = folder.open(path.name)
    # Of the open descriptor: the name may lead to another file by now.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(path)
    return descriptor


def read_start(path: Path, most: int) -> bytes:
    """The first `most` bytes of such a file. Raises: OSError."""
    with os.fdopen(open_file(path), "rb") as file:
        return file.read(most)


def _still_leads_to(path: Path, descriptor: int) -> bool:
    opened = os.fstat(descriptor)
    resolved = Path(os.path.realpath(path))
    return resolved == path and os.path.samestat(opened, resolved.lstat())


def _set_mode_and_owner(handle: int, status: os.stat_result) -> None:
    if hasattr(os, "fchown"):
        with contextlib.suppress(OSError):
            os.fchown(handle, status.st_uid, status.st_gid)
    if hasattr(os, "fchmod"):
        os.fchmod(handle, stat.S_IMODE(status.st_mode))
