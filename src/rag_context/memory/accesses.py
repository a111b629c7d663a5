"""Who called what changes something, and who was rejected: records in the store, which all its servers share.

A record names the key, the client, the operation, what it was about by its id or a hash of its name, and the outcome;
never a text, a source, a tag or a query. Records are written within a moment, off the path of the call, by every
process of ours that has the index open; a program of someone else's says where they go with `recorded_by`.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256

from rag_context.domain.documents import utc_now
from rag_context.domain.reports import ACCESS, ErrorRecord
from rag_context.logs import REQUEST_ID

_recorders: list[Callable[[ErrorRecord], None]] = []
"""Where this process records; the last one counts."""


@contextmanager
def recorded_by(recorder: Callable[[ErrorRecord], None]) -> Iterator[None]:
    """Record calls for the time of the block."""
    _recorders.append(recorder)
    try:
        yield
    finally:
        _recorders.pop()


def hashed(name: str) -> str:
    """A project or a collection, whose name goes when it is deleted: who knows the name finds it."""
    return f"sha256:{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def record(
    operation: str, outcome: str, *, key: str | None, client: str | None = None, target: Sequence[str] = ()
) -> None:
    """Record a call."""
    if _recorders:
        about: dict[str, str | int | list[str] | None] = {"key": key, "client": client, "target": list(target) or None}
        known = {name: value for name, value in about.items() if value is not None}
        _recorders[-1](ErrorRecord(utc_now(), ACCESS, "api", operation, outcome, REQUEST_ID.get(), known))


@contextmanager
def recording(
    operation: str, *, key: str | None = None, client: str | None, target: Sequence[str] = ()
) -> Iterator[None]:
    """Record a call that is the block, with its outcome."""
    outcome = "ok"
    try:
        yield
    except BaseException as error:
        outcome = type(error).__name__
        raise
    finally:
        record(operation, outcome, key=key, client=client, target=target)


def as_line(access: ErrorRecord) -> str:
    """A record as a line of JSON."""
    at = access.timestamp.isoformat(timespec="milliseconds")
    fields = {"operation": access.operation, "outcome": access.message, "requestId": access.request_id}
    return json.dumps({"at": at, **access.context, **{name: value for name, value in fields.items() if value}})
