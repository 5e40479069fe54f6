"""Finds when a job changed: change points in the durations of its runs, oldest first.

Fewer than five runs have no change. With five to twelve, there is a change if at least the last
three runs are all outside of the variation of the runs before. From thirteen on, the method is
E-divisive with means (Matteson and James 2014), with Student's t-test instead of permutations, as
in Hunter (Fleming et al. 2023) and Apache Otava: the same runs always give the same answer. If it
finds nothing, it is applied to parts of the runs, as in seeded binary segmentation (Kovács et al.
2023). It works on logarithms, because durations vary by shares of themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import fmean, median, variance

#: The least runs that can have a change, and the least that the statistical test needs.
LEAST_RUNS, MANY_RUNS = 5, 13
#: With few runs: how many of the last ones must all have changed.
_LAST = 3
#: With many runs: the least number on each side of a change.
_SIDE = 4
#: The least change, as a share of the duration before, and for few runs also in seconds.
LEAST_SHARE, _LEAST_SECONDS = 0.10, 1.0
#: The highest p-value of a change, among this many runs; fewer runs count as this many.
MOST_CHANCE, _RUNS_OF_CHANCE = 0.0005, 20
#: Candidates may have ten times that p-value; they are then tested between their neighbours.
_FIRST_CHANCE = 10 * MOST_CHANCE
#: The factor from a median absolute deviation to a standard deviation, and how many standard
#: deviations make a change.
_NORMAL, _MUCH = 1.4826, 3.0


@dataclass(frozen=True, slots=True)
class Change:
    """From run ``index`` on, runs take ``after`` instead of ``before`` seconds, as medians.

    ``chance`` is the p-value, None if there are too few runs for the test.
    """

    index: int
    before: float
    after: float
    runs_before: int
    runs_after: int
    chance: float | None

    @property
    def share(self) -> float:
        """By how much the duration changed, as a share: 0.38 is 38 % more."""
        return self.after / self.before - 1


def changes(values: Sequence[float]) -> list[Change]:
    """Return the change points of ``values``, seconds of runs in the order of their start.

    ``values`` are those of passed runs, all above zero. Return [] if there are too few.
    """
    if len(values) < LEAST_RUNS:
        return []
    if len(values) < MANY_RUNS:
        return _of_few(values)
    logs = [math.log(value) for value in values]
    points = _split(logs, 0, len(logs))
    return _strongest(values, logs, points)


def spread(values: Sequence[float]) -> float:
    """Return a robust standard deviation of ``values``, as a share of their median."""
    middle = median(values)
    return _NORMAL * median(abs(value - middle) for value in values) / middle


def _of_few(values: Sequence[float]) -> list[Change]:
    # Take the earliest place after which all runs differ, so that a change stays where it is.
    for place in range(2, len(values) - _LAST + 1):
        before, after = values[:place], values[place:]
        usual, now = median(before), median(after)
        # The margin comes from the variation of both sides and from the range of the runs before:
        # a few runs may be alike by chance.
        strays = [abs(value - usual) for value in before] + [abs(value - now) for value in after]
        least = LEAST_SHARE * (1 + 2 / place) * usual
        margin = max(_MUCH * _NORMAL * median(strays), least, _LEAST_SECONDS)
        apart = (max(before) - min(before)) * (1 + 4 / place)
        slower = min(after) > max(usual + margin, max(before) + apart / 2)
        faster = max(after) < min(usual - margin, min(before) - apart / 2)
        if slower or faster:
            return [Change(place, usual, now, len(before), len(after), None)]
    return []


def _split(logs: Sequence[float], first: int, end: int) -> list[int]:
    """Return the candidates for changes between ``first`` and ``end``, in order."""
    chance, place = _likeliest(logs, first, end, end - first)
    if place is None or chance > _FIRST_CHANCE:
        # A change and its reversal cancel each other out if all runs are tested together.
        parts = [_likeliest(logs, *part, end - first) for part in _parts(first, end)]
        chance, place = min(parts, key=lambda one: one[0], default=(1.0, None))
    if place is None or chance > _FIRST_CHANCE:
        return []
    return [*_split(logs, first, place), place, *_split(logs, place, end)]


def _likeliest(
    logs: Sequence[float], first: int, end: int, places: int
) -> tuple[float, int | None]:
    """Return the p-value and the place of the likeliest change between ``first`` and ``end``.

    ``places`` is how many runs the search covers. Return 1.0 and None if there is no candidate.
    """
    place = _most_apart(logs, first, end)
    if place is None:
        return 1.0, None
    return _chance(logs[first:place], logs[place:end], places), place


def _parts(first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield overlapping parts of the runs, from two thirds of their number down to the least."""
    length = (end - first) * 2 // 3
    while length >= 2 * _SIDE:
        step = max(length // 2, 1)
        for start in (*range(first, end - length, step), end - length):
            yield start, start + length
        length = length * 2 // 3


def _most_apart(logs: Sequence[float], first: int, end: int) -> int | None:
    """Return where the energy distance of both sides, weighted by their sizes, is largest."""
    part = logs[first:end]
    count = len(part)
    if count < 2 * _SIDE:
        return None
    # Sums of distances among the first n, and from the first n to all: the other sums follow.
    to_all = [sum(abs(one - other) for other in part) for one in part]
    within = [0.0]
    for place, one in enumerate(part):
        within.append(within[-1] + sum(abs(one - other) for other in part[:place]))
    whole, to_first = within[-1], [0.0, *accumulate(to_all)]
    best, where = 0.0, None
    for place in range(_SIDE, count - _SIDE + 1):
        left, right = place, count - place
        inside = within[place]
        between = to_first[place] - 2 * inside
        outside = whole - inside - between
        energy = (
            2 * between / (left * right)
            - 2 * inside / (left * (left - 1))
            - 2 * outside / (right * (right - 1))
        )
        weighed = energy * left * right / count
        if weighed > best:
            best, where = weighed, place
    return None if where is None else first + where


def _strongest(
    values: Sequence[float], logs: Sequence[float], points: Sequence[int]
) -> list[Change]:
    """Return the changes at ``points``, without those too weak against their neighbours."""
    points = list(points)
    while points:
        weighed = _weigh(values, logs, points)
        weak = [
            one for one in weighed if (one.chance or 0.0) > MOST_CHANCE or not _is_large(logs, one)
        ]
        if not weak:
            return weighed
        # Drop the least certain one first: the runs on both of its sides then become one side.
        points.remove(max(weak, key=lambda one: one.chance or 0.0).index)
    return []


def _is_large(logs: Sequence[float], one: Change) -> bool:
    """Return whether a change is large enough, even after subtracting two standard errors."""
    if max(one.after / one.before, one.before / one.after) < 1 + LEAST_SHARE:
        return False
    left = logs[one.index - one.runs_before : one.index]
    right = logs[one.index : one.index + one.runs_after]
    error = math.sqrt(variance(left) / len(left) + variance(right) / len(right))
    surely = abs(fmean(left) - fmean(right)) - 2 * error
    return surely > math.log1p(LEAST_SHARE / 2)


def _weigh(values: Sequence[float], logs: Sequence[float], points: Sequence[int]) -> list[Change]:
    bounds = [0, *points, len(values)]
    weighed = []
    for (first, place), (_, end) in pairwise(pairwise(bounds)):
        before, after = values[first:place], values[place:end]
        chance = _chance(logs[first:place], logs[place:end], end - first)
        weighed.append(
            Change(place, median(before), median(after), len(before), len(after), chance)
        )
    return weighed


def _chance(left: Sequence[float], right: Sequence[float], places: int) -> float:
    """Return the p-value of Student's t-test for the difference of two means.

    It grows with ``places``: the more places are tested, the likelier one differs by chance.
    """
    n, m = len(left), len(right)
    freedom = n + m - 2
    mean_left, mean_right = fmean(left), fmean(right)
    squares = sum((value - mean_left) ** 2 for value in left)
    squares += sum((value - mean_right) ** 2 for value in right)
    difference = abs(mean_left - mean_right)
    if squares <= 1e-24:
        return 0.0 if difference > 1e-12 else 1.0
    t = difference / math.sqrt(squares / freedom * (1 / n + 1 / m))
    return min(1.0, max(1.0, places / _RUNS_OF_CHANCE) * two_sided(t, freedom))


def two_sided(t: float, freedom: int) -> float:
    """Return the two-sided p-value of ``t`` in Student's distribution."""
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
        + a * math.log(x) + b * math.log1p(-x)
    ) / a  # fmt: skip
    tiny = 1e-300
    fraction, c, d = 1.0, 1.0, 0.0
    for step in range(500):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / ((1 + term * d) or tiny)
        c = (1 + term / c) or tiny
        fraction *= c * d
        if step and abs(c * d - 1) < 1e-12:
            break
    return front * (fraction - 1)
