"""The size of workers that a job's runs propose, and what proposes none."""

from __future__ import annotations

from typing import Any

import pytest

from daskscope_service.insight.findings.thresholds import DEFAULTS
from daskscope_service.insight.jobs.sizing import Proposal, Sizing, sizing_of

GIB = 2**30


def run(*, on: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a run of 100 s on 4 workers of 8 GiB and 16 threads in all, which is as it should be.

    Its workers used up to 6 GiB, and three quarters of its threads had work.
    """
    cluster = {
        "peak_worker_memory": 6 * GIB,
        "peak_memory_used": 4 * GIB,
        "memory_limit": 32 * GIB,
        "workers": 4,
        "peak_workers": 4,
        "prices": {"currency": "USD", "per_hour": {"thread": 0.1, "gib": 0.01}},
    }
    return {
        "status": "finished",
        "erred": 0,
        "duration": 100.0,
        "spilled_bytes": 0,
        "workers": 4,
        "worker_seconds": {"busy": 1200.0, "idle": 400.0},
        "cost": 0.05,
        "currency": "USD",
        "on": cluster | (on or {}),
    } | fields


def sizing(*runs: dict[str, Any]) -> Sizing:
    return sizing_of(runs, DEFAULTS)


SMALL = {"peak_worker_memory": 2 * GIB}
IDLE = {"worker_seconds": {"busy": 300.0, "idle": 1300.0}}


def test_fewer_than_five_runs_propose_nothing_and_say_how_many_are_missing() -> None:
    found = sizing(*[run(on=SMALL)] * 3, run(status="erred"))
    assert (found.runs, found.missing, list(found.proposals)) == (3, 2, [])
    assert found.sentence == "A size of its workers needs 2 more passed runs."
    assert sizing(*[run(on=SMALL)] * 4).sentence.endswith("needs 1 more passed run.")


def test_the_memory_of_a_worker_is_that_of_those_that_are_left() -> None:
    # Of four workers of 8 GiB, each at 6 GiB, two are left: the size is right, not 4 GiB.
    left = {"workers": 2, "memory_limit": 16 * GIB}
    assert list(sizing(*[run(on=left)] * 5).proposals) == []
    [found] = sizing(*[run(on=left | SMALL)] * 5).proposals
    assert (found.now, found.wanted) == (8 * GIB, 2.5 * GIB)


def test_less_memory_is_a_quarter_more_than_the_highest_peak() -> None:
    [found] = sizing(*[run(on={"peak_worker_memory": GIB})] * 4, run(on=SMALL)).proposals
    assert (found.what, found.now, found.most) == ("memory", 8 * GIB, 2 * GIB)
    assert found.wanted == 2.5 * GIB
    assert found.setting == "--memory-limit 2560MiB"
    assert found.sentence.endswith("used more than 2 GiB of 8 GiB: 2.5 GiB would do.")
    assert found.saving is not None
    # 5.5 GiB less on each of 4 workers, for 100 s.
    assert found.saving.high == pytest.approx(0.01 * 5.5 * 4 * 100 / 3600)
    assert found.saving.low == 0


def test_fewer_threads_are_a_fifth_more_than_had_work() -> None:
    busier = {"worker_seconds": {"busy": 400.0, "idle": 1200.0}}
    [found] = sizing(*[run(**IDLE)] * 4, run(**busier)).proposals
    assert (found.what, found.now, found.most, found.wanted) == ("threads", 16, 4, 5)
    assert found.saving is not None
    assert found.saving.high == pytest.approx(0.05 * (1 - 5 / 16))


def test_more_memory_is_proposed_near_the_limit() -> None:
    [found] = sizing(*[run()] * 4, run(on={"peak_worker_memory": 7.5 * GIB})).proposals
    assert (found.wanted, found.saving) == (9.375 * GIB, None)
    assert (
        "(94\N{NO-BREAK SPACE}%); at 95\N{NO-BREAK SPACE}% its nanny ends it: give it 9.38 GiB."
        in found.sentence
    )


@pytest.mark.parametrize(
    "odd",
    [
        run(),
        run(on=SMALL, spilled_bytes=1),  # it wanted more
        run(on={"peak_worker_memory": None}),  # not measured
        run(on={"peak_worker_memory": 5 * GIB}),  # one run needed it
    ],
    ids=["all is well", "spilled", "unknown", "one needed it"],
)
def test_no_less_memory_where_one_run_speaks_against_it(odd: dict[str, Any]) -> None:
    found = sizing(*[run(on=SMALL)] * 9, odd)
    assert list(found.proposals) == []
    assert "other size" in found.sentence or "not known" in found.sentence


def test_no_less_memory_where_no_smaller_worker_is_to_be_had() -> None:
    small = {"peak_worker_memory": GIB, "memory_limit": 12 * GIB}
    assert list(sizing(*[run(on=small)] * 5).proposals) == []


@pytest.mark.parametrize(
    "odd",
    [
        run(),
        run(worker_seconds={"busy": 300.0, "idle": 1200.0, "paused": 100.0}),  # no memory for it
        run(**IDLE, duration=5.0),  # too short to tell
        run(**IDLE, on={"peak_memory_used": 30 * GIB}),  # fewer workers had no room
        run(worker_seconds={}),  # not measured
    ],
    ids=["had work", "paused", "short", "full", "unknown"],
)
def test_no_fewer_threads_where_one_run_speaks_against_it(odd: dict[str, Any]) -> None:
    assert list(sizing(*[run(**IDLE)] * 9, odd).proposals) == []


def test_without_prices_there_is_a_size_and_no_saving() -> None:
    free = {"cost": None, "currency": None, "on": {**SMALL, "prices": None}}
    found: list[Proposal] = list(sizing(*[run(**IDLE | free)] * 5).proposals)
    assert [(one.what, one.saving) for one in found] == [("memory", None), ("threads", None)]
