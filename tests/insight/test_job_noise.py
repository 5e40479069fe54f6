"""By how much equal runs of a job may differ, on calm and on busy machines."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from daskscope_service.insight.jobs.usual import differ_by

JOBS = 300


def runs(durations: Sequence[float]) -> list[dict[str, object]]:
    return [
        {"id": str(number), "status": "finished", "erred": 0, "duration": duration}
        for number, duration in enumerate(durations)
    ]


def differ(durations: Sequence[float], a: int, b: int) -> bool:
    usual = differ_by(runs(durations), str(a), str(b))
    assert usual is not None
    margin = max(0.1 * durations[a], 0.3, usual)
    return abs(durations[b] - durations[a]) > margin


def calm(chance: random.Random) -> float:
    return 10 * math.exp(chance.gauss(0, 0.02))


def noisy(chance: random.Random) -> float:
    return 10 * math.exp(chance.gauss(0, 0.12))


@pytest.mark.parametrize("draw", [calm, noisy])
def test_equal_runs_seldom_differ_also_after_a_change(
    draw: Callable[[random.Random], float],
) -> None:
    chance, pairs, named = random.Random(36), 0, 0
    for _ in range(JOBS):
        durations = [draw(chance) for _ in range(11)]
        # The job is calm since it changed, which says nothing of the runs before.
        changed = [*durations, *(20.0 + 0.01 * number for number in range(6))]
        for which in (durations, changed):
            for a, b in pairwise(range(11)):
                pairs += 1
                named += differ(which, a, b)
    assert named / pairs <= 0.03


def test_a_change_is_seen_before_there_are_enough_runs_to_confirm_it() -> None:
    chance = random.Random(36)
    for slower in (1, 2, 3):
        durations = [calm(chance) for _ in range(11)]
        durations += [1.5 * calm(chance) for _ in range(slower)]
        assert differ(durations, 10, len(durations) - 1)
        assert differ(durations, 4, len(durations) - 1)


def test_one_run_that_was_disturbed_hides_no_change() -> None:
    chance = random.Random(36)
    durations = [calm(chance) for _ in range(11)]
    durations[3] *= 2.2
    assert not differ(durations, 7, 8)
    assert differ([*durations, 20.0, 21.0, 20.5], 8, 11)


def test_too_few_runs_say_nothing() -> None:
    assert differ_by(runs([10.0, 11.0, 10.0, 10.0]), "0", "1") is None
