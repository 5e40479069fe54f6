"""What a cluster's threads did while a computation ran: the time that it is measured in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from daskscope import names
from daskscope_service.pages.cluster_context import Threads, of_computation, threads
from daskscope_service.telemetry.store import SeriesLine

#: A task ran from 100 to 118 on one of two threads. A beat each two seconds; its end is reported.
_TIMES = range(90, 130, 2)
_LINES = {
    names.TASK_TIME.name: [
        SeriesLine({names.TASK_PREFIX: prefix, names.TASK_ACTIVITY: activity}, "value", "counter",
             "s", [1000 * time for time in _TIMES], [float(total(time)) for time in _TIMES])
        for prefix, activity, total in (
            ("nap", "thread-noncpu", lambda time: 18 if time >= 119 else 0),
            ("", "idle", lambda time: 2 * (time - 90) - min(max(time - 100, 0), 18)),
        )
    ],
    names.TASK_RUNNING.name: [
        SeriesLine({names.TASK_PREFIX: "nap"}, "value", "gauge", "s",
             [1000 * time for time in _TIMES],
             [float(time - 100 if 100 < time < 119 else 0) for time in _TIMES])
    ],
}  # fmt: skip


class Store:
    """Series of the test's own."""

    def query(
        self,
        workspace: str,
        cluster: str,
        metrics: Collection[str],
        since: float,
        until: float,
        step: float,
    ) -> dict[str, list[SeriesLine]]:
        found: dict[str, list[SeriesLine]] = {}
        for metric in metrics:
            found[metric] = []
            for line in _LINES.get(metric, []):
                points = [
                    point
                    for point in zip(line.times, line.values, strict=True)
                    if since <= point[0] / 1000 < until
                ]
                if points:
                    times, values = map(list, zip(*points, strict=True))
                    found[metric].append(replace(line, times=times, values=values))
        return found

    def close(self) -> None:
        """Nothing is open."""


def test_a_computation_that_has_ended_has_no_time_in_tasks_that_still_run() -> None:
    found = threads(Store(), "w", "c", 100.0, 118.5, beyond=True)
    assert found is not None
    assert "running" not in found.seconds
    assert found.seconds["thread-noncpu"] == pytest.approx(18)
    assert sum(found.seconds.values()) == pytest.approx(2 * found.length)
    # While it runs, what is known is in its running task.
    found = threads(Store(), "w", "c", 100.0, 110.5)
    assert found is not None
    assert found.seconds["running"] == pytest.approx(10)


def test_what_was_measured_over_much_more_than_its_time_is_not_shown() -> None:
    assert threads(Store(), "w", "c", 100.2, 100.5, beyond=True) is None


def test_the_states_are_those_of_the_computations_own_time() -> None:
    # The totals around 12.6 s are of another period: they have idle time from after its end.
    measured = {"busy": 49.2, "idle": 1.2, "paused": 0.0}
    beside = Threads({"thread-noncpu": 17.1, "idle": 23.7}, 9.5, off=8.0)
    for about in (None, beside, replace(beside, off=0.1)):
        assert of_computation(measured, about, 12.6) == Threads(measured, 12.6)
    # Without its own numbers, the totals are all that is known.
    assert of_computation({}, beside, 12.6) == beside
    assert of_computation({}, None, 12.6) is None


def test_activities_of_the_same_period_split_the_time_with_a_task() -> None:
    measured = {"busy": 48.0, "idle": 2.0, "paused": 1.0}
    about = Threads({"thread-cpu": 40.0, "transfer": 10.0, "idle": 8.0}, 14.5, off=1.9)
    found = of_computation(measured, about, 12.75)
    assert found is not None
    assert found.seconds == pytest.approx(
        {"thread-cpu": 38.4, "transfer": 9.6, "idle": 2.0, "paused": 1.0}
    )
    assert found.length == 12.75
