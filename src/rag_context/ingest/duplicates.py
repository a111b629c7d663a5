"""Near-duplicates by SimHash: texts of similar terms get hashes that differ in few bits.

Charikar 2002, "Similarity estimation techniques from rounding algorithms"; weights and the bound of 3 bits for 64
as in Manku, Jain and Das Sarma 2007, "Detecting near-duplicates for web crawling".
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np

HASH_BITS = 64
NEAR_BITS = 3
"""Largest distance in bits of two texts that count as near-duplicates."""


def similarity_hash(terms: Sequence[str]) -> int:
    """SimHash of `terms`, each weighted by how often it occurs, as a signed 64-bit integer; 0 without terms."""
    counts = Counter(terms)
    if not counts:
        return 0
    digests = np.frombuffer(b"".join(map(_digest, counts)), np.uint8).reshape(-1, HASH_BITS // 8)
    weights = np.fromiter(counts.values(), np.float32, len(counts))
    ones = weights @ np.unpackbits(digests, axis=1).astype(np.float32)
    bits = np.packbits(ones > weights.sum() / 2)
    return int.from_bytes(bits.tobytes(), "big", signed=True)


def distance(left: int, right: int) -> int:
    """Bits in which two hashes differ, 0..64."""
    return ((left ^ right) & ((1 << HASH_BITS) - 1)).bit_count()


@lru_cache(maxsize=32_768)
def _digest(term: str) -> bytes:
    return blake2b(term.encode("utf-8", "surrogatepass"), digest_size=HASH_BITS // 8).digest()
