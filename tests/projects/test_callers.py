"""Who works on which project: handles, sessions and keys, and how each of them ends."""

from pathlib import Path

import pytest

from rag_context.domain.callers import ANONYMOUS, CallerId
from rag_context.domain.documents import Tenant
from rag_context.projects.callers import IDLE_S, MAX_HANDLES, Activations
from rag_context.projects.config import ProjectConfig
from rag_context.projects.doc_types import DocTypes
from rag_context.projects.project_opening import Activation
from rag_context.projects.records import ProjectNotActivatedError, RetrievalOptions
from rag_context.testing import FrozenClock

ALICE, BOB = CallerId(key="alice"), CallerId(key="bob")


def activation(name: str, branch: str = "main") -> Activation:
    return Activation(
        config=ProjectConfig(Path("/r/.rag-context/config.json"), name),
        tenant=Tenant(name, branch, "0" * 16),
        repository_root=Path("/r"),
        docs_root=Path("/r/docs"),
        doc_types=DocTypes(()),
        options=RetrievalOptions(),
        search_options=RetrievalOptions(),
    )


SHOP, WIKI = activation("shop"), activation("wiki")


def test_a_handle_beats_the_session_and_the_session_beats_the_key() -> None:
    activations = Activations()
    in_session = CallerId("s", "alice")
    activations.note(ALICE, SHOP)
    assert activations.of(in_session) == ()
    activations.note(in_session, WIKI)
    handle = activations.note(CallerId("t", "alice"), SHOP)
    assert activations.of(in_session) == (WIKI,)
    assert activations.of(in_session, handle) == (SHOP,)
    assert activations.of(ALICE) == (SHOP,)


def test_the_same_project_twice_is_no_conflict_of_a_key_and_two_are() -> None:
    activations = Activations()
    activations.note(ALICE, SHOP)
    activations.note(ALICE, SHOP)
    assert activations.of(ALICE) == (SHOP,)
    activations.note(ALICE, WIKI)
    assert activations.of(ALICE) == (SHOP, WIKI)
    assert activations.of(BOB) == activations.of(ANONYMOUS) == ()


def test_a_handle_is_unknown_to_another_key_and_without_a_key() -> None:
    activations = Activations()
    handle = activations.note(ALICE, SHOP)
    for caller in (BOB, ANONYMOUS):
        with pytest.raises(ProjectNotActivatedError, match="activate_project again"):
            activations.of(caller, handle)


def test_what_was_unused_for_a_day_is_forgotten() -> None:
    clock = FrozenClock()
    activations = Activations(clock)
    session = CallerId("s")
    used, unused = activations.note(session, SHOP), activations.note(ALICE, WIKI)
    clock.advance(IDLE_S / 2)
    assert activations.of(ANONYMOUS, used) == activations.of(session) == (SHOP,)
    clock.advance(IDLE_S * 0.6)
    assert activations.of(ANONYMOUS, used) == activations.of(session) == (SHOP,)
    assert activations.of(ALICE) == ()
    with pytest.raises(ProjectNotActivatedError):
        activations.of(ALICE, unused)


def test_one_key_evicts_its_own_oldest_handles_and_no_others() -> None:
    activations = Activations()
    bobs, first = activations.note(BOB, WIKI), activations.note(ALICE, SHOP)
    for _ in range(MAX_HANDLES):
        activations.note(ALICE, SHOP)
    assert activations.of(BOB, bobs) == (WIKI,)
    with pytest.raises(ProjectNotActivatedError):
        activations.of(ALICE, first)


def test_every_caller_follows_to_another_branch_and_leaves_a_deleted_project() -> None:
    activations = Activations()
    session, nexts = CallerId("s"), activation("shop", "next")
    handle = activations.note(session, SHOP)
    activations.note(ALICE, SHOP)
    activations.note(BOB, WIKI)
    activations.replace(SHOP.tenant, nexts)
    assert activations.of(session) == activations.of(ANONYMOUS, handle) == activations.of(ALICE) == (nexts,)
    activations.replace(nexts.tenant, None)
    assert activations.of(session) == activations.of(ALICE) == ()
    assert activations.of(BOB) == (WIKI,)
