"""The files of the page, and the stream of events."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from importlib import resources
from typing import Any

import httpx2
import pytest

from rag_context.errors import BackendUnavailableError
from rag_context.server.pages import MAX_WATCHERS

from .server_thread import Running

PAGE = resources.files("rag_context.server").joinpath("page")
FILES = sorted(file.name for file in PAGE.iterdir() if not file.name.endswith(".txt"))
MAX_BYTES = 200_000


def test_the_page_is_small_and_whole(client: httpx2.Client) -> None:
    """W-4: below 200 kB with all that it loads, and every script it names is there."""
    total = 0
    for name in FILES:
        reply = client.get("/" if name == "index.html" else f"/page/{name}")
        assert reply.status_code == 200, name
        assert reply.headers["x-content-type-options"] == "nosniff"
        total += 0 if name.startswith("docs.") else len(reply.content)
    assert 40_000 < total < MAX_BYTES


def test_the_policy_lets_nothing_in_from_elsewhere(client: httpx2.Client) -> None:
    """X-2: no inline script or style, no other origin, no text taken for HTML, no frame around it."""
    policy = client.get("/").headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "sha256" not in policy
    for rule in (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
    ):
        assert rule in policy.split("; ")


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_no_script_can_write_html(name: str) -> None:
    text = resources.files("rag_context.server").joinpath("page", name).read_text("utf-8")
    text = text.replace('"http://www.w3.org/2000/svg"', "")
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert sink not in text, sink
    if name != "marked.js":  # it recognises addresses in texts
        assert "http:" not in text
    if name != "main.js":  # it keeps which theme was chosen
        assert "localStorage" not in text


def test_what_others_wrote_is_named_with_its_licence() -> None:
    notice = PAGE.joinpath("THIRD-PARTY.txt").read_text("utf-8")
    head = PAGE.joinpath("marked.js").read_text("utf-8").splitlines()[1]
    assert head.split(" - ")[0].strip(" *").replace("v", "") in notice
    assert "MIT" in notice


@pytest.mark.parametrize("name", ["nothing.js", "..%2Fapp.py", "%2e%2e%2fapp.py", "__init__.py", ".", "main.js%00"])
def test_no_other_file_is_served(client: httpx2.Client, name: str) -> None:
    """X-3."""
    assert client.get(f"/page/{name}").status_code == 404


def test_a_file_that_has_not_changed_is_not_sent_again(client: httpx2.Client) -> None:
    first = client.get("/page/main.js")
    assert first.headers["cache-control"] == "no-cache"
    again = client.get("/page/main.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/page/main.js", headers={"if-none-match": '"other"'}).status_code == 200


def state_where(lines: Iterator[str], holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The next event of which this holds; a first one may be a look of half a second ago."""
    states = (json.loads(line[6:]) for line in lines if line.startswith("data: "))
    found: dict[str, Any] = next(state for state in states if holds(state))
    return found


def test_an_event_comes_at_once_and_with_each_change(client: httpx2.Client, open_server: Running) -> None:
    with client.stream("GET", "/events") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.iter_lines()
        first = state_where(lines, lambda state: state["health"]["healthy"])
        assert set(first) == {"health", "stats", "latest"}
        open_server.service.is_healthy = False
        state_where(lines, lambda state: not state["health"]["healthy"])


def test_a_store_that_is_down_is_reported_and_ends_no_stream(client: httpx2.Client, open_server: Running) -> None:
    open_server.service.failure = BackendUnavailableError("documents", "down")
    with client.stream("GET", "/events") as reply:
        lines = reply.iter_lines()
        state = state_where(lines, lambda state: "error" in state["latest"])
        assert state["latest"] == {"error": "Database unavailable"}
        open_server.service.failure = None
        assert "error" not in state_where(lines, lambda state: "documents" in state["latest"])["health"]


def test_only_so_many_watch(open_server: Running) -> None:
    with open_server.client() as client:
        limits = httpx2.Limits(max_connections=MAX_WATCHERS + 1)
        with httpx2.Client(base_url=open_server.url, limits=limits, trust_env=False, timeout=20) as watching:
            streams = [
                watching.send(watching.build_request("GET", "/events"), stream=True) for _ in range(MAX_WATCHERS)
            ]
            assert {stream.status_code for stream in streams} == {200}
            rejected = client.get("/events")
            assert (rejected.status_code, rejected.json()["code"]) == (503, "OVERLOADED")
            for stream in streams:
                stream.close()
        wait_for_place(client)


def test_one_key_leaves_places_to_the_others(locked: Running) -> None:
    half = MAX_WATCHERS // 2
    with httpx2.Client(base_url=locked.url, trust_env=False, timeout=20) as watching:
        headers = {"X-API-Key": "read-me"}
        requests = [watching.build_request("GET", "/events", headers=headers) for _ in range(half + 1)]
        streams = [watching.send(request, stream=True) for request in requests]
        assert [stream.status_code for stream in streams] == [*[200] * half, 503]
        other = watching.build_request("GET", "/events", headers={"X-API-Key": "write-me"})
        streams.append(watching.send(other, stream=True))
        assert streams[-1].status_code == 200
        for stream in streams:
            stream.close()


def test_those_that_go_at_once_free_their_places(open_server: Running) -> None:
    request = f"GET /events HTTP/1.1\r\nHost: {open_server.host}:{open_server.port}\r\n\r\n".encode()
    for _ in range(MAX_WATCHERS):
        # Those of an earlier test, or of this loop, may not all have been noticed to be gone.
        with open_server.client() as client:
            wait_for_place(client)
        with socket.create_connection((open_server.host, open_server.port), 20) as watching:
            watching.sendall(request)
            assert watching.recv(12) == b"HTTP/1.1 200"
    with open_server.client() as client:
        wait_for_place(client)


def wait_for_place(client: httpx2.Client) -> None:
    end = time.monotonic() + 20
    while client.head("/events").status_code != 200:
        assert time.monotonic() < end, "places of those that went are not freed"
        time.sleep(0.05)


def test_a_wrong_time_range_is_rejected(client: httpx2.Client) -> None:
    reply = client.get("/events", params={"timeRange": "2y"})
    assert (reply.status_code, reply.json()["details"][0]["field"]) == (400, "timeRange")


def test_what_changes_something_is_no_get(client: httpx2.Client, open_server: Running) -> None:
    """The page deletes by POST only, which no link and no picture of another page can send."""
    fields = {"documentId": "d1", "confirm": "true"}
    assert client.get("/tools/rag_context_delete", params=fields).status_code == 405
    assert open_server.service.deleted == []
