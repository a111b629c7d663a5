"""Cuts a stretch of text into pieces of bounded size: whole units, the strongest boundary near the end, overlap."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_context.ingest.chunking.blocks import Boundary, Range, Strength, substantial
from rag_context.ingest.chunking.ruler import Ruler

_CLAUSE = re.compile(r"[,;:)\]}]\s++|[，；：、]")
_SPACE = re.compile(r"\s++")


@dataclass(frozen=True, slots=True)
class ChunkSizes:
    """Bounds of a chunk, in tokens of the embedder."""

    max_tokens: int
    overlap: int


class Packer:
    """Cuts stretches of one text at its `boundaries` (ascending) into pieces of at most `sizes.max_tokens`."""

    def __init__(self, ruler: Ruler, boundaries: Sequence[Boundary], sizes: ChunkSizes) -> None:
        self._ruler = ruler
        self._text = ruler.text
        self._boundaries = boundaries
        self._offsets = [boundary.offset for boundary in boundaries]
        self._sizes = sizes

    def pieces(self, stretch: Range) -> Iterator[Range]:
        """Pieces that cover `stretch` in order; each starts at the end of the one before, less the overlap."""
        covered, end = stretch
        start = covered
        while covered < end:
            cut = end if self._rest_fits(start, end) else self._cut(covered, self._limit(start, covered, end))
            fitted = self._ruler.fitting(start, cut, self._sizes.max_tokens)
            if fitted <= covered:
                start = covered
                fitted = self._ruler.fitting(start, cut, self._sizes.max_tokens)
            if fitted < cut:
                cut = min(end, self._behind_space(fitted))
            yield start, cut
            start, covered = self._overlap_start(start, cut), cut

    def _rest_fits(self, start: int, end: int) -> bool:
        return self._ruler.count(start, end) <= self._sizes.max_tokens

    def _limit(self, start: int, covered: int, end: int) -> int:
        """How far a piece may reach: full, but so that the last piece is large enough to stand alone."""
        full = self._ruler.reach(start, self._sizes.max_tokens)
        leaving = self._ruler.back(end, substantial(self._sizes.max_tokens))
        return max(min(full, leaving), covered + 1)

    def _cut(self, covered: int, limit: int) -> int:
        """Where to end a piece that holds `covered..` and may reach up to `limit`.

        The strongest boundary in the last quarter; of equals the last. A start of a turn, or a whole sentence that
        leaves more of the piece empty, comes before any cut inside a sentence.
        """
        floor = self._floor(covered, limit)
        low = bisect_right(self._offsets, self._ruler.reach(covered, 0))
        high = bisect_right(self._offsets, limit)
        near = max(low, bisect_left(self._offsets, floor))
        for index in range(high - 1, low - 1, -1):
            if self._boundaries[index].strength is Strength.TURN:
                return self._offsets[index]
        best = self._strongest(near, high)
        if best is not None and best.strength > Strength.WRAP:
            return best.offset
        return self._last_whole(low, near) or (best.offset if best else self._inside(floor, limit))

    def _floor(self, covered: int, limit: int) -> int:
        return self._ruler.reach(covered, self._ruler.count(covered, limit) * 3 // 4)

    def _strongest(self, low: int, high: int) -> Boundary | None:
        return max(reversed(self._boundaries[low:high]), key=lambda boundary: boundary.strength, default=None)

    def _last_whole(self, low: int, high: int) -> int | None:
        """The last boundary in `low..high` (indices), if the unit that begins there fits into a piece of its own."""
        for index in range(high - 1, low - 1, -1):
            if self._boundaries[index].strength > Strength.WRAP:
                start = self._offsets[index]
                reach = self._ruler.reach(start, self._sizes.max_tokens)
                following = self._boundaries[index + 1 : bisect_right(self._offsets, reach)]
                fits = reach == len(self._text) or any(unit.strength > Strength.WRAP for unit in following)
                return start if fits else None
        return None

    def _inside(self, floor: int, limit: int) -> int:
        """A cut inside a sentence: behind its last clause, else its last word, else anywhere."""
        stretch = self._text[floor:limit]
        for pattern in (_CLAUSE, _SPACE):
            if ends := [match.end() for match in pattern.finditer(stretch)]:
                return floor + ends[-1]
        return limit

    def _overlap_start(self, start: int, cut: int) -> int:
        """Where the piece behind `cut` begins, so that it repeats whole units, else whole words."""
        tokens = min(self._sizes.overlap, self._ruler.count(start, cut) // 4)
        if not tokens:
            return cut
        low = max(self._ruler.back(cut, tokens), start + 1)
        units = self._boundaries[bisect_left(self._offsets, low) : bisect_left(self._offsets, cut)]
        for unit in units:
            if unit.strength > Strength.WRAP:
                return unit.offset
        if units:
            return units[0].offset
        space = _SPACE.search(self._text, low, cut)
        return space.end() if space else cut

    def _behind_space(self, offset: int) -> int:
        space = _SPACE.match(self._text, offset)
        return space.end() if space else offset
