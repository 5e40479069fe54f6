"""Verdicts, wording and time, as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from daskscope_service.insight.progress import done_of
from daskscope_service.insight.time import all_together, seconds_of, time_parts
from daskscope_service.insight.traceback import Frame, own_frames
from daskscope_service.insight.verdict import (
    Verdict,
    cluster_verdict,
    computation_seconds,
    computation_verdict,
)
from daskscope_service.insight.wording import duration, plural, size
from tests.seed_texts import VALUE_TRACEBACK

CLUSTER: dict[str, Any] = {
    "started_at": 1000.0,
    "stopped_at": None,
    "status_at": 1100.0,
    "last_seen_at": 5000.0,  # another clock
    "interval": 10.0,
    "idle_seconds": None,
    "held_by": {},
    "busy_by": None,
    "workers": 4,
    "may_end": False,
}
COMPUTATION: dict[str, Any] = {
    "status": "running",
    "started_at": 1050.0,
    "stopped_at": None,
    "tasks": 200,
    "completed": 50,
    "erred": 0,
    "retried": 0,
    "cancelled": 0,
    "ended_at": None,
    "lost_runs": 0,
    "blamed": 0,
    "blames": {},
    "asks": {},
    "unrunnable_seconds": None,
    "completed_later": None,
    "seconds_later": None,
    "worker_seconds": {"busy": 500.0, "idle": 100.0, "paused": 0.0},
    "states": {"released": 20, "memory": 30, "processing": 50, "waiting": 100},
}


@pytest.mark.parametrize(
    ("interval", "silence", "status"),
    [(10, 59, "running"), (10, 61, "lost"), (60, 179, "running"), (60, 181, "lost")],
)
def test_a_cluster_is_lost_when_silent_for_long_and_for_three_beats(
    interval: float, silence: float, status: str
) -> None:
    verdict = cluster_verdict(CLUSTER | {"interval": interval}, 5000 + silence, 60)
    assert verdict.status == status


@pytest.mark.parametrize(
    ("held_by", "sentence"),
    [
        ({}, "It is up, and idle for 1 min 30 s."),
        ({"clients": 1}, "It is up, and idle for 1 min 30 s, with 1 client connected."),
        (
            {"clients": 2, "results": 1300, "actors": 1, "of tomorrow": 4},
            "It is up, and idle for 1 min 30 s, with 2 clients connected, 1,300 results held in "
            "memory and 1 actor.",
        ),
    ],
)
def test_an_idle_cluster_says_what_there_is_to_keep_it_for(
    held_by: dict[str, int], sentence: str
) -> None:
    verdict = cluster_verdict(CLUSTER | {"idle_seconds": 90.0, "held_by": held_by}, 5001, 60)
    assert verdict == Verdict("running", sentence, workers=4)


def test_one_that_went_with_its_clients_process_and_had_no_work_is_not_lost() -> None:
    idle = CLUSTER | {"may_end": True}
    assert cluster_verdict(idle, 5059, 60).status == "running"
    assert cluster_verdict(idle, 5180, 60) == Verdict(
        "ended",
        "It ended without a word after 1 min 40 s, with the process of its client, in which it "
        "ran; it had no work to do when it was last heard, 3 min ago.",
    )


@pytest.mark.parametrize(
    ("busy_by", "sentence"),
    [
        (None, "It is up, and at work with 4 workers."),
        (["tasks are running", "workers are starting"], "It is up, and at work with 4 workers."),
        (
            ["a worker uses the CPU without a task, 98% of a core", "Frisky says so"],
            "It is up, and at work with 4 workers, though no task runs.",
        ),
    ],
)
def test_a_cluster_at_work_without_tasks_says_so(busy_by: list[str] | None, sentence: str) -> None:
    verdict = cluster_verdict(CLUSTER | {"busy_by": busy_by}, 5001, 60)
    assert verdict == Verdict("running", sentence, workers=4)


def test_a_stopped_cluster_is_never_lost() -> None:
    verdict = cluster_verdict(CLUSTER | {"stopped_at": 1090.0}, 10**9, 60)
    assert verdict == Verdict("stopped", "It stopped after 1 min 30 s.")


@pytest.mark.parametrize(
    ("own", "cluster", "status"),
    [
        ("running", "running", "running"),
        ("running", "lost", "lost"),
        ("running", "stopped", "lost"),
        ("running", "ended", "lost"),
        ("finished", "lost", "finished"),
        ("erred", "lost", "erred"),
        ("cancelled", "stopped", "cancelled"),
    ],
)
def test_a_computation_is_lost_only_if_its_cluster_went_while_it_ran(
    own: str, cluster: str, status: str
) -> None:
    verdict = computation_verdict(COMPUTATION | {"status": own}, Verdict(cluster, ""), 5.0)
    assert verdict.status == status


def test_one_whose_tasks_were_all_done_has_finished_though_it_waited_for_a_loop_to_go_on() -> None:
    row = COMPUTATION | {"completed": 200, "states": {"memory": 150, "released": 50}}
    assert computation_verdict(row, Verdict("running", ""), 5.0).status == "running"
    finished = Verdict("finished", "Finished: 200 tasks in 5.0 s.")
    assert computation_verdict(row, Verdict("lost", ""), 5.0) == finished


@pytest.mark.parametrize(
    ("row", "cluster", "sentence"),
    [
        ({}, "running", "60 results have gone since then, so that their tasks run again."),
        ({}, "lost", "60 of its results went with the workers."),
        ({"states": {"no-worker": 62}}, "lost", "Its results went with the workers."),
        # They always do where a cluster is closed; and what is cancelled then had no result.
        ({}, "stopped", "Finished: 62 tasks in 5.0 s."),
        ({"status": "cancelled", "cancelled": 60, "completed": 2}, "lost", "2 of 62 tasks done."),
    ],
)
def test_results_that_are_lost_once_it_has_ended_are_told_and_change_nothing_else(
    row: dict[str, Any], cluster: str, sentence: str
) -> None:
    states = {"memory": 2, "no-worker": 50, "waiting": 10}
    ended = {"status": "finished", "tasks": 62, "completed": 62, "states": states}
    verdict = computation_verdict(COMPUTATION | ended | row, Verdict(cluster, ""), 5.0)
    assert verdict.status == (COMPUTATION | ended | row)["status"]
    assert verdict.sentence.endswith(sentence), verdict.sentence


def test_a_computation_without_tasks_is_told_without_a_share() -> None:
    empty = COMPUTATION | {"tasks": 0, "completed": 0, "states": {}}
    sentence = computation_verdict(empty, Verdict("running", ""), 0.0).sentence
    assert sentence == "0 of 0 tasks done, running for 0 s."


# What a row tells of ten tasks, and how many of them are done.
@pytest.mark.parametrize(
    ("row", "done"),
    [
        # Their results are in memory, or were released or forgotten when nobody needed them.
        ({"completed": 6, "states": {"memory": 1, "released": 5, "waiting": 4}}, 6),
        ({"completed": 10, "states": {"forgotten": 10}, "status": "finished"}, 10),
        # None has begun.
        ({"completed": 0, "states": {"released": 10}}, 0),
        # Five results were lost, are computed again, were computed again.
        ({"completed": 10, "states": {"memory": 5, "waiting": 3, "processing": 2}}, 5),
        ({"completed": 13, "states": {"memory": 8, "no-worker": 1, "queued": 1}}, 8),
        ({"completed": 15, "states": {"memory": 10}, "status": "finished"}, 10),
        ({"completed": 15, "states": {"released": 10}, "status": "finished"}, 10),
        # As the cluster closed; the computation had finished.
        ({"completed": 10, "states": {"memory": 5, "processing": 5}, "status": "finished"}, 10),
        # As it could not be computed again, or as an actor.
        ({"completed": 10, "states": {"memory": 5, "erred": 5}, "status": "finished"}, 10),
        # Some erred, which Dask holds or has forgotten; and what needed them.
        ({"completed": 12, "states": {"memory": 7, "erred": 3}, "erred": 1, "status": "erred"}, 7),
        ({"completed": 12, "states": {"forgotten": 10}, "erred": 3, "status": "erred"}, 7),
        ({"completed": 6, "states": {"forgotten": 10}, "erred": 1, "status": "erred"}, 6),
        # Some were cancelled; others after their results were lost.
        ({"completed": 4, "states": {"memory": 4, "released": 6}, "cancelled": 6}, 4),
        ({"completed": 6, "states": {"memory": 4, "forgotten": 6}, "cancelled": 6}, 4),
        # As the cluster closed.
        ({"completed": 9, "states": {"released": 8, "processing": 2}, "cancelled": 2,
          "status": "cancelled"}, 8),
        # What was cancelled was needed by others.
        ({"completed": 10, "states": {"memory": 10}, "cancelled": 2, "status": "cancelled"}, 8),
        # A client sent their data.
        ({"completed": 0, "states": {"memory": 2, "waiting": 8}}, 2),
    ],
)  # fmt: skip
def test_done_is_what_ended_in_memory_and_has_nothing_to_do(row: dict[str, Any], done: int) -> None:
    assert done_of(COMPUTATION | {"tasks": 10} | row) == done


def test_a_computation_says_how_many_results_were_lost() -> None:
    lost = {"tasks": 62, "completed": 60, "states": {"memory": 40, "waiting": 22}}
    sentences = [
        computation_verdict(COMPUTATION | lost | row, Verdict(cluster, ""), 5.0).sentence
        for row, cluster in (
            ({}, "running"),
            ({}, "lost"),
            ({"status": "finished", "completed": 86, "states": {"forgotten": 62}}, "running"),
            ({"status": "cancelled", "cancelled": 22, "states": {"released": 62}}, "running"),
        )
    ]
    assert sentences == [
        "40 of 62 tasks done (65%), running for 5.0 s. 20 results were gone when they were "
        "needed, so that their tasks run again.",
        "The cluster fell silent while it ran: 40 of 62 tasks were done after 5.0 s.",
        "Finished: 62 tasks in 5.0 s. 24 results were gone when they were needed, and "
        "were computed again.",
        "Cancelled after 5.0 s: 40 of 62 tasks done. 20 results were gone when they were needed.",
    ]


def test_what_ran_after_the_end_is_told_apart() -> None:
    row = COMPUTATION | {"status": "finished", "tasks": 4, "completed": 4, "states": {"memory": 4}}
    again = row | {"completed_later": 3, "seconds_later": 9.75}
    once = row | {"completed_later": 1, "seconds_later": 0.5}
    not_measured = row | {"completed_later": 1, "seconds_later": None}
    sentences = [
        computation_verdict(one, Verdict("running", ""), 5.0).sentence
        for one in (row, once, again, not_measured)
    ]
    assert sentences == [
        "Finished: 4 tasks in 5.0 s.",
        "Finished: 4 tasks in 5.0 s. After its end 1 task run followed, which took 500 ms.",
        "Finished: 4 tasks in 5.0 s. After its end 3 task runs followed, which took 9.8 s.",
        "Finished: 4 tasks in 5.0 s. After its end 1 task run followed.",
    ]


def test_what_a_computation_lost_or_never_ran_is_in_its_first_sentence() -> None:
    row = COMPUTATION | {"status": "erred", "tasks": 201, "completed": 199, "states": {}}
    blamed = row | {"blamed": 2, "blames": {"c9": "divide"}}
    assert computation_verdict(blamed, Verdict("running", ""), 5.0).sentence == (
        "Not finished after 5.0 s: 2 of 201 tasks need one that failed, divide; 199 done."
    )
    goes_on = blamed | {"status": "running", "completed": 100, "states": {"memory": 100}}
    assert computation_verdict(goes_on, Verdict("running", ""), 5.0).sentence == (
        "100 of 201 tasks done (50%), running for 5.0 s. 2 tasks need one that failed, divide."
    )
    lost = row | {"erred": 2, "lost_runs": 5}
    assert computation_verdict(lost, Verdict("running", ""), 5.0).sentence == (
        "Failed after 5.0 s: 2 task runs failed, 199 of 201 tasks done. 5 task runs ended with "
        "their workers."
    )


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (
            {"no-worker": 1},
            "0 of 2 tasks done after 2.0 s: 1 task waits for a worker that may run it.",
        ),
        (
            {"no-worker": 2, "waiting": 1},
            "0 of 2 tasks done after 2.0 s: 2 tasks wait for a worker that may run them.",
        ),
        (
            {"no-worker": 1, "processing": 1},
            "0 of 2 tasks done (0%), running for 2.0 s; 1 task waits for a worker that may run it.",
        ),
        (
            {"no-worker": 2, "queued": 1},
            "0 of 2 tasks done (0%), running for 2.0 s; 2 tasks wait for a worker that may run "
            "them.",
        ),
    ],
)
def test_one_whose_tasks_no_worker_may_run_says_so_at_once(
    states: dict[str, int], said: str
) -> None:
    row = COMPUTATION | {"tasks": 2, "completed": 0, "states": states}
    assert computation_verdict(row, Verdict("running", ""), 2.0).sentence == said
    stuck = states["no-worker"]
    asked = computation_verdict(row | {"asks": {"GPU=1": stuck}}, Verdict("running", ""), 2.0)
    more = computation_verdict(row | {"asks": {"GPU=1": 3}}, Verdict("running", ""), 2.0)
    assert asked.sentence == f"{said.removesuffix('.')} (GPU=1)."
    assert more.sentence == said


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        (0, "0 of 10 tasks done after 2 min 5 s: 10 tasks wait, and there is no worker."),
        (1, "0 of 10 tasks done (0%), running for 2 min 5 s."),
        (None, "0 of 10 tasks done (0%), running for 2 min 5 s."),
    ],
)
def test_queued_tasks_do_not_run_as_long_as_there_is_no_worker(
    workers: int | None, said: str
) -> None:
    row = COMPUTATION | {"tasks": 10, "completed": 0, "states": {"queued": 10}}
    verdict = computation_verdict(row, Verdict("running", "", workers=workers), 125.0)
    assert verdict.sentence == said


NO_SECONDS = {"busy": 0.0, "idle": 0.0, "paused": 0.0}


@pytest.mark.parametrize(
    ("row", "cluster", "said"),
    [
        (
            {"status": "cancelled", "worker_seconds": NO_SECONDS},
            Verdict("stopped", ""),
            "Cancelled after 2 min 18 s: 0 of 10 tasks done; there was never a worker.",
        ),
        (
            {"status": "cancelled"},
            Verdict("running", "", workers=2),
            "Cancelled after 2 min 18 s: 0 of 10 tasks done; there was no worker for 2 min 12 s.",
        ),
        # Paused workers run no tasks either.
        (
            {"status": "cancelled", "worker_seconds": NO_SECONDS | {"paused": 264.0}},
            Verdict("stopped", ""),
            "Cancelled after 2 min 18 s: 0 of 10 tasks done; 10 tasks waited for a worker that may "
            "run them.",
        ),
        (
            {"worker_seconds": {}, "asks": {}, "states": {"queued": 10}},
            Verdict("lost", "", workers=0),
            "The cluster fell silent while it ran: 0 of 10 tasks were done after 2 min 18 s; 10 "
            "tasks waited, and there was no worker.",
        ),
        (
            {"worker_seconds": {}, "asks": {}, "states": {"queued": 10}, "unrunnable_seconds": 0.0},
            Verdict("lost", "", workers=1),
            "The cluster fell silent while it ran: 0 of 10 tasks were done after 2 min 18 s.",
        ),
    ],
)
def test_that_there_was_no_worker_is_said_afterwards(
    row: dict[str, Any], cluster: Verdict, said: str
) -> None:
    waited = {"tasks": 10, "completed": 0, "cancelled": 10, "states": {}}
    waited |= {"asks": {"any worker": 10}, "unrunnable_seconds": 132.0}
    assert computation_verdict(COMPUTATION | waited | row, cluster, 138.0).sentence == said


STUCK = {"tasks": 100, "completed": 97, "states": {"memory": 97}, "asks": {"GPU=1": 3}}


@pytest.mark.parametrize(
    ("row", "cluster", "seconds", "said"),
    [
        (
            {"status": "cancelled", "cancelled": 3, "unrunnable_seconds": 600.0},
            "stopped",
            600.0,
            "Cancelled after 10 min: 97 of 100 tasks done; 3 tasks waited for a worker that may "
            "run them (GPU=1).",
        ),
        # For a tenth of its time: others had waited for them, or they ran in the end.
        (
            {"status": "cancelled", "cancelled": 3, "unrunnable_seconds": 60.0},
            "stopped",
            600.0,
            "Cancelled after 10 min: 97 of 100 tasks done.",
        ),
        (
            {"tasks": 1, "completed": 0, "states": {"no-worker": 1}, "asks": {"GPU=1": 1}},
            "lost",
            20.0,
            "The cluster fell silent while it ran: 0 of 1 task was done after 20.0 s; 1 task "
            "waited for a worker that may run it (GPU=1).",
        ),
        # The workers of a cluster leave before it stops.
        (
            {"states": {"memory": 97, "no-worker": 3}, "asks": {}, "unrunnable_seconds": 0.5},
            "stopped",
            20.0,
            "The cluster stopped while it ran: 97 of 100 tasks were done after 20.0 s.",
        ),
        (
            {"unrunnable_seconds": 15.0},
            "stopped",
            20.0,
            "The cluster stopped while it ran: 97 of 100 tasks were done after 20.0 s; 3 tasks "
            "waited for a worker that may run them (GPU=1).",
        ),
    ],
)
def test_what_no_worker_could_run_is_said_afterwards(
    row: dict[str, Any], cluster: str, seconds: float, said: str
) -> None:
    verdict = computation_verdict(COMPUTATION | STUCK | row, Verdict(cluster, ""), seconds)
    assert verdict.sentence == said


def test_one_that_only_waits_for_a_loop_to_go_on_took_as_long_as_its_tasks() -> None:
    row = COMPUTATION | {"completed": 200, "states": {"memory": 200}, "ended_at": 1051.2}
    assert computation_seconds(row, CLUSTER) == pytest.approx(1.2)
    sentence = computation_verdict(row, Verdict("running", ""), 1.2).sentence
    assert sentence == "200 of 200 tasks done (100%) in 1.2 s."


@pytest.mark.parametrize(
    ("row", "silence", "sentence"),
    [
        (
            {"held_by": {"unrunnable": 1, "clients": 1}, "busy_by": ["tasks wait for a worker"]},
            1,
            "It is up, and stuck: 1 task waits for a worker, and none of its 4 workers may run it.",
        ),
        (
            {"held_by": {"unrunnable": 3, "processing": 1}},
            1,
            "It is up, and at work with 4 workers; 3 tasks wait for a worker that may run them.",
        ),
        (
            {"held_by": {"queued": 10, "clients": 1}, "workers": 0},
            1,
            "It is up, and stuck: 10 tasks wait, and there is no worker.",
        ),
        (
            {"held_by": {"queued": 1}, "workers": 0},
            31,
            "It has not reported for 31.0 s; until then it was stuck: 1 task waits, and there is "
            "no worker.",
        ),
        (
            {"held_by": {"queued": 9, "unrunnable": 1, "workers starting": 2}, "workers": 0},
            1,
            "It is up, and waiting for workers: 10 tasks wait, and 2 workers are starting.",
        ),
        # Behind tasks that run.
        (
            {"held_by": {"queued": 10, "processing": 8}},
            1,
            "It is up, and at work with 4 workers.",
        ),
        (
            {"idle_seconds": 13.5},
            31,
            "It has not reported for 31.0 s; until then it was idle for 13.5 s.",
        ),
        (
            {"idle_seconds": 13.5, "held_by": {"running": 2, "processing": 5}},
            1,
            "It is up, and idle for 13.5 s, with 2 tasks running and 3 tasks assigned to a worker.",
        ),
    ],
)
def test_a_cluster_that_is_stuck_or_silent_says_so_first(
    row: dict[str, Any], silence: float, sentence: str
) -> None:
    verdict = cluster_verdict(CLUSTER | row, 5000 + silence, 60)
    assert (verdict.status, verdict.sentence) == ("running", sentence)


def test_a_computation_says_that_its_cluster_is_silent() -> None:
    silent = cluster_verdict(CLUSTER, 5000 + 31, 60)
    assert computation_verdict(COMPUTATION, silent, 5.0).sentence == (
        "50 of 200 tasks done (25%), running for 5.0 s; its cluster has not reported for 31.0 s."
    )
    ended = computation_verdict(COMPUTATION | {"status": "cancelled"}, silent, 5.0).sentence
    assert "not reported" not in ended


def test_a_running_computation_lasts_by_its_clusters_clock() -> None:
    assert computation_seconds(COMPUTATION, CLUSTER) == 50.0
    assert computation_seconds(COMPUTATION | {"stopped_at": 1051.5}, CLUSTER) == 1.5


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.0004, "< 1 ms"),
        (0.25, "250 ms"),
        (0.9996, "1.0 s"),
        (12.34, "12.3 s"),
        (59.97, "1 min"),
        (90, "1 min 30 s"),
        (3600, "1 h"),
        (3720, "1 h 2 min"),
        (200_000, "2 d 7 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_sizes_and_counts_have_units() -> None:
    assert size(0) == "0 B"
    assert size(1536 * 2**20) == "1.5 GiB"
    assert plural(1, "task") == "1 task"
    assert plural(12345, "task") == "12,345 tasks"


def test_time_adds_up_in_a_fixed_order() -> None:
    parts = time_parts({"transfer": 1.0, "unheard-of": 1.0, "compute": 2.0, "disk-read": 0.0})
    assert [part.activity for part in parts] == ["compute", "transfer", "unheard-of"]
    assert sum(part.share for part in parts) == pytest.approx(1)
    assert [part.start for part in parts] == pytest.approx([0, 0.5, 0.75])


def test_what_was_not_measured_is_not_zero() -> None:
    assert seconds_of({"compute": 2.0}, "transfer") is None
    assert seconds_of({"disk-read": 0.0}, "disk-read", "disk-write") == 0.0
    assert time_parts({}) == []


def test_the_time_that_dask_calls_cancelled_is_also_of_runs_that_it_rescheduled() -> None:
    [part] = time_parts({"cancelled": 6.9})
    assert part.label == "in runs that were cancelled or that Dask rescheduled"


def test_the_time_of_all_prefixes_adds_up() -> None:
    rows = [
        {"prefix": "sum", "seconds": {"thread-cpu": 2.0, "transfer": 1.0}},
        {"prefix": "", "seconds": {"idle": 3.0, "transfer": 4.0}},
    ]
    assert all_together(rows) == {"thread-cpu": 2.0, "transfer": 5.0, "idle": 3.0}
    assert sum(part.share for part in time_parts(all_together(rows))) == pytest.approx(1)


def test_of_a_traceback_the_users_own_frames_come_first_the_innermost_before_all() -> None:
    parsing = "/home/maria/pipelines/features/parsing.py"
    own = [
        Frame(parsing, 18, "to_metres", 'return float(text.removesuffix(" m"))'),
        Frame(parsing, 31, "parse_events", 'frame["distance"] = frame["distance"].map(to_metres)'),
    ]
    assert own_frames(VALUE_TRACEBACK) == own
    # What led to it is not where it was raised.
    led_to = VALUE_TRACEBACK.replace("to_metres", "other")
    link = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert own_frames(led_to + link + VALUE_TRACEBACK) == own


@pytest.mark.parametrize(
    "traceback",
    [
        "",
        "ValueError: no frames",
        # There is nothing to tell apart.
        'Traceback (most recent call last):\n  File "mine.py", line 1, in f\n    g()\nOSError',
        'Traceback (most recent call last):\n  File "/a/site-packages/numpy/b.py", line 1, in f\n',
    ],
)
def test_where_all_frames_are_alike_none_are_told_apart(traceback: str) -> None:
    assert own_frames(traceback) == []


def test_without_source_lines_a_frame_tells_its_place() -> None:
    told = VALUE_TRACEBACK.replace('    return float(text.removesuffix(" m"))\n', "")
    assert own_frames(told)[0] == Frame(
        "/home/maria/pipelines/features/parsing.py", 18, "to_metres", ""
    )
