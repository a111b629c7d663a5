"""The kinds of fault, and how each is done to each server."""

import json
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from typing import Any

import pymongo
import redis

from tests.faults.backends import Backend, Role
from tests.servers.faults import (
    EMPTY_OK,
    UNAVAILABLE,
    Drip,
    Fault,
    Garbage,
    HalfBody,
    HangAfter,
    HttpAnswer,
    Pass,
    Refuse,
    Reset,
    too_many_requests,
)


class FaultKind(StrEnum):
    """What goes wrong, in the words of the table."""

    REFUSED = "refuses connections"
    HANGS = "accepts requests and never responds"
    RESET = "resets every connection"
    SLOW = "responds one byte at a time"
    GARBAGE = "returns garbage"
    HALF = "closes the connection in the middle of a response"
    ERROR = "returns errors"
    BUSY = "rejects requests as overloaded"
    DIMENSION = "has vectors of another dimension"
    EMPTY = "returns empty responses"
    KILLED = "is killed and restarted later"
    FULL = "has no space left"


_ANSWERS_THEMSELVES: Mapping[FaultKind, Fault] = {
    FaultKind.REFUSED: Refuse(),
    FaultKind.HANGS: HangAfter(),
    FaultKind.RESET: Reset(),
    FaultKind.SLOW: Drip(),
    FaultKind.GARBAGE: Garbage(),
    FaultKind.HALF: HalfBody(),
}
_SHORT_VECTOR = {"object": "list", "model": "all-MiniLM-L6-v2", "data": [{"index": 0, "embedding": [0.6, 0.8]}]}
_OTHER_COLLECTION = {"status": {"error": "Wrong input: Vector dimension error: expected dim: 8, got 384"}, "time": 0.0}

ON_THE_WIRE: Mapping[Role, Mapping[FaultKind, Fault]] = {
    Role.EMBEDDER: {
        **_ANSWERS_THEMSELVES,
        FaultKind.ERROR: UNAVAILABLE,
        FaultKind.BUSY: too_many_requests(),
        FaultKind.DIMENSION: HttpAnswer(200, json.dumps(_SHORT_VECTOR).encode()),
        FaultKind.EMPTY: HttpAnswer(200, b'{"object": "list", "data": []}'),
    },
    Role.VECTORS: {
        **_ANSWERS_THEMSELVES,
        FaultKind.ERROR: UNAVAILABLE,
        FaultKind.BUSY: too_many_requests(),
        FaultKind.DIMENSION: HttpAnswer(400, json.dumps(_OTHER_COLLECTION).encode()),
        FaultKind.EMPTY: EMPTY_OK,
    },
    Role.DOCUMENTS: {**_ANSWERS_THEMSELVES, FaultKind.EMPTY: Garbage(b"")},
    Role.CACHE: {**_ANSWERS_THEMSELVES, FaultKind.SLOW: Drip(pause_s=0.4), FaultKind.EMPTY: Garbage(b"")},
}
"""Faults that the proxy makes, whatever the server does. A cache's answers are too short to be slow otherwise."""

_SHUTTING_DOWN, _TOO_MANY_REQUESTS, _OUT_OF_DISK_SPACE = 91, 462, 14031
_WRITES = ("insert", "update", "delete", "findAndModify", "createIndexes")
_COMMANDS = ("find", "aggregate", "listIndexes", *_WRITES)


@contextmanager
def fault(backend: Backend, kind: FaultKind) -> Iterator[None]:
    """The backend with this fault, until the end of the block."""
    if (on_the_wire := ON_THE_WIRE[backend.role].get(kind)) is not None:
        backend.proxy.fault = on_the_wire
        try:
            yield
        finally:
            backend.proxy.fault = Pass()
        return
    with ExitStack() as stack:
        match kind, backend.role:
            case FaultKind.KILLED, _:
                backend.process.kill()
                stack.callback(backend.process.start)
            case FaultKind.ERROR, Role.DOCUMENTS:
                stack.enter_context(_failing_commands(backend, _SHUTTING_DOWN, _COMMANDS))
            case FaultKind.BUSY, Role.DOCUMENTS:
                stack.enter_context(_failing_commands(backend, _TOO_MANY_REQUESTS, _COMMANDS))
            case (
                FaultKind.FULL,
                Role.DOCUMENTS,
            ):  # a real one that cannot write its journal ends itself: that is `KILLED`
                stack.enter_context(_failing_commands(backend, _OUT_OF_DISK_SPACE, _WRITES))
            case ((FaultKind.ERROR | FaultKind.BUSY | FaultKind.FULL), Role.CACHE):
                stack.enter_context(_rejecting_cache(backend, kind))
            case FaultKind.FULL, Role.VECTORS:
                stack.enter_context(_no_room(backend))
            case _:
                raise NotImplementedError(f"{backend.role} cannot be made to be one that {kind}")
        yield


@contextmanager
def _failing_commands(backend: Backend, code: int, commands: Sequence[str]) -> Iterator[None]:
    """MongoDB's own way to fail on command, for our connections only."""
    with pymongo.MongoClient[dict[str, Any]](backend.process.host, backend.process.port) as client:
        data = {"failCommands": list(commands), "errorCode": code, "appName": "rag-context"}
        client.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=data)
        try:
            yield
        finally:
            client.admin.command("configureFailPoint", "failCommand", mode="off")


@contextmanager
def _rejecting_cache(backend: Backend, kind: FaultKind) -> Iterator[None]:
    """A Redis that rejects: every command, every new client, or what needs memory."""
    with redis.Redis(backend.process.host, backend.process.port) as client:
        do, undo = {
            FaultKind.ERROR: (["ACL SETUSER default -@all +acl"], ["ACL SETUSER default +@all"]),
            FaultKind.BUSY: (
                ["CONFIG SET maxclients 1", "CLIENT KILL TYPE normal SKIPME yes"],
                ["CONFIG SET maxclients 10000"],
            ),
            FaultKind.FULL: (["CONFIG SET maxmemory 1"], ["CONFIG SET maxmemory 0"]),
        }[kind]
        for command in do:
            client.execute_command(*command.split())
        try:
            yield
        finally:
            for command in undo:
                client.execute_command(*command.split())


@contextmanager
def _no_room(backend: Backend) -> Iterator[None]:
    """No file of the server's can grow by a byte: what a full disk looks like to it."""
    pid = backend.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
