"""What engines get for a `where`: never less than it lets through, and nothing else where that is promised."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from rag_context.domain.clauses import Clause
from rag_context.domain.documents import Json
from rag_context.domain.where import matches, parse
from rag_context.stores.engines import OPERATION_BYTES, engine_name, operations
from rag_context.stores.tokens import (
    And,
    AnyOf,
    Condition,
    Narrowing,
    NoneOf,
    Or,
    Range,
    conditions_in,
    distinct,
    narrow,
    numbers_of,
    tokens_of,
)
from tests.collections.strategies import clauses, metadata


def holds(condition: Condition, tokens: set[str], numbers: dict[str, float]) -> bool:
    """What an engine does."""
    match condition:
        case AnyOf(asked):
            return not tokens.isdisjoint(asked)
        case NoneOf(asked):
            return tokens.isdisjoint(asked)
        case Range(path, bound, value):
            number = numbers.get(path)
            if number is None:
                return False
            return {"gt": number > value, "gte": number >= value, "lt": number < value, "lte": number <= value}[bound]
        case And(parts):
            return all(holds(part, tokens, numbers) for part in parts)
        case Or(parts):
            return any(holds(part, tokens, numbers) for part in parts)


@settings(max_examples=100, deadline=None)
@given(where=clauses(), held=metadata())
def test_an_engine_finds_all_that_a_filter_lets_through_and_no_more_where_it_is_exact(
    where: Clause, held: dict[str, Json]
) -> None:
    narrowed = narrow(where)
    found = narrowed.condition is None or holds(narrowed.condition, set(tokens_of(held)), numbers_of(held))
    if narrowed.exact:
        assert found == matches(where, held)
    else:
        assert found or not matches(where, held)


def test_values_of_different_types_have_different_tokens() -> None:
    values: list[Json] = [1, True, "1", "true", 2**63, 2**63 + 1, 0.1, "", [], {}, ["1"], [1]]
    tokens = [frozenset(tokens_of({"a": value})) for value in values]
    assert len(set(tokens)) == len(values) - 1  # nothing tells an empty list from an empty object, or has to
    assert tokens_of({"a": 1}) == tokens_of({"a": 1.0})
    assert tokens_of({"a": None}) == []


def test_long_values_have_short_tokens_that_differ() -> None:
    one, other = (tokens_of({"a": "x" * 100_000 + end}) for end in "ab")
    assert set(one) != set(other)
    assert max(map(len, one)) < 300
    assert narrow(parse({"a": "x" * 100_000 + "a"})).condition == AnyOf((next(fact for fact in one if "#" in fact),))


def test_what_can_be_found_is_not_read_for() -> None:
    for found in (
        {"a": 1},
        {"a": {"$ne": "x"}},
        {"a": {"$in": [1, None, "x"]}},
        {"a": {"$nin": [1, None]}},
        {"a": {"$gt": 5}},
        {"$not": {"a": {"$lte": 5.5}}},
        {"a": {"$contains": 5}},
        {"a.b": {"$exists": False}},
        {"$or": [{"a": 1}, {"$not": {"b": 2}}]},
    ):
        assert narrow(parse(found)).exact, found
    for read in ({"a": {"$contains": "x"}}, {"a": {"$gt": "x"}}, {"a": {"$lt": 2**60}}, {"$not": {"a": {"$gte": "x"}}}):
        assert not narrow(parse(read)).exact, read


def test_what_cannot_be_narrowed_is_not() -> None:
    unknown = {"a": {"$not": {"$gt": "x"}}}
    for where in (unknown, {"$or": [unknown, {"b": 1}]}, {"$not": {"$and": [{"b": 1}, {"a": {"$gt": "x"}}]}}):
        assert narrow(parse(where)) == Narrowing(None, exact=False)
    assert narrow(parse({"$and": [unknown, {"b": 1}]})) == Narrowing(narrow(parse({"b": 1})).condition, exact=False)
    assert narrow(parse({"$or": [unknown, {"a": {"$nin": []}}]})) == Narrowing(None, exact=True)


def test_conditions_are_counted() -> None:
    condition = narrow(parse({"a": {"$in": ["x", "y", "z"]}, "b": {"$gt": 1}})).condition
    assert condition is not None
    assert conditions_in(condition) == 5


def test_values_are_distinct_by_type_and_lists_are_opened() -> None:
    assert distinct([1, 1.0, True, "1", None, ["1", 2, None, [3]], {"a": 1}]) == [1, True, "1", 2]


@given(
    names=st.sets(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300), min_size=2, max_size=20)
)
def test_every_name_has_one_that_engines_allow(names: set[str]) -> None:
    made = {engine_name("rag-context", name) for name in names}
    assert len(made) == len(names)
    for name in made:
        assert re.fullmatch(r"rag-context\.[a-z0-9][a-z0-9._-]{0,120}", name)
        assert name[-1].isalnum()


def test_names_can_be_read() -> None:
    assert engine_name("p", "section_notes-2") == "p.section_notes-2"
    assert re.fullmatch(r"p\.uber-uns-2026\.[0-9a-f]{32}", engine_name("p", "Über uns / 2026"))
    assert re.fullmatch(r"p\.x\.[0-9a-f]{32}", engine_name("p", "日本語"))
    assert engine_name("p", "Docs").lower() != engine_name("p", "docs")
    # What a name looks like once it is encoded is no name that is kept as it is.
    assert engine_name("p", engine_name("p", "日本語").removeprefix("p.")) != engine_name("p", "日本語")


def test_writes_are_cut_by_size_and_by_number_and_lose_nothing() -> None:
    third = OPERATION_BYTES // 3
    assert [list(group) for group in operations([third] * 7, lambda size: size)] == [[third] * 3, [third] * 3, [third]]
    assert [list(group) for group in operations([1] * 5, lambda size: size, 2)] == [[1, 1], [1, 1], [1]]
    assert [list(group) for group in operations([OPERATION_BYTES * 2, 1], lambda size: size)] == [
        [OPERATION_BYTES * 2],
        [1],
    ]
    assert list(operations([], len)) == []
