"""What a cluster's threads did while a computation ran: the time that it is measured in."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from daskscope import names
from daskscope_service.pages.cluster_context import threads
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
