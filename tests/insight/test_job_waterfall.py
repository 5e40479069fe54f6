"""The waterfall between two runs adds up, and each change is in its own part."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskscope_service.insight.jobs.waterfall import RunTime, Work, parts

seconds = st.floats(0, 1e5)
counts = st.integers(0, 10**6)
works = st.builds(Work, tasks=counts, runs=counts, seconds=seconds)
spent = st.builds(
    RunTime,
    duration=st.floats(0.05, 1e5),
    start=seconds,
    compute=seconds,
    transfer=seconds,
    disk=seconds,
    work=st.dictionaries(st.sampled_from(["inc", "sum", "read"]), works),
    thread_seconds=st.none() | seconds,
    idle=seconds,
    paused=seconds,
)


@settings(max_examples=1000, deadline=None)
@given(spent, spent)
def test_the_parts_add_up_whatever_was_measured(a: RunTime, b: RunTime) -> None:
    found = parts(a, b)
    size = max(a.duration, b.duration, *(abs(part.seconds) for part in found), 1.0)
    assert sum(part.seconds for part in found) == pytest.approx(
        b.duration - a.duration, abs=1e-6 * size
    )


@given(spent)
def test_a_run_differs_in_nothing_from_itself(a: RunTime) -> None:
    assert parts(a, a) == []


#: 40 tasks of 2 s on 8 threads for 12 s, of which 2 s passed until the first one began.
USUAL = RunTime(
    duration=12.0,
    start=2.0,
    compute=80.0,
    transfer=4.0,
    disk=0.0,
    work={"load": Work(30, 30, 60.0), "sum": Work(10, 10, 20.0)},
    thread_seconds=96.0,
    idle=16.0,
    paused=0.0,
)


def named(b: RunTime) -> dict[tuple[str, str | None], float]:
    return {(part.kind, part.prefix): round(part.seconds, 6) for part in parts(USUAL, b)}


def test_each_task_takes_longer() -> None:
    slow = {"load": Work(30, 30, 120.0), "sum": Work(10, 10, 20.0)}
    longer = replace(USUAL, duration=19.5, compute=140.0, work=slow, thread_seconds=156.0)
    assert named(longer) == {("each", "load"): 7.5}


def test_there_are_more_tasks() -> None:
    more = {"load": Work(60, 60, 120.0), "sum": Work(10, 10, 20.0)}
    longer = replace(USUAL, duration=19.5, compute=140.0, work=more, thread_seconds=156.0)
    assert named(longer) == {("tasks", "load"): 7.5}


def test_tasks_run_again() -> None:
    again = {"load": Work(30, 60, 120.0), "sum": Work(10, 10, 20.0)}
    longer = replace(USUAL, duration=19.5, compute=140.0, work=again, thread_seconds=156.0)
    assert named(longer) == {("repeated", "load"): 7.5}


def test_there_are_fewer_threads() -> None:
    fewer = replace(USUAL, duration=22.0, thread_seconds=88.0, idle=8.0)
    assert named(fewer) == {("threads", None): 10.0}


def test_it_starts_later() -> None:
    later = replace(USUAL, duration=17.0, start=7.0, thread_seconds=136.0, idle=56.0)
    assert named(later) == {("start", None): 5.0}


def test_threads_have_no_task() -> None:
    idle = replace(USUAL, duration=17.0, thread_seconds=136.0, idle=56.0)
    assert named(idle) == {("idle", None): 5.0}


def test_it_spills() -> None:
    spills = replace(USUAL, duration=22.0, disk=90.0, transfer=0.0, thread_seconds=176.0)
    assert named(spills) == {("disk", None): 10.0}


def test_a_step_is_new_or_gone() -> None:
    new = {**USUAL.work, "check": Work(20, 20, 40.0)}
    longer = replace(USUAL, duration=17.0, compute=120.0, work=new, thread_seconds=136.0)
    assert named(longer) == {("tasks", "check"): 5.0}
    assert [(part.kind, round(part.seconds, 6)) for part in parts(longer, USUAL)] == [
        ("tasks", -5.0)
    ]


def test_an_older_exporter_says_less_and_it_still_adds_up() -> None:
    old = replace(USUAL, thread_seconds=None)
    slow = {"load": Work(30, 30, 120.0), "sum": Work(10, 10, 20.0)}
    longer = replace(old, duration=19.5, compute=140.0, work=slow)
    found = parts(old, longer)
    assert max(found, key=lambda part: part.seconds).kind == "each"
    assert sum(part.seconds for part in found) == pytest.approx(7.5)


def test_more_computing_than_threads_had_time_for_leaves_all_of_it_unexplained() -> None:
    absurd = replace(USUAL, duration=17.0, compute=1e20, transfer=0.0, work={})
    assert named(absurd) == {("rest", None): 5.0}


def test_next_to_no_work_leaves_all_of_it_unexplained() -> None:
    old = replace(USUAL, compute=0.0, disk=1.0, transfer=0.0, work={}, thread_seconds=None)
    assert [part.kind for part in parts(old, replace(old, duration=17.0, disk=2e-311))] == ["rest"]
