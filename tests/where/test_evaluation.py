"""What a filter means, by tables written by hand and by laws."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_context.domain.clauses import (
    EVERYTHING,
    Clause,
    Comparison,
    Conjunction,
    Disjunction,
    Membership,
    Negation,
    Operator,
)
from rag_context.domain.documents import Json
from rag_context.domain.where import matches, parse, value_at
from tests.collections.strategies import PATHS, clauses, metadata, numbers, scalars, texts

EXACT = 2**53

TABLE: list[tuple[Json, dict[str, Json], bool]] = [
    # equality, without coercion
    (1, {"$eq": 1}, True),
    (1, {"$eq": 1.0}, True),
    (1, {"$eq": True}, False),
    (True, {"$eq": True}, True),
    (True, {"$eq": 1}, False),
    (False, {"$eq": 0}, False),
    ("1", {"$eq": 1}, False),
    ("true", {"$eq": True}, False),
    (-0.0, {"$eq": 0}, True),
    ("é", {"$eq": "e\u0301"}, False),
    ([1], {"$eq": 1}, False),
    ({"b": 1}, {"$eq": "b"}, False),
    (EXACT + 1, {"$eq": float(EXACT)}, False),
    (EXACT, {"$eq": float(EXACT)}, True),
    (2**64 + 1, {"$eq": 2**64}, False),
    (2**64, {"$eq": float(2**64)}, True),
    # null equals missing
    (None, {"$eq": None}, True),
    (0, {"$eq": None}, False),
    ("", {"$eq": None}, False),
    ([], {"$eq": None}, False),
    (None, {"$exists": False}, True),
    (None, {"$exists": True}, False),
    (False, {"$exists": True}, True),
    ({}, {"$exists": True}, True),
    # not equal
    (1, {"$ne": 1}, False),
    (True, {"$ne": 1}, True),
    (None, {"$ne": 1}, True),
    (None, {"$ne": None}, False),
    (1, {"$ne": None}, True),
    ([1], {"$ne": 1}, True),
    # order
    (2, {"$gt": 1}, True),
    (1, {"$gt": 1.0}, False),
    (1, {"$gte": 1.0}, True),
    (0.5, {"$lt": 1}, True),
    (1, {"$lte": 0.5}, False),
    (EXACT + 1, {"$gt": float(EXACT)}, True),
    (2**64 + 1, {"$lte": 2**64}, False),
    (-1e308, {"$lt": -(10**307)}, True),
    ("b", {"$gt": "a"}, True),
    ("B", {"$gt": "a"}, False),
    ("10", {"$lt": "9"}, True),
    ("\uffff", {"$lt": "🙂"}, True),
    ("10", {"$gt": 9}, False),
    (10, {"$lt": "9"}, False),
    (True, {"$gt": 0}, False),
    (True, {"$gte": 1}, False),
    (None, {"$lt": 1}, False),
    ([2], {"$gt": 1}, False),
    # one of
    ("a", {"$in": ["a", 1, None]}, True),
    (1.0, {"$in": ["a", 1, None]}, True),
    (True, {"$in": ["a", 1, None]}, False),
    (None, {"$in": ["a", 1, None]}, True),
    (["a"], {"$in": ["a"]}, False),
    ("a", {"$in": []}, False),
    ("a", {"$nin": []}, True),
    (None, {"$nin": ["a"]}, True),
    (None, {"$nin": ["a", None]}, False),
    (True, {"$nin": [1]}, True),
    # contains
    ("abc", {"$contains": "bc"}, True),
    ("abc", {"$contains": ""}, True),
    ("abc", {"$contains": "B"}, False),
    ("a.c", {"$contains": "%"}, False),
    ("123", {"$contains": 2}, False),
    (["a", "b"], {"$contains": "a"}, True),
    (["abc"], {"$contains": "a"}, False),
    ([1, "x"], {"$contains": 1.0}, True),
    ([True], {"$contains": 1}, False),
    ([["a"]], {"$contains": "a"}, False),
    ([None], {"$contains": ""}, False),
    ({"a": 1}, {"$contains": "a"}, False),
    (None, {"$contains": ""}, False),
    # not
    (None, {"$not": {"$gt": 1}}, True),
    (2, {"$not": {"$gt": 1}}, False),
    (2, {"$not": {"$gt": 1, "$lt": 2}}, True),
    (2, {"$gt": 1, "$lt": 3}, True),
    (2, {"$gt": 1, "$lt": 2}, False),
]


@pytest.mark.parametrize(("found", "condition", "expected"), TABLE)
def test_a_condition_means_what_the_table_says(found: Json, condition: dict[str, Json], expected: bool) -> None:
    assert matches(parse({"field": condition}), {"field": found, "other": "x"}) is expected
    if found is None:
        assert matches(parse({"field": condition}), {"other": "x"}) is expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({}, True),
        ({"a": 1, "n.b": "x"}, True),
        ({"a": 1, "n.b": "y"}, False),
        ({"$or": [{"a": 2}, {"n.b": "x"}]}, True),
        ({"$and": [{"a": 1}, {"n.b": "y"}]}, False),
        ({"$not": {"a": 1, "n.b": "y"}}, True),
        ({"$not": {"$or": [{"a": 1}, {"a": 2}]}}, False),
        ({"n.c.d": True}, True),
        ({"n.c": {"$exists": True}}, True),
        ({"n.b.x": {"$exists": False}}, True),
        ({"l.a": {"$exists": True}}, False),
        ({"l.0": {"$exists": True}}, False),
        ({"n": None}, False),
        ({"n": {"$ne": "x"}}, True),
        ({"größe": {"$gte": 3}}, True),
        ({"a": 1, "$or": [{"n.b": {"$in": ["x"]}}]}, True),
    ],
)
def test_fields_are_combined_and_reached_by_their_path(where: Json, expected: bool) -> None:
    document: dict[str, Json] = {"a": 1, "n": {"b": "x", "c": {"d": True}}, "l": [{"a": 1}], "größe": 3}
    assert matches(parse(where), document) is expected


ORDER: list[tuple[Operator, Callable[[Any, Any], bool]]] = [
    (Operator.GREATER, operator.gt),
    (Operator.AT_LEAST, operator.ge),
    (Operator.LESS, operator.lt),
    (Operator.AT_MOST, operator.le),
]


@given(st.sampled_from(PATHS), metadata(), scalars())
def test_not_equal_is_the_opposite_of_equal(path: tuple[str, ...], document: dict[str, Json], value: Json) -> None:
    assert not isinstance(value, list | dict)
    equal = matches(Comparison(path, Operator.EQUAL, value), document)
    assert matches(Comparison(path, Operator.NOT_EQUAL, value), document) is not equal
    assert matches(Membership(path, (value,)), document) is equal


@given(st.sampled_from(PATHS), metadata(), st.lists(scalars(), max_size=5))
def test_one_of_is_equal_to_any(path: tuple[str, ...], document: dict[str, Json], values: list[str]) -> None:
    equal = Disjunction(tuple(Comparison(path, Operator.EQUAL, value) for value in values))
    assert matches(Membership(path, tuple(values)), document) is matches(equal, document)


@given(clauses(), clauses(), metadata())
def test_not_both_is_either_not(one: Clause, two: Clause, document: dict[str, Json]) -> None:
    assert matches(Negation(Conjunction((one, two))), document) is matches(
        Disjunction((Negation(one), Negation(two))), document
    )
    assert matches(Negation(Disjunction((one, two))), document) is matches(
        Conjunction((Negation(one), Negation(two))), document
    )
    assert matches(Negation(Negation(one)), document) is matches(one, document)


@given(st.one_of(st.tuples(numbers(), numbers()), st.tuples(texts(), texts())))
def test_numbers_and_texts_are_ordered_as_python_orders_them(pair: tuple[int, int]) -> None:
    found, value = pair
    for symbol, meaning in ORDER:
        assert matches(Comparison(("a",), symbol, value), {"a": found}) is meaning(found, value)


@given(metadata())
def test_exists_is_not_null(document: dict[str, Json]) -> None:
    for path in PATHS:
        exists = value_at(document, path) is not None
        assert matches(Comparison(path, Operator.EXISTS, True), document) is exists
        assert matches(Comparison(path, Operator.NOT_EQUAL, None), document) is exists
        assert matches(Comparison(path, Operator.EXISTS, False), document) is not exists


def test_no_part_lets_everything_and_no_alternative_nothing_through() -> None:
    assert matches(EVERYTHING, {})
    assert not matches(Disjunction(()), {})
