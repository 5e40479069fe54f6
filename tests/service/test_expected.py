"""A run that goes on beside the usual one of its job: when it should end, and when it will."""

from __future__ import annotations

import time
from typing import Any

import dask
import pytest

import daskscope
from daskscope_service.insight.jobs.expected import share_done
from tests.service.job_history import NOW, Place
from tests.service_process import ServiceProcess

DAY = 86_400


@pytest.fixture
def place(shared_service: ServiceProcess) -> Place:
    place = Place(shared_service)
    for day in range(6):
        place.run(1000, 9 - day)
    return place


def _running(place: Place, seconds: float, done: int) -> Any:
    """Send a run that goes on for so many seconds, and has done so many of its 100 tasks."""
    # The cluster's last beat is of now, whenever the test runs.
    began = (NOW - time.time() + seconds) / DAY
    id = place.run(
        seconds,
        began,
        status="running",
        stopped_at=None,
        states={"memory": done, "processing": 100 - done},
        completed=done,
        group_fields={"completed": done, "states": {"memory": done, "processing": 100 - done}},
        status_fields={"at": time.time()},
    )
    place.jobs(runs=7)
    return place.answer(f"runs/{id}")


def test_one_that_is_as_usual_ends_as_usual(place: Place) -> None:
    run = _running(place, 400, 40)
    assert (run["usual"]["runs"], run["usual"]["duration"]) == (6, pytest.approx(1000))
    expected = run["expected"]
    assert expected["done"] == pytest.approx(0.4)
    assert expected["times_usual"] is None
    assert (
        "It usually takes 16 min 40 s, the median of 6 runs, and should end in"
        in (expected["sentence"])
    )
    assert expected["cost"] == pytest.approx(4000, rel=0.1)
    page = place.page(f"/clusters/{run['cluster']}/computations/{run['computation']}")
    assert "It usually takes 16 min 40 s" in page
    assert "It will cost about" in page


def test_one_that_is_slower_says_so_at_this_point_and_when_it_is_late(place: Place) -> None:
    expected = _running(place, 1200, 50)["expected"]
    assert expected["times_usual"] == pytest.approx(2.4, abs=0.1)
    assert expected["sentence"].startswith("It is 2.4 × slower than usual at this point.")
    assert "should have ended" in expected["sentence"]


def test_python_has_times_and_one_that_has_ended_expects_nothing(place: Place) -> None:
    run = _running(place, 400, 10)
    ours = {"daskscope.endpoint": place.service.url, "daskscope.token": place.token}
    with dask.config.set(ours):
        expected = daskscope.get_run(run["computation"])["expected"]
        assert daskscope.get_run("run-6")["expected"] is None
    assert expected is not None
    # Too little is done to say more than what is usual.
    assert expected["ends_at"] == expected["usual_end_at"]
    assert expected["ends_at"].tzinfo is not None


def test_other_work_than_the_last_run_says_nothing_of_how_much_is_done() -> None:
    def group(tasks: int, done: int = 0) -> dict[str, Any]:
        seconds = {"compute": 2.0 * tasks}
        return {
            "prefix": "load", "tasks": tasks, "completed": tasks, "seconds": seconds, "done": done,
        }  # fmt: skip

    assert share_done([group(100, 40)], [group(100)]) == pytest.approx(0.4)
    assert share_done([group(150, 40)], [group(100)]) is None
    assert share_done([group(50, 40)], [group(100)]) is None
    assert share_done([], [group(100)]) is None
