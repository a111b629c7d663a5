"""Near-duplicates by SimHash (T-2)."""

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from rag_context.ingest.chunk_context import HASH_BITS, NEAR_BITS, distance, similarity_hash

TERMS = [f"term{number}" for number in range(400)]


def test_a_small_change_is_near_and_another_text_is_far() -> None:
    changed = [*TERMS[:-2], "other", "words"]
    different = [f"else{number}" for number in range(400)]
    assert distance(similarity_hash(TERMS), similarity_hash(changed)) <= NEAR_BITS
    assert distance(similarity_hash(TERMS), similarity_hash(different)) > 4 * NEAR_BITS


def test_order_does_not_matter_but_frequency_does() -> None:
    assert similarity_hash(TERMS) == similarity_hash(TERMS[::-1])
    assert similarity_hash(["a", "b", "b", "c", "c"]) != similarity_hash(["a", "a", "a", "b", "c"])


def test_one_term_outweighs_what_it_outnumbers() -> None:
    assert similarity_hash(["a"] * 9 + ["b"] * 4 + ["c"] * 4) == similarity_hash(["a"])


def test_no_terms_hash_to_zero() -> None:
    assert similarity_hash([]) == 0


def test_hashes_are_the_same_in_another_process() -> None:
    code = "from rag_context.ingest.chunk_context import similarity_hash as h; print(h(['one', 'two', 'two']))"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert int(other.stdout) == similarity_hash(["one", "two", "two"]) == -725548565580347645


@given(st.lists(st.text()))
def test_hashes_fit_a_signed_64_bit_column(terms: list[str]) -> None:
    assert -(2**63) <= similarity_hash(terms) < 2**63


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_distance_counts_differing_bits(left: int, right: int) -> None:
    assert distance(left, right) == distance(right, left)
    assert distance(left, left) == 0
    assert distance(left, ~left) == HASH_BITS
    assert distance(left, right) == sum((left >> bit & 1) != (right >> bit & 1) for bit in range(HASH_BITS))
