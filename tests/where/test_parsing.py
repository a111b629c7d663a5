"""From JSON to a filter, and what is rejected with which messages."""

import json
import math

import pytest
from hypothesis import given

from rag_context.domain.clauses import (
    EVERYTHING,
    Clause,
    Comparison,
    Conjunction,
    Disjunction,
    Membership,
    Negation,
    Operator,
    Path,
)
from rag_context.domain.documents import Json
from rag_context.domain.where import MAX_LEVELS, matches, parse
from rag_context.errors import InvalidInputError
from tests.collections.strategies import clauses, metadata

A: Path = ("a",)


@pytest.mark.parametrize(
    ("where", "clause"),
    [
        ({}, EVERYTHING),
        (None, EVERYTHING),
        ({"a": 1}, Comparison(A, Operator.EQUAL, 1)),
        ({"a": None}, Comparison(A, Operator.EQUAL, None)),
        ({"a.b.c": "x"}, Comparison(("a", "b", "c"), Operator.EQUAL, "x")),
        ({"a": {"$ne": True}}, Comparison(A, Operator.NOT_EQUAL, True)),
        ({"a": {"$in": [1, None]}}, Membership(A, (1, None))),
        ({"a": {"$nin": ["x"]}}, Negation(Membership(A, ("x",)))),
        ({"a": {"$not": {"$gt": 1}}}, Negation(Comparison(A, Operator.GREATER, 1))),
        (
            {"a": {"$gt": 1, "$lt": 3}},
            Conjunction((Comparison(A, Operator.GREATER, 1), Comparison(A, Operator.LESS, 3))),
        ),
        (
            {"a": 1, "b": {"$exists": False}},
            Conjunction((Comparison(A, Operator.EQUAL, 1), Comparison(("b",), Operator.EXISTS, False))),
        ),
        (
            {"$or": [{"a": 1}, {"a": {"$contains": "x"}}]},
            Disjunction((Comparison(A, Operator.EQUAL, 1), Comparison(A, Operator.CONTAINS, "x"))),
        ),
        ({"$not": {"a": 1}}, Negation(Comparison(A, Operator.EQUAL, 1))),
        ({"a": {"$eq": 2**70}}, Comparison(A, Operator.EQUAL, 2**70)),
    ],
)
def test_a_filter_is_read_from_json_and_from_its_text(where: Json, clause: Clause) -> None:
    assert parse(where) == clause
    assert parse(json.dumps(where)) == clause


