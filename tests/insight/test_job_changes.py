"""Change points: what is found of what was put in, and what is found where nothing was."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from daskscope_service.insight.jobs.changes import LEAST_RUNS, changes, spread, two_sided

#: The most false alarms, and the least changes that are found, as shares.
MOST_FALSE, LEAST_FOUND = 0.01, 0.95
#: Series of each kind, and how many runs they have.
SERIES, RUNS = 250, (5, 60)

Series = Callable[[random.Random, int], list[float]]


def noise(chance: random.Random, runs: int, part: float = 0.05) -> list[float]:
    """Runs of 100 s that vary by some part of it."""
    return [100 * math.exp(chance.gauss(0, part)) for _ in range(runs)]


def outliers(chance: random.Random, runs: int) -> list[float]:
    """One run of twenty takes a multiple."""
    return [
        value * (chance.uniform(1.5, 4) if chance.random() < 0.05 else 1)
        for value in noise(chance, runs)
    ]


def drift(chance: random.Random, runs: int) -> list[float]:
    """By and by 5 % more: less than what counts as a change."""
    return [value * (1 + 0.05 * at / runs) for at, value in enumerate(noise(chance, runs))]


def season(chance: random.Random, runs: int) -> list[float]:
    """Two runs of seven, those of a weekend, take a fifth longer."""
    return [value * (1.2 if at % 7 >= 5 else 1) for at, value in enumerate(noise(chance, runs))]


def noisy(chance: random.Random, runs: int) -> list[float]:
    return noise(chance, runs, 0.1)


@pytest.mark.parametrize("series", [noise, noisy, outliers, drift, season])
def test_nothing_is_found_where_nothing_changed(series: Series) -> None:
    chance = random.Random(f"{series.__name__}, 2026")
    found = sum(bool(changes(series(chance, chance.randint(*RUNS)))) for _ in range(SERIES))
    assert found <= MOST_FALSE * SERIES


@pytest.mark.parametrize(("sides", "between"), [(6, 6), (12, 8), (20, 6), (30, 12)], ids=str)
def test_a_change_and_its_repair_are_both_found(sides: int, between: int) -> None:
    chance = random.Random(f"{sides}, {between}, 2026")
    found = 0
    for _ in range(SERIES):
        values = noise(chance, sides), noise(chance, between), noise(chance, sides)
        series = [*values[0], *(2 * value for value in values[1]), *values[2]]
        found += [one.index for one in changes(series)] == [sides, sides + between]
    assert found >= LEAST_FOUND * SERIES


@pytest.mark.parametrize("step", [1.2, 1 / 1.2], ids=["slower", "quicker"])
@pytest.mark.parametrize("before", [(12, 20), (20, 60)], ids=str)
def test_a_step_of_a_fifth_is_found_within_five_runs(before: tuple[int, int], step: float) -> None:
    chance = random.Random(f"{before}, {step}, 2026")
    found = 0
    for _ in range(SERIES):
        old = noise(chance, chance.randint(*before))
        new = [step * value for value in noise(chance, 5)]
        seen = [changes(old + new[:more]) for more in range(1, 6)]
        found += any(one and abs(one[-1].index - len(old)) <= 1 for one in seen)
    assert found >= LEAST_FOUND * SERIES


def test_fewer_than_five_runs_say_nothing_and_few_only_what_all_of_them_say() -> None:
    assert changes([10.0, 99.0, 99.0, 99.0]) == []
    assert len([10.0, 10.5, 99.0, 99.0, 99.0]) == LEAST_RUNS
    [found] = changes([10.0, 10.5, 99.0, 98.0, 99.0])
    assert (found.index, found.runs_before, found.runs_after) == (2, 2, 3)
    assert found.chance is None
    assert changes([10.0, 10.5, 10.0, 99.0, 10.2, 99.0]) == []
    [same] = changes([10.0, 10.5, 10.1, 99.0, 98.0, 99.0, 97.0])
    assert (same.index, same.runs_after) == (3, 4)


def test_a_step_there_and_back_is_two_changes() -> None:
    chance = random.Random(7)
    values = noise(chance, 30) + [1.5 * value for value in noise(chance, 15)] + noise(chance, 20)
    there, back = changes(values)
    assert (there.index, back.index) == (30, 45)
    assert there.share == pytest.approx(0.5, abs=0.1)
    assert back.share == pytest.approx(-1 / 3, abs=0.1)
    assert (back.runs_before, back.runs_after) == (15, 20)


def test_the_same_runs_give_the_same_answer_and_short_ones_never_a_failure() -> None:
    chance = random.Random(3)
    values = noise(chance, 80) + [1.3 * value for value in noise(chance, 80)]
    assert changes(values) == changes(list(values))
    assert changes([5.0] * 40) == []
    [found] = changes([5.0] * 20 + [7.0] * 20)
    assert (found.index, found.chance) == (20, 0.0)
    assert spread([5.0] * 3) == 0.0


def test_apache_otava_finds_the_same_changes() -> None:
    """Its answers were recorded with version 0.8.0, a p-value of 0.001 and a magnitude of 10 %.

    It needs versions of NumPy and SciPy that the tests cannot have. The series have 20 to 45 runs
    that vary by 5 %, and no step, or one of a sixth to a half.
    """
    recorded = json.loads((Path(__file__).parent / "otava_answers.json").read_text())
    same = sum(
        [one.index for one in changes(each["values"])] == each["changes"] for each in recorded
    )
    assert len(recorded) == 100
    assert same >= 95


def test_examples_that_otava_publishes() -> None:
    step = [10.2, 9.5, 9.9, 10.0, 11.2, 9.0, 5.0, 5.1, 4.8, 4.8, 5.5]
    assert [one.index for one in changes(step)] == [6]
    metric1 = [154023, 138455, 143112, 149190, 132098, 151344, 155145, 148889, 149466, 148209]
    assert changes(metric1) == []


#: Two-sided, from tables of Student's distribution.
TABLE: Sequence[tuple[float, int, float]] = (
    (12.706, 1, 0.05),
    (2.228, 10, 0.05),
    (4.587, 10, 0.001),
    (3.460, 60, 0.001),
    (1.984, 100, 0.05),
)


@pytest.mark.parametrize(("t", "freedom", "expected"), TABLE)
def test_chances_are_those_of_student_s_tables(t: float, freedom: int, expected: float) -> None:
    assert two_sided(t, freedom) == pytest.approx(expected, rel=0.01)
