"""Which metadata may be stored."""

import math

import pytest
from hypothesis import given

from rag_context.domain.documents import Json
from rag_context.domain.where import check_metadata
from rag_context.errors import InvalidInputError
from tests.collections.strategies import metadata


def deep(levels: int) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for _ in range(levels - 1):
        found = {"a": found}
    return found


@given(metadata())
def test_what_json_can_say_is_let_through(document: dict[str, Json]) -> None:
    check_metadata(document)


def test_it_may_be_nested_to_a_depth() -> None:
    check_metadata(deep(32))


LIST: list[Json] = []
for _ in range(5000):
    LIST = [LIST]


@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        ({"a.b": 1}, "metadata", "has the key 'a.b'; a key holds no dot and does not begin with '$'"),
        ({"n": {"$eq": 1}}, "metadata.n", "has the key '$eq'"),
        ({"": 1}, "metadata", "has an empty key"),
        ({1: 1}, "metadata", "has a key that is a int; keys are strings"),
        ({"a": math.nan}, "metadata.a", "is NaN or infinite"),
        ({"a": [1, {"b": -math.inf}]}, "metadata.a[1].b", "is NaN or infinite"),
        ({"a": 2**1024}, "metadata.a", "is an integer of more than 1024 bits"),
        ({"a": "\ud800"}, "metadata.a", "holds half a surrogate pair"),
        ({"\udc00": 1}, "metadata", "holds half a surrogate pair"),
        ({"a": {1, 2}}, "metadata.a", "is a set, which JSON does not have"),
        ({"a": b""}, "metadata.a", "is a bytes, which JSON does not have"),
        (deep(33), "metadata" + ".a" * 30, "is nested deeper than 32 levels"),
        ({"a": LIST}, "metadata.a[0]", "is nested deeper than 32 levels"),
        ({"a": [0] * 10_000}, "metadata", "has more than 10000 values"),
        ({"a": "x" * 1_000_000}, "metadata", "has more than 1000000 characters"),
    ],
)
def test_what_could_not_be_stored_or_queried_is_rejected_by_its_position(
    document: dict[str, Json], field: str, said: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        check_metadata(document)
    (detail,) = caught.value.details
    assert detail.field.startswith(field)
    assert said in detail.message
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300
    assert str(caught.value).encode()


def test_the_field_path_starts_with_the_callers_prefix() -> None:
    with pytest.raises(InvalidInputError, match=r"^documents\[3\]\.metadata\.n has an empty key\.$") as caught:
        check_metadata({"n": {"": 1}}, "documents[3].metadata")
    assert caught.value.details[0].field == "documents[3].metadata.n"
