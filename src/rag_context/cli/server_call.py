"""An operation, by the server of the data directory and with the standard library alone.

The HTTP library and asyncio are a quarter of what `rag-context search` costs from start to end. They are loaded where
no server is found, and to report what is no answer.
"""

import http.client
import os
from contextlib import closing
from urllib.parse import urlsplit

from rag_context.api.operations import Operation, Request, Response
from rag_context.cli.command_line import run_to_end
from rag_context.client.address import CHALLENGE, FIND_TIMEOUT_S, Announcement, announced_address
from rag_context.client.call import Call, call_of, headers_of, request_id_of
from rag_context.client.errors import COMPONENT, ClientError
from rag_context.errors import BackendUnavailableError
from rag_context.settings import Loaded

READ_TIMEOUT_S = 60.0


def answer_of(loaded: Loaded, operation: Operation[Request, Response], request: Request) -> Response:
    """What an operation answers, from wherever its work is done. Raises: RagContextError."""
    address = announced_address(loaded.settings)
    announced = address.announced
    if announced is not None and announced.is_running and announced.url.startswith("http://"):
        place = urlsplit(announced.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=FIND_TIMEOUT_S)
        with closing(connection):
            if _is_proven(announced, connection):
                return _sent(call_of(operation, request), connection, announced.url, address.key)
    from rag_context.cli import connecting  # noqa: PLC0415

    return run_to_end(connecting.answer_of(loaded, operation, request))


def _is_proven(announced: Announcement, connection: http.client.HTTPConnection) -> bool:
    """Whether the server there wrote the announcement; before that it is shown neither key nor question."""
    challenge = os.urandom(32).hex()
    try:
        connection.request("GET", "/live", headers={CHALLENGE: challenge})
        return announced.is_proven_by(connection.getresponse().read(), challenge)
    except (OSError, http.client.HTTPException):
        return False


def _sent(call: Call[Response], connection: http.client.HTTPConnection, url: str, key: str | None) -> Response:
    request_id = request_id_of(None)
    connection.timeout = READ_TIMEOUT_S
    if connection.sock is not None:
        connection.sock.settimeout(READ_TIMEOUT_S)
    try:
        connection.request(call.method, call.path, call.body, headers_of(call, request_id, key))
        reply = connection.getresponse()
        content = reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise BackendUnavailableError(COMPONENT, f"The server at {url} went away.") from error
    if reply.status == http.client.OK:
        try:
            return call.read(content)
        except ValueError:
            pass  # reported below
    import httpx2  # noqa: PLC0415

    from rag_context.cli.connecting import failure_of  # noqa: PLC0415
    from rag_context.client import replies  # noqa: PLC0415

    asked = httpx2.Request(call.method, url + call.path)
    body = replies.Body(httpx2.Response(reply.status, headers=reply.getheaders(), request=asked), READ_TIMEOUT_S)
    body.content += content
    try:
        return replies.answer_of(call, body, request_id)
    except ClientError as error:
        raise failure_of(error, f"the server at {url}") from error
