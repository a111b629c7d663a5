"""Sessions over HTTP: bounded in number and time, each its key's own."""

from rag_context.server.mcp.streamable_http import IDLE_S, MAX_SESSIONS, Sessions
from rag_context.testing import FrozenClock


def test_a_session_lives_as_long_as_it_is_used() -> None:
    clock = FrozenClock()
    sessions = Sessions(clock)
    received, silent = sessions.open(None), sessions.open(None)
    clock.advance(IDLE_S * 0.6)
    assert sessions.enter(received, None)
    clock.advance(IDLE_S * 0.6)
    assert sessions.enter(received, None)
    assert not sessions.enter(silent, None)


def test_a_session_is_its_keys_own() -> None:
    sessions = Sessions()
    session = sessions.open("alice")
    assert not sessions.enter(session, "bob")
    assert not sessions.end(session, "bob")
    assert sessions.enter(session, "alice")
    assert sessions.end(session, "alice")
    assert not sessions.enter(session, "alice")


def test_of_too_many_sessions_the_one_that_is_used_stays() -> None:
    sessions = Sessions()
    bobs, used, unused = sessions.open("bob"), sessions.open("alice"), sessions.open("alice")
    for _ in range(MAX_SESSIONS - 1):
        sessions.open("alice")
        assert sessions.enter(used, "alice")
    assert not sessions.enter(unused, "alice")
    assert sessions.enter(bobs, "bob")
