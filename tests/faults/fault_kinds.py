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


class Kind(StrEnum):
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


_ANSWERS_THEMSELVES: Mapping[Kind, Fault] = {
    Kind.REFUSED: Refuse(),
    Kind.HANGS: HangAfter(),
    Kind.RESET: Reset(),
    Kind.SLOW: Drip(),
    Kind.GARBAGE: Garbage(),
    Kind.HALF: HalfBody(),
}
_SHORT_VECTOR = {"object": "list", "model": "all-MiniLM-L6-v2", "data": [{"index": 0, "embedding": [0.6, 0.8]}]}
_OTHER_COLLECTION = {"status": {"error": "Wrong input: Vector dimension error: expected dim: 8, got 384"}, "time": 0.0}

ON_THE_WIRE: Mapping[Role, Mapping[Kind, Fault]] = {
    Role.EMBEDDER: {
        **_ANSWERS_THEMSELVES,
        Kind.ERROR: UNAVAILABLE,
        Kind.BUSY: too_many_requests(),
        Kind.DIMENSION: HttpAnswer(200, json.dumps(_SHORT_VECTOR).encode()),
        Kind.EMPTY: HttpAnswer(200, b'{"object": "list", "data": []}'),
    },
    Role.VECTORS: {
        **_ANSWERS_THEMSELVES,
        Kind.ERROR: UNAVAILABLE,
        Kind.BUSY: too_many_requests(),
        Kind.DIMENSION: HttpAnswer(400, json.dumps(_OTHER_COLLECTION).encode()),
        Kind.EMPTY: EMPTY_OK,
    },
    Role.DOCUMENTS: {**_ANSWERS_THEMSELVES, Kind.EMPTY: Garbage(b"")},
    Role.CACHE: {**_ANSWERS_THEMSELVES, Kind.SLOW: Drip(pause_s=0.4), Kind.EMPTY: Garbage(b"")},
}
"""Faults that the proxy makes, whatever the server does. A cache's answers are too short to be slow otherwise."""

_SHUTTING_DOWN, _TOO_MANY_REQUESTS, _OUT_OF_DISK_SPACE = 91, 462, 14031
_WRITES = ("insert", "update", "delete", "findAndModify", "createIndexes")
_COMMANDS = ("find", "aggregate", "listIndexes", *_WRITES)


@contextmanager
def fault(backend: Backend, kind: Kind) -> Iterator[None]:
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
            case Kind.KILLED, _:
                backend.process.kill()
                stack.callback(backend.process.start)
            case Kind.ERROR, Role.DOCUMENTS:
                stack.enter_context(_failing_commands(backend, _SHUTTING_DOWN, _COMMANDS))
            case Kind.BUSY, Role.DOCUMENTS:
                stack.enter_context(_failing_commands(backend, _TOO_MANY_REQUESTS, _COMMANDS))
            case Kind.FULL, Role.DOCUMENTS:  # a real one that cannot write its journal ends itself: that is `KILLED`
                stack.enter_context(_failing_commands(backend, _OUT_OF_DISK_SPACE, _WRITES))
            case ((Kind.ERROR | Kind.BUSY | Kind.FULL), Role.CACHE):
                stack.enter_context(_refusing_cache(backend, kind))
            case Kind.FULL, Role.VECTORS:
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
def _refusing_cache(backend: Backend, kind: Kind) -> Iterator[None]:
    """A Redis that refuses: every command, every new client, or what needs memory."""
    with redis.Redis(backend.process.host, backend.process.port) as client:
        do, undo = {
            Kind.ERROR: (["ACL SETUSER default -@all +acl"], ["ACL SETUSER default +@all"]),
            Kind.BUSY: (
                ["CONFIG SET maxclients 1", "CLIENT KILL TYPE normal SKIPME yes"],
                ["CONFIG SET maxclients 10000"],
            ),
            Kind.FULL: (["CONFIG SET maxmemory 1"], ["CONFIG SET maxmemory 0"]),
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
