"""Random metadata and filters: few names and values that collide often, and those that clients confuse."""

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rag_context.domain.clauses import (
    Clause,
    Comparison,
    Conjunction,
    Disjunction,
    Membership,
    Negation,
    Operator,
    Path,
    Scalar,
)
from rag_context.domain.documents import Json

PATHS: tuple[Path, ...] = (
    ("a",),
    ("b",),
    ("c",),
    ("größe",),
    ("n", "a"),
    ("n", "b"),
    ("n", "n", "a"),
    ("a", "b"),
    ("with space",),
    ("quote\"and'`",),
)
_KEYS = ("a", "b", "c", "n", "größe", "with space", "quote\"and'`")

NUMBERS = (
    0,
    1,
    -1,
    2,
    1.0,
    -0.0,
    0.1,
    1.5,
    -1e308,
    5e-324,
    2**53,
    2**53 + 1,
    float(2**53),
    2**63 - 1,
    2**63,
    2**63 + 1,
    -(2**63) - 1,
    2**64 + 1,
    float(2**64),
    10**30,
    1e30,
)
TEXTS = (
    "",
    "a",
    "b",
    "ab",
    "aB",
    "1",
    "1.0",
    "true",
    "null",
    "é",
    "e\u0301",
    "日本語",
    "🙂",
    "a\u0000b",
    "%",
    "_",
    "\\",
    '"',
)


def numbers() -> SearchStrategy[int | float]:
    """Numbers that are close to each other, or to what 64 bits can hold."""
    return st.one_of(
        st.sampled_from(NUMBERS), st.integers(-3, 3), st.floats(allow_nan=False, allow_infinity=False, width=32)
    )


def texts() -> SearchStrategy[str]:
    """Texts that look like something else, and others."""
    return st.one_of(st.sampled_from(TEXTS), st.text(st.characters(exclude_categories=["Cs"]), max_size=4))


def scalars() -> SearchStrategy[Scalar]:
    """Anything that may stand in a filter."""
    return st.one_of(st.none(), st.booleans(), numbers(), texts())


def metadata() -> SearchStrategy[dict[str, Json]]:
    """Metadata of a document: flat, nested, with lists, with nulls."""
    values: SearchStrategy[Json] = st.recursive(
        scalars(),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_KEYS), inner, max_size=3)
        ),
        max_leaves=6,
    )
    return st.dictionaries(st.sampled_from(_KEYS), values, max_size=4)


def documents(*, most: int = 12) -> SearchStrategy[list[dict[str, Json]]]:
    """The metadata of some documents."""
    return st.lists(metadata(), max_size=most)


def clauses() -> SearchStrategy[Clause]:
    """Filters, as `parse` could have made them."""
    paths = st.sampled_from(PATHS)
    values = st.one_of(st.booleans(), numbers(), texts())
    ordered = st.one_of(numbers(), texts())
    order = (Operator.GREATER, Operator.AT_LEAST, Operator.LESS, Operator.AT_MOST)
    leaves: SearchStrategy[Clause] = st.one_of(
        st.builds(Comparison, paths, st.sampled_from((Operator.EQUAL, Operator.NOT_EQUAL)), scalars()),
        st.builds(Comparison, paths, st.sampled_from(order), ordered),
        st.builds(Comparison, paths, st.just(Operator.EXISTS), st.booleans()),
        st.builds(Comparison, paths, st.just(Operator.CONTAINS), values),
        st.builds(Membership, paths, st.lists(scalars(), max_size=4).map(tuple)),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Negation, inner),
            st.builds(Conjunction, st.lists(inner, max_size=3).map(tuple)),
            st.builds(Disjunction, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        ),
        max_leaves=5,
    )
