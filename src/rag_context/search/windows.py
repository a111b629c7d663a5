"""The rule of event time: passages from near a time that the question names come first. Pure.

A boost and never a filter: people date things roughly, and speak of a day on another one. On 189 dated questions to
conversations in use, half-lives of 3 to 15 days and weights of .2 to .6 ranked equally well; docs/quality.md shows what
the weight and the threshold change in the open set.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import MAXYEAR, MINYEAR, datetime, timedelta

import numpy as np

from rag_context.domain.search import ChunkRef, Filter, Floats
from rag_context.domain.times import microseconds, moment
from rag_context.search.rules import (
    HALF_LIFE_DAYS,
    OUTSIDE,
    THRESHOLD_SHARE,
    TIME_WEIGHT,
    YEARS_BACK,
)

_DAY = timedelta(days=1)
_DAY_US = _DAY / timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Window:
    """A time that a question names: `since <= t < until`, where None is open.

    `phrase` is how the question puts it. Without a year it is `yearly`, the last such period by the time of asking,
    and stands for those of other years too.
    """

    phrase: str
    since: datetime | None = None
    until: datetime | None = None
    yearly: bool = False


def merged(windows: Sequence[Window]) -> Window | None:
    """All windows as one, from the first to the last of them; None of none."""
    if len(windows) < 2:
        return windows[0] if windows else None
    since, until = [each.since for each in windows], [each.until for each in windows]
    return Window(
        ", ".join(each.phrase for each in windows),
        None if None in since else min(at for at in since if at is not None),
        None if None in until else max(at for at in until if at is not None),
        any(each.yearly for each in windows),
    )


def nearnesses(windows: Sequence[Window], chunks: Sequence[ChunkRef]) -> Floats:
    """How near each chunk is to the nearest of the windows, `(n,)`: 1 inside of one, else `.8 * 2^(-days / 7)`.

    0 where its time is not known.
    """
    known = [chunk.occurred_us for chunk in chunks]
    times = np.array([math.nan if at is None else at for at in known], dtype=np.float64)
    gaps = np.full(len(times), np.inf)  # in days
    for window in (each for found in windows for each in _around(found, known)):
        since = -np.inf if window.since is None else microseconds(window.since)
        until = np.inf if window.until is None else microseconds(window.until)
        after = np.where(times >= until, np.maximum(times - until, 1.0), 0.0)  # its end is outside
        np.fmin(gaps, np.where(times < since, since - times, after) / _DAY_US, out=gaps)
    near = np.where(gaps > 0.0, OUTSIDE * 2.0 ** (-gaps / HALF_LIFE_DAYS), 1.0)
    near[np.isnan(times)] = 0.0
    return near


def time_boosts(windows: Sequence[Window], chunks: Sequence[ChunkRef], scores: Floats) -> Floats:
    """What each score `(n,)` of a chunk gains."""
    if not windows:
        return np.zeros_like(scores)
    return TIME_WEIGHT * float(scores.max(initial=0.0)) * nearnesses(windows, chunks)


def threshold_shares(windows: Sequence[Window], chunks: Sequence[ChunkRef]) -> Floats:
    """How much of the default threshold applies to each chunk, `(n,)`; all of it outside, and in open windows."""
    closed = [each for each in windows if each.since is not None and each.until is not None]
    if not closed:
        return np.ones(len(chunks))
    return np.where(nearnesses(closed, chunks) == 1.0, THRESHOLD_SHARE, 1.0)


def near_filters(windows: Sequence[Window], where: Filter) -> Iterator[Filter]:
    """Filters that let through what is near a window and passes `where`, the latest years first."""
    for window in windows:
        last = window.since.year if window.yearly and window.since is not None else 0
        years = range(last, last - YEARS_BACK - 1, -1) if last else (0,)
        for year in years:
            each = _in_year(window, year) if last else window
            since, until = _widened(each.since, -1), _widened(each.until, 1)
            since = max((at for at in (since, where.since) if at is not None), default=None)
            until = min((at for at in (until, where.until) if at is not None), default=None)
            if since is None or until is None or since < until:
                yield replace(where, since=since, until=until)


def _widened(bound: datetime | None, sign: int) -> datetime | None:
    """The bound, so much further out that what is between them has the least nearness that counts as near."""
    try:
        return None if bound is None else bound + sign * HALF_LIFE_DAYS * _DAY
    except OverflowError:
        return None


def _around(window: Window, times: Sequence[int | None]) -> Iterator[Window]:
    """The window; a yearly one in the years of the moments (microseconds), and in those before and after them."""
    if not window.yearly:
        yield window
        return
    years = {moment(at).year for at in times if at is not None}
    for year in sorted({year + step for year in years for step in (-1, 0, 1)}):
        yield _in_year(window, year)


def _in_year(window: Window, year: int) -> Window:
    """A yearly window, as it begins in another year."""
    if window.since is None or window.until is None:
        return window
    since = moved(window.since, year - window.since.year)
    return replace(window, since=since, until=moved(window.until, year - window.since.year))


def moved(at: datetime, years: int) -> datetime:
    """The same day so many years later; 29 February is 1 March where there is none."""
    year = min(max(at.year + years, MINYEAR), MAXYEAR)
    try:
        return at.replace(year=year)
    except ValueError:
        return at.replace(year=year, month=3, day=1)
