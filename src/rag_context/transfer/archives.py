"""A backup as one file: a tar archive of databases that ends with a receipt, without which it is not whole."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from rag_context.errors import InvalidInputError

FORMAT = "rag-context-backup"
VERSION = 1
RECEIPT = "receipt.json"
_MAX_RECEIPT_BYTES = 1 << 20
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class BackupReceipt:
    """What a backup holds. `program` is the version that made it."""

    made_at: str
    program: str
    documents: int
    collections: int
    parts: tuple[Part, ...]

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)})


class _Hashing:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def write_archive(
    file: BinaryIO, paths: Iterable[Path], *, program: str, documents: int, collections: int
) -> BackupReceipt:
    """Write files, and last a receipt. Raises: OSError."""
    parts = []
    with tarfile.open(fileobj=file, mode="w|") as archive:
        for path in paths:
            with path.open("rb") as opened:
                source = _Hashing(opened)
                member = _member(path.name, path.stat().st_size)
                archive.addfile(member, source)
                parts.append(Part(path.name, member.size, source.digest.hexdigest()))
        receipt = BackupReceipt(datetime.now(UTC).isoformat(), program, documents, collections, tuple(parts))
        data = receipt.to_json().encode()
        archive.addfile(_member(RECEIPT, len(data)), io.BytesIO(data))
    return receipt


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member


def read_archive(file: BinaryIO, folder: Path, names: frozenset[str]) -> BackupReceipt:
    """Read a backup of files of these names into an empty folder. Raises: InvalidInputError (not whole), OSError."""
    found: dict[str, Part] = {}
    receipt: BackupReceipt | None = None
    try:
        with tarfile.open(fileobj=file, mode="r|") as archive:
            for member in archive:
                # A sparse file of terabytes takes a few bytes in an archive.
                source = archive.extractfile(member) if member.isreg() and not member.issparse() else None
                if receipt is not None or source is None or member.name in found:
                    raise _rejected("it holds something else")
                if member.name == RECEIPT:
                    receipt = _receipt(source.read(_MAX_RECEIPT_BYTES))
                elif member.name in names:
                    found[member.name] = _extracted(source, folder / member.name)  # type: ignore[arg-type]
                else:
                    raise _rejected(f"it holds {member.name!r}")
    except (tarfile.TarError, EOFError) as error:
        raise _rejected(str(error)) from error
    if receipt is None:
        raise _rejected("its end is missing")
    if {part.name: part for part in receipt.parts} != found:
        raise _rejected("its files are not those of its receipt")
    return receipt


def _extracted(source: BinaryIO, path: Path) -> Part:
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as target:
        path.chmod(0o600)
        while block := source.read(_BLOCK):
            digest.update(block)
            size += target.write(block)
        target.flush()
        os.fsync(target.fileno())
    return Part(path.name, size, digest.hexdigest())


def _receipt(data: bytes) -> BackupReceipt:
    try:
        fields = json.loads(data)
        if (fields.pop("format"), fields.pop("version")) != (FORMAT, VERSION):
            raise _rejected("another version made it")
        return BackupReceipt(**{**fields, "parts": tuple(Part(**part) for part in fields["parts"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _rejected("its receipt cannot be read") from error


def _rejected(reason: str) -> InvalidInputError:
    return InvalidInputError(f"This file is no whole backup: {reason}.")
