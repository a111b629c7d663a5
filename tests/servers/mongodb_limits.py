"""What a MongoDB server rejects and SecantusDB does not, and failures on command.

Limits: 1 000 stages in a pipeline, 16 MiB in a record, and no index over two arrays of one record. Tests
request failures as from a real server with `enableTestCommands`: by `configureFailPoint` with `failCommand`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import bson

from tests.servers.mongodb_wire import Command

MOST_STAGES = 1000
MOST_BYTES = 16 << 20

LIMITED = ("insert", "update", "findAndModify", "aggregate")
"""Commands that a limit may reject."""

CHANGING_INDEXES = ("createIndexes", "dropIndexes", "drop", "dropDatabase")


def failure(code: int, name: str, message: str) -> Command:
    """The reply of a server that rejects."""
    return {"ok": 0.0, "errmsg": message, "code": code, "codeName": name}


def refusal(command: Mapping[str, Any], indexes: Sequence[Mapping[str, Any]]) -> Command | None:
    """The rejection of a command that a limit forbids; `indexes` are the collection's."""
    if "aggregate" in command:
        longest = max(map(len, _pipelines(command["pipeline"])))
        if longest > MOST_STAGES:
            message = f"Pipeline length must be no longer than {MOST_STAGES} stages"
            return failure(7749501, "Location7749501", message)
        return None
    for record in _records(command):
        if len(bson.encode(record)) > MOST_BYTES:
            return failure(10334, "BSONObjectTooLarge", "BSONObj size is invalid. Size must be between 0 and 16793600")
        for index in indexes:
            arrays = {prefix for path in index["key"] for prefix in _array_prefixes(record, path.split("."))}
            if len(arrays) > 1:
                return failure(171, "CannotIndexParallelArrays", f"cannot index parallel arrays {sorted(arrays)}")
    return None


def _pipelines(stages: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    yield stages
    for stage in stages:
        inner = stage.get("$unionWith") or stage.get("$lookup")
        if isinstance(inner, Mapping) and "pipeline" in inner:
            yield from _pipelines(inner["pipeline"])


def _records(command: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What a command stores, as far as it says so itself."""
    yield from command.get("documents", ())
    for each in (*command.get("updates", ()), command):
        change = each.get("u", each.get("update"))
        if isinstance(change, Mapping):
            yield change.get("$set", change)


def _array_prefixes(value: Any, path: Sequence[str], prefix: str = "") -> Iterator[str]:
    """The arrays that the keys of an index lead through, by their paths."""
    if isinstance(value, list):
        yield prefix
        for item in value:
            yield from (each for each in _array_prefixes(item, path, prefix) if each != prefix)
    elif path and isinstance(value, Mapping) and path[0] in value:
        yield from _array_prefixes(value[path[0]], path[1:], f"{prefix}.{path[0]}".lstrip("."))


@dataclass
class FailPoint:
    """The server's `failCommand`: which commands fail, how, and how often still (None: until it is switched off)."""

    data: Mapping[str, Any] | None = None
    times: int | None = 0

    def configure(self, command: Mapping[str, Any]) -> Command:
        """Answer `configureFailPoint`."""
        mode = command["mode"]
        self.data = None if mode == "off" else command.get("data", {})
        self.times = mode.get("times") if isinstance(mode, Mapping) else None
        return {"ok": 1.0}

    def take(self, name: str) -> Mapping[str, Any] | None:
        """How this command fails; None where it does not."""
        if self.data is None or self.times == 0 or name not in self.data.get("failCommands", ()):
            return None
        if self.times is not None:
            self.times -= 1
        return self.data