@pytest.mark.parametrize(
    "text", ["invalid-json-string", "", "{", '{"a":}', "{'a': 1}", '{"a": NaN}', '{"a": Infinity}']
)
def test_what_is_not_json_is_reported_as_such(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(text)
    assert str(caught.value) == "Invalid 'where' filter: must be valid JSON"
    assert [detail.field for detail in caught.value.details] == ["where"]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ([], "must be a JSON object"),
        (5, "must be a JSON object"),
        ('"text"', "must be a JSON object"),
        ({"a": {"$regex": "x"}}, "unknown operator '$regex'; there are $and, $or, $not, $eq"),
        ({"$nor": [{"a": 1}]}, "unknown operator '$nor'"),
        ({"$gt": 1}, "'$gt' needs a field"),
        ({"a": {"$and": [{"$gt": 1}]}}, "'$and' cannot be below a field"),
        ({"a": {"b": 1}}, "'a' is compared with an object; a field in it is 'a.b'"),
        ({"a": {"$gt": 1, "b": 2}}, "a field in it is 'a.b'"),
        ({"a": [1]}, "'a' is compared with a list; use $in (one of these) or $contains (a list holds this)"),
        ({"a": {}}, "'a' has no condition"),
        ({"a": {"$eq": [1]}}, "'$eq' does not take a list or an object"),
        ({"a": {"$gt": None}}, "'$gt' takes a number or a string"),
        ({"a": {"$lte": True}}, "'$lte' takes a number or a string"),
        ({"a": {"$exists": 1}}, "'$exists' takes true or false"),
        ({"a": {"$contains": None}}, "'$contains' takes a string, a number, true or false"),
        ({"a": {"$in": "x"}}, "'$in' takes a list"),
        ({"a": {"$nin": [[1]]}}, "'$nin' takes a list of strings, numbers, booleans and nulls"),
        ({"$and": []}, "'$and' takes a list of at least one filter"),
        ({"$or": {"a": 1}}, "'$or' takes a list of at least one filter"),
        ({"$or": [{}]}, "'$or' takes filters, which are JSON objects that are not empty"),
        ({"$not": 1}, "'$not' takes filters"),
        ({"a": {"$not": 1}}, "'$not' takes filters"),
        ({"": 1}, "'' is not a field"),
        ({"a..b": 1}, "'a..b' is not a field"),
        ({"a.$b": 1}, "'a.$b' is not a field"),
        ({"a": math.nan}, "a number in it is NaN or infinite"),
        ('{"a": 1e999}', "a number in it is NaN or infinite"),
        ({"a": {"$in": [math.inf]}}, "a number in it is NaN or infinite"),
        ({"a": 2**1025}, "a number in it is an integer of more than 1024 bits"),
        ('{"a": "\\ud800"}', "holds half a surrogate pair"),
        ('{"\\ud800": 1}', "is not a field"),
        ({"a": b"bytes"}, "holds a bytes, which JSON does not have"),
        ({1: 2}, "has a key that is a int"),
        ('{"a": 1, "a": 2}', "has 'a' twice; put both conditions into $and"),
        ('{"a": {"$gt": 1, "$gt": 2}}', "has '$gt' twice"),
        ({"a." * 40 + "b": 1}, "is nested deeper than 32 levels"),
        ({f"f{number}": 1 for number in range(65)}, "asks for more than 64 fields"),
        ({"a": {"$in": [1] * 10_001}}, "has more than 10000 conditions"),
        ('{"a": "%s"}' % ("x" * 1_000_000), "is longer than 1000000 characters"),
        ({"x" * 5000: {"y": 1}}, "is compared with an object"),
    ],
)  # fmt: skip
def test_an_invalid_filter_is_rejected_with_the_reason(where: object, message: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(where)
    assert str(caught.value).startswith("Invalid 'where' filter: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300
    assert str(caught.value).isprintable()


def nested(levels: int, operator: str) -> str:
    opening, closing = (f'{{"{operator}":', "}") if operator == "$not" else (f'{{"{operator}":[', "]}")
    return opening * levels + '{"a":1}' + closing * levels


@pytest.mark.parametrize("operator", ["$and", "$or", "$not"])
def test_filters_nest_to_a_depth_and_no_further(operator: str) -> None:
    assert matches(parse(nested(MAX_LEVELS, operator)), {"a": 1})
    for levels in (MAX_LEVELS + 1, 1_000, 100_000):
        with pytest.raises(
            InvalidInputError, match=r"^Invalid 'where' filter: is (nested deeper than 32 levels|longer)"
        ):
            parse(nested(levels, operator))
    deep: Json = {"a": 1}
    for _ in range(1_000):
        deep = {"$not": deep} if operator == "$not" else {operator: [deep]}
    with pytest.raises(InvalidInputError, match="nested deeper than 32 levels"):
        parse(deep)


def test_not_below_a_field_is_a_level_too() -> None:
    deep: Json = {"$eq": 1}
    for _ in range(MAX_LEVELS):
        deep = {"$not": deep}
    assert matches(parse({"a": deep}), {"a": 1})
    with pytest.raises(InvalidInputError, match="nested deeper than 32 levels"):
        parse({"a": {"$not": deep}})


def written(clause: Clause) -> Json:
    """The filter as a person would have written it."""
    match clause:
        case Comparison(path, operator, value):
            return {".".join(path): {operator.value: value}}
        case Membership(path, values):
            return {".".join(path): {"$in": list(values)}}
        case Conjunction(parts):
            return {"$and": [written(part) for part in parts]} if parts else {}
        case Disjunction(parts):
            return {"$or": [written(part) for part in parts]}
        case Negation(part):
            return {"$not": written(part)}


@given(clauses(), metadata())
def test_a_filter_means_the_same_when_it_was_written_and_read(clause: Clause, document: dict[str, Json]) -> None:
    try:
        read = parse(json.dumps(written(clause)))
    except InvalidInputError as error:
        assert "not empty" in str(error)
    else:
        assert matches(read, document) is matches(clause, document)
