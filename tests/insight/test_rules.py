"""Each rule fires on its cause, with the numbers that were measured, and on nothing else."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from daskscope_service.insight.findings.evidence import Evidence, Holder, Meanwhile, Slower
from daskscope_service.insight.findings.finding import Saving
from daskscope_service.insight.findings.headline import in_words, saving_in_words
from daskscope_service.insight.findings.rules import RULES, judge
from daskscope_service.insight.findings.thresholds import DEFAULTS
from daskscope_service.insight.jobs.sizing import Proposal, Sizing
from tests.insight import paced
from tests.insight.constructed import (
    GIB,
    MIB,
    START,
    evidence,
    failure,
    first,
    group,
    loss,
    of_cluster,
    run_of,
    runs,
    sentence,
    share,
    without,
)

TINY = evidence(
    run={
        "tasks": 15000, "done": 15000, "completed": 15000, "duration": 16.4,
        "seconds": {"compute": 0.606},
        "groups": (group(tasks=15000, completed=15000, seconds={"compute": 0.606},
                         durations=runs((14975, 0.00004), (25, 0.002)), longest=0.003),),
    },
    meanwhile={"activities": {"unattributed": 34.1, "executor": 8.5, "other": 4.6, "idle": 17.7,
                              "thread-cpu": 0.5, "thread-noncpu": 0.1}},
)  # fmt: skip
SPILLING = evidence(
    run={"duration": 2.1, "seconds": {"compute": 3.0},
         "groups": (group(output_bytes=int(1.2 * GIB)),)},
    cluster={"memory_limit": 763 * MIB},
    meanwhile={"spilled": 855.0 * MIB, "unspilled": 612.0 * MIB,
               "activities": {"thread-cpu": 3.0, "disk-write": 0.07, "disk-read": 0.5,
                              "idle": 2.0}},
)  # fmt: skip
OUT_OF_MEMORY = evidence(
    run={
        "status": "erred", "erred": 2, "completed": 0, "done": 0, "tasks": 2, "duration": 20.0,
        "groups": (group(name="grow", prefix="grow", tasks=2, completed=0, erred=2),),
        "failures": (failure(type="KilledWorker", function="grow", count=2),),
    },
    losses=tuple(
        loss(id=f"w{i}", nanny_memory=size * MIB, tasks={"grow": 1})
        for i, size in enumerate((277, 290, 300, 305, 309))
    ),
)  # fmt: skip
GIL = evidence(
    run={"duration": 6.3, "tasks": 24, "completed": 24, "done": 24, "seconds": {"compute": 24.1},
         "groups": (group(tasks=24, completed=24, durations=runs((24, 1.0)), longest=1.1),)},
    meanwhile={"workers": 1.0, "worker_cpu": 0.98, "profiled": 12.6,
               "activities": {"thread-cpu": 5.9, "thread-noncpu": 18.2, "idle": 1.0}},
)  # fmt: skip
TRANSFER = evidence(
    run={"duration": 1.2, "tasks": 24, "completed": 24, "done": 24,
         "seconds": {"compute": 0.002, "transfer": 6.0}, "groups": (group(tasks=24),)},
    meanwhile={"transferred": 773.0 * MIB,
               "activities": {"transfer": 2.4, "idle": 2.3, "thread-cpu": 0.002}},
)  # fmt: skip
STRAGGLER = evidence(
    run={"duration": 21.05, "tasks": 64, "completed": 64, "done": 64,
         "seconds": {"compute": 30.6},
         "groups": (group(tasks=64, completed=64, durations=runs((63, 0.2), (1, 18.0)),
                          longest=18.0),)},
    meanwhile={"activities": {"idle": 53.9, "thread-noncpu": 30.5, "thread-cpu": 0.1},
               "line": "work.py:3", "waiting_lines": 1.0},
)  # fmt: skip
RETRIES = evidence(
    run={"tasks": 60, "completed": 60, "done": 60, "retried": 120, "duration": 12.0,
         "failures": (failure(type="ConnectionError", count=120, retried=120),)},
)  # fmt: skip
ONE_BAD_INPUT = evidence(
    run={"status": "erred", "tasks": 200, "completed": 199, "done": 199, "erred": 1,
         "groups": (group(tasks=200, completed=199, erred=1),),
         "failures": (failure(type="ZeroDivisionError"),)},
)  # fmt: skip
DEPENDENTS = evidence(
    run={"status": "erred", "tasks": 201, "completed": 199, "done": 199, "erred": 0, "blamed": 2,
         "blames": {"c0": "divide"}},
    causes=(failure(type="ZeroDivisionError", computation="c0", function="divide"),),
)  # fmt: skip
LARGE_GRAPH = evidence(
    run={"graph_bytes": 96_000_000, "tasks": 4, "completed": 4, "done": 4, "duration": 2.0,
         "seconds": {"compute": 0.2}, "groups": (group(tasks=4, completed=4),)},
)  # fmt: skip
SERIAL = evidence(
    run={"tasks": 40, "completed": 40, "done": 40, "duration": 12.2, "seconds": {"compute": 12.1},
         "groups": (group(tasks=40, completed=40, durations=runs((40, 0.3)), longest=0.31),)},
    meanwhile={"threads": 8.0, "most_waiting": 34.0, "not_done_then": 35.0,
               "activities": {"idle": 86.9, "thread-noncpu": 12.0, "thread-cpu": 0.1},
               "waiting_lines": 1.0},
)  # fmt: skip
WAITING = evidence(
    run={"duration": 20.2, "tasks": 40, "completed": 40, "done": 40, "seconds": {"compute": 40.0},
         "groups": (group(tasks=40, completed=40, durations=runs((40, 1.0)), longest=1.0),)},
    meanwhile={"threads": 2.0, "worker_cpu": 0.01, "line": "work.py:96", "waiting_lines": 1.0,
               "activities": {"thread-noncpu": 39.99, "thread-cpu": 0.01, "idle": 0.3}},
)  # fmt: skip
CANCELLED = evidence(
    run={"status": "cancelled", "tasks": 200, "completed": 44, "done": 44, "cancelled": 156,
         "duration": 6.0, "seconds": {"compute": 22.0}},
)  # fmt: skip
TOO_FEW = evidence(
    run={"tasks": 2, "completed": 2, "done": 2, "duration": 15.0, "seconds": {"compute": 29.8},
         "groups": (group(tasks=2, completed=2, durations=runs((2, 14.9)), longest=14.9),)},
    meanwhile={"threads": 8.0, "worker_cpu": 1.0,
               "activities": {"idle": 92.0, "thread-cpu": 28.0}},
)  # fmt: skip
UNRUNNABLE = evidence(
    run={"status": "running", "tasks": 1, "completed": 0, "done": 0, "duration": 38.0,
         "states": {"no-worker": 1}, "seconds": {}, "groups": (group(tasks=1, completed=0),)},
)  # fmt: skip
UNUSED_GPU = evidence(
    run={"duration": 120.0, "seconds": {"compute": 400.0}},
    cluster={"gpu_workers": 2},
    meanwhile={"gpu_utilization": 0.0, "gpu_memory_share": 0.01, "gpu_points": 12,
               "busy_seconds": 400.0},
)  # fmt: skip
SLOW_WORKER = evidence(
    run={"tasks": 120, "completed": 120, "done": 120, "duration": 7.5,
         "seconds": {"compute": 25.0}, "workers": 4,
         "groups": (group(tasks=120, completed=120, durations=runs((115, 0.15), (5, 1.5)),
                          longest=1.51),),
         "shares": (share(runs=5, seconds=7.5, usual_seconds=0.76, longest=1.51),
                    share(worker="tcp://a:2", runs=39, seconds=5.9, usual_seconds=6.0))},
    meanwhile={"activities": {"idle": 5.0, "thread-noncpu": 25.0}},
)  # fmt: skip
WARM_UP = evidence(
    run={"tasks": 80, "completed": 80, "done": 80, "duration": 30.0, "workers": 4,
         "seconds": {"compute": 78.8},
         "groups": (group(tasks=80, completed=80, durations=runs((76, 0.3), (4, 14.0)),
                          longest=14.2, seconds={"compute": 78.8},
                          first_runs=4, first_seconds=56.0),)},
    meanwhile={"activities": {"idle": 41.0, "thread-cpu": 78.8}},
)  # fmt: skip
BLOCKED_LOOP = evidence(
    run={"tasks": 4, "completed": 4, "done": 4, "duration": 2.4, "seconds": {"compute": 4.68},
         "groups": (group(tasks=4, completed=4, durations=runs((4, 1.17)), longest=1.2),),
         "worker_seconds": {"busy": 4.7, "idle": 0.1}, "loop_interval": 1.21, "host_load": 0.9},
    meanwhile={"workers": 2.0, "threads": 2.0, "profiled": 0.12,
               "activities": {"idle": 0.1, "thread-cpu": 4.6}},
)  # fmt: skip

SLOWER = evidence(
    run={"duration": 20.0},
    slower=Slower(10.0, 20.1, 6, 5, None, "c0", ("dask 2026.8.0 → 2026.9.0", "other code")),
)
MEMORY_OF_JOB = Proposal("memory", 8 * GIB, 2 * GIB, 2.5 * GIB, "By", "", "--memory-limit 2560MiB",
                         Saving(0.0, 0.02, "USD", "unused memory"))  # fmt: skip
THREADS_OF_JOB = Proposal("threads", 16.0, 4.0, 5.0, "{thread}", "", "5 threads in all",
                          Saving(0.0, 0.03, "USD", "unused threads"))  # fmt: skip
PRICED = {"prices": {"thread": 0.1}, "currency": "USD", "price_source": "workspace",
          "cost": 0.1, "worker_seconds": {"busy": 3600.0}}  # fmt: skip


def sized(*proposals: Proposal, runs: int = 6, **cluster: Any) -> Evidence:
    """Return the last of so many passed runs of a job, which propose other sizes."""
    missing = max(5 - runs, 0)
    return replace(
        evidence(run={"duration": 100.0, "seconds": {"compute": 350.0}}, cluster=PRICED | cluster),
        sizing=Sizing(runs, missing, "", proposals),
    )


SICK: dict[str, Evidence] = {
    "oversized-memory": sized(MEMORY_OF_JOB),
    "undersized-memory": sized(
        replace(MEMORY_OF_JOB, most=7.5 * GIB, wanted=9.375 * GIB, saving=None)
    ),
    "oversized-threads": sized(THREADS_OF_JOB),
    "tiny-tasks": TINY,
    "spilling": SPILLING,
    "out-of-memory": OUT_OF_MEMORY,
    "gil-bound": GIL,
    "transfer-bound": TRANSFER,
    "straggler": STRAGGLER,
    "slow-worker": SLOW_WORKER,
    "warm-up": WARM_UP,
    "blocked-loop": BLOCKED_LOOP,
    "retries": RETRIES,
    "failed": ONE_BAD_INPUT,
    "upstream-failed": DEPENDENTS,
    "large-graph": LARGE_GRAPH,
    "serial-chain": SERIAL,
    "waiting": WAITING,
    "cancelled": CANCELLED,
    "too-few-tasks": TOO_FEW,
    "unrunnable": UNRUNNABLE,
    "unused-gpu": UNUSED_GPU,
    "silent": of_cluster({"status": "lost"}),
    "idle-cluster": of_cluster({"idle_seconds": 44.0, "held_by": {"clients": 1}}),
    "over-provisioned-memory": of_cluster(
        {"peak_memory": 194 * MIB, "memory_limit": int(11.2 * GIB), "duration": 16.2,
         "prices": {"gib": 0.36}, "currency": "USD"}
    ),
    "paused": evidence(
        meanwhile={"activities": {"paused": 12.0, "thread-cpu": 50.0, "idle": 3.6}}
    ),
    "recomputed": evidence(
        run={"completed": 140, "done": 100},
        losses=(loss(reason="process died", nanny_memory=None),),
    ),
    "slower-than-before": SLOWER,
    **paced.SICK,
}  # fmt: skip


def test_results_that_were_lost_do_not_all_count_as_those_of_the_workers_lost_meanwhile() -> None:
    # 40 results are computed again, some perhaps as another worker left after the end.
    (finding,) = judge(SICK["recomputed"]).shown
    assert finding.clause == "40 results were lost with their workers and computed again"
    assert finding.evidence[1].name == "workers lost while it ran"


def test_there_is_a_sick_case_for_every_rule() -> None:
    assert SICK.keys() == {rule.name for rule in RULES}


@pytest.mark.parametrize("cause", SICK)
def test_the_first_finding_names_the_cause(cause: str) -> None:
    assert first(SICK[cause]) == cause


@pytest.mark.parametrize("cause", SICK)
def test_a_finding_has_evidence_a_remedy_and_no_number_without_it(cause: str) -> None:
    finding = judge(SICK[cause]).shown[0]
    assert finding.evidence
    assert finding.actions or cause == "cancelled"
    assert finding.share is None or 0 <= finding.share <= 1
    if finding.saving is not None:
        assert 0 <= finding.saving.low <= finding.saving.high
        assert finding.saving.formula


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        ("tiny-tasks", "Its 15,000 tasks took 40 µs each, and Dask needs up to 1 ms for each: "
         "computing was 1\N{NO-BREAK SPACE}% of the threads' time."),
        ("spilling", "Its results did not fit into memory: 855 MiB of 1.2 GiB were written to "
         "disk, and 612 MiB were read back."),
        ("out-of-memory", "Its tasks of grow ran 5 workers out of memory, at 277 MiB to 309 MiB of "
         "the 286 MiB that each may use; Dask gave up."),
        ("gil-bound", "The 4 threads of each worker ran one at a time (0.98 of a core was used): "
         "Python code holds the GIL, at work.py:22."),
        ("transfer-bound", "Its tasks waited for data: transfers took 6.0 s and computing 2 ms; "
         "773 MiB were sent."),
        ("straggler", "One of 64 tasks of work took 18.0 s, half of them up to 300 ms; threads had "
         "nothing to do for 64\N{NO-BREAK SPACE}% of the time."),
        ("slow-worker", "Its 5 tasks on worker tcp://a:1 took 1.5 s each; tasks like them took "
         "152 ms on average."),
        ("warm-up", "The first 4 tasks of work, one on each worker, took 14.0 s each, later ones "
         "300 ms: 46\N{NO-BREAK SPACE}% of the threads' time went into first runs."),
        ("blocked-loop", "A worker did not answer for 1.2 s at a time: a task held its event loop "
         "up."),
        ("retries", "120 of 180 runs failed with ConnectionError and were run again."),
        ("failed", "1 of 200 tasks of work raised ZeroDivisionError; 199 tasks are done."),
        ("upstream-failed", "2 of 201 tasks need divide, which failed with ZeroDivisionError; 199 "
         "are done."),
        ("large-graph", "Its graph carries 91.6 MiB for 4 tasks, 22.9 MiB each."),
        ("serial-chain", "Its 40 tasks ran one after another, each needed the one before: threads "
         "had nothing to do for 88\N{NO-BREAK SPACE}% of the time."),
        ("waiting", "Its tasks waited: of 40.0 s in threads 10 ms were on a CPU, at work.py:96."),
        ("cancelled", "Its client cancelled 156 tasks before they were done; its tasks had "
         "computed for 22.0 s."),
        ("too-few-tasks", "It had 2 tasks for 8 threads, which had nothing to do for "
         "77\N{NO-BREAK SPACE}% of the time."),
        ("unrunnable", "1 task waits for a worker that can run it: none of 2 workers is or has "
         "what it asks for."),
        ("idle-cluster", "It is idle for 44.0 s, and kept for 1 client connected."),
        ("over-provisioned-memory", "Its workers used at most 194 MiB of 11.2 GiB: "
         "98\N{NO-BREAK SPACE}% of the memory lay idle (0.0178 USD)."),
        ("unused-gpu", "2 workers have GPUs, which were used for at most 0\N{NO-BREAK SPACE}% "
         "while tasks ran for 6 min 40 s."),
        ("oversized-memory", "No worker used more than 2 GiB of 8 GiB in its job's last 6 passed "
         "runs: 2.5 GiB would do."),
        ("undersized-memory", "A worker used 7.5 GiB of its 8 GiB (94\N{NO-BREAK SPACE}%) in its "
         "job's last 6 passed runs, and at 95\N{NO-BREAK SPACE}% its nanny ends it: 9.38 GiB would "
         "do."),
        ("oversized-threads", "At most 4.0 of 16 threads had work on average in its job's last 6 "
         "passed runs: 5 would do, unless it needs many at once for a while."),
        *paced.SAID,
    ],
)  # fmt: skip
def test_the_sentence_has_the_numbers(cause: str, said: str) -> None:
    assert sentence(SICK[cause]) == said


def test_exceptions_of_other_types_are_not_counted_as_the_named_one() -> None:
    retried = evidence(
        run={"tasks": 78, "completed": 78, "done": 78, "retried": 19, "duration": 12.0,
             "failures": (failure(type="ConnectionError", count=10, retried=10),
                          failure(type="ConnectionError", count=6, retried=6, fingerprint="2:b"),
                          failure(type="ValueError", count=3, retried=3, fingerprint="3:c"))},
    )  # fmt: skip
    assert sentence(retried) == (
        "19 of 97 runs failed, 16 of them with ConnectionError, and were run again."
    )
    erred = evidence(
        run={"status": "erred", "tasks": 200, "completed": 197, "done": 197, "erred": 3,
             "groups": (group(tasks=200, completed=197, erred=3),),
             "failures": (failure(type="ValueError", count=2),
                          failure(type="KeyError", fingerprint="2:b"))},
    )  # fmt: skip
    assert sentence(erred) == (
        "3 of 200 tasks of work raised ValueError or another exception; 197 tasks are done."
    )
    of_needed = [
        failure(type=type, computation="c0", function="divide") for type in ("A", "B", "A")
    ]
    blamed = replace(DEPENDENTS, causes=tuple(of_needed))
    assert sentence(blamed) == (
        "2 of 201 tasks need divide, which failed with A or another exception; 199 are done."
    )
    tried_again = replace(of_needed[1], retried=of_needed[1].count)
    assert sentence(replace(blamed, causes=(of_needed[0], tried_again))) == (
        "2 of 201 tasks need divide, which failed with A; 199 are done."
    )


def test_cutting_chunks_apart_is_a_part_of_a_rechunk() -> None:
    parts = (
        group(prefix="rechunk-slice", seconds={"compute": 40.0}),
        group(seconds={"compute": 30.0}),
    )
    rechunk = paced.changed(paced.SHUFFLE, "run", groups=parts)
    assert "(rechunk-slice): 40.0 s" in sentence(rechunk)


def test_a_size_needs_five_runs_and_a_cluster_whose_size_was_chosen() -> None:
    few = judge(sized(runs=3))
    assert few.findings == ()
    for rule in ("undersized-memory", "oversized-memory", "oversized-threads"):
        assert few.not_measured[rule] == "2 more passed runs of its job"
    # In the process of its client, at list prices: the cluster takes what the machine has.
    own = judge(sized(MEMORY_OF_JOB, THREADS_OF_JOB, price_source="list"))
    assert own.findings == ()
    why = "no price is set, and the cluster may be on a user's own machine"
    assert own.not_measured["oversized-memory"] == f"what memory costs: {why}"
    assert own.not_measured["oversized-threads"] == f"what threads cost: {why}"
    rented = judge(sized(THREADS_OF_JOB, price_source="list", in_client=False))
    assert [one.rule for one in rented.findings] == ["oversized-threads"]


def test_a_size_costs_what_it_would_save_and_alarms_by_its_mass() -> None:
    [found] = judge(sized(THREADS_OF_JOB)).findings
    assert (found.severity, found.seconds, found.cost) == ("warning", 1100.0, 0.03)
    assert found.saving is not None
    assert found.saving.formula == "unused threads"
    [found] = judge(sized(MEMORY_OF_JOB)).findings
    # 0.02 USD are 720 s of a thread.
    assert (found.severity, found.seconds, found.cost) == ("warning", None, 0.02)
    little = replace(MEMORY_OF_JOB, saving=Saving(0.0, 0.0005, "USD", "unused memory"))
    assert judge(sized(little)).findings[0].severity == "notice"
    # Too few tasks are the reason why threads are idle, so that their time is not counted twice.
    few_tasks = replace(TOO_FEW, sizing=sized(THREADS_OF_JOB).sizing)
    few_tasks = paced.changed(few_tasks, "cluster", **PRICED)
    by_rule = {one.rule: one for one in judge(few_tasks).findings}
    assert by_rule["oversized-threads"].suppressed_by == "too-few-tasks"


HEALTHY: dict[str, Evidence] = {
    "a job whose size is right": sized(),
    "computing": evidence(),
    # The nearest healthy runs, by the numbers that were measured of them.
    "oversubscribed CPU, no GIL": without(
        evidence(run={"seconds": {"compute": 24.0}, "duration": 6.4}),
        workers=2.0, worker_cpu=0.98, profiled=26.0,
        activities={"thread-cpu": 11.3, "thread-noncpu": 12.7, "idle": 1.0},
    ),
    # The demo's: most tasks of the graph wait for the first ones, in so short a run.
    "short statistics of a table": without(
        evidence(run={"seconds": {"compute": 2.8}, "duration": 2.8, "tasks": 371, "done": 371,
                      "completed": 371}),
        most_waiting=300, activities={"thread-cpu": 2.5, "idle": 6.2},
    ),
    # Tasks that slept, on a worker whose own threads read its GPU: no task of it was on a CPU.
    "sleep beside a busy worker": without(
        evidence(run={"seconds": {"compute": 41.1}, "duration": 22.0}),
        workers=1.0, worker_cpu=0.94, profiled=24.0,
        activities={"thread-cpu": 0.31, "thread-noncpu": 40.8, "idle": 1.0},
    ),
    "a host at load 16": without(
        evidence(run={"seconds": {"compute": 60.0}}),
        worker_cpu=0.2, activities={"thread-cpu": 5.0, "thread-noncpu": 55.0, "idle": 4.0},
    ),
    "a host at load 25, and an import that waits": without(
        evidence(run={"duration": 33.5, "seconds": {"compute": 126.0}}),
        worker_cpu=0.1, waiting_lines=0.39,
        activities={"thread-cpu": 3.0, "thread-noncpu": 123.0, "idle": 4.0},
    ),
    "first task of each worker imports numpy": evidence(
        run={"duration": 2.17, "seconds": {"compute": 4.0},
             "groups": (group(tasks=40, completed=40, durations=runs((38, 0.09), (2, 1.22)),
                              longest=1.22),)},
        meanwhile={"activities": {"idle": 4.0, "thread-cpu": 4.0}},
    ),
    "first runs that import, and then much work": evidence(
        run={"workers": 4, "groups": (group(first_runs=4, first_seconds=12.0, longest=3.0,
                                            seconds={"compute": 60.0}),)},
    ),
    "a prefix of which each worker ran one task": evidence(
        run={"workers": 4, "tasks": 4, "completed": 4, "done": 4, "duration": 15.0,
             "groups": (group(tasks=4, completed=4, first_runs=4, first_seconds=56.0,
                              longest=14.2, seconds={"compute": 56.0}),)},
    ),
    "workers that differ a little": evidence(
        run={"workers": 4,
             "shares": (share(runs=20, seconds=15.4, usual_seconds=12.0, longest=1.0),)},
    ),
    "a worker that had one large input": evidence(
        run={"workers": 4,
             "shares": (share(runs=20, seconds=17.0, usual_seconds=12.0, longest=5.6),)},
    ),
    "workers of two kinds, half and half": evidence(
        run={"workers": 4,
             "shares": tuple(share(worker=f"tcp://a:{i}", runs=10, seconds=14.0,
                                   usual_seconds=6.0, longest=1.5) for i in range(3))},
    ),
    "an event loop that is late on a busy host": evidence(
        run={"loop_interval": 1.4, "host_load": 8.0},
        meanwhile={"profiled": None},
    ),
    "an event loop that was late, while profiles saw the threads": evidence(
        run={"loop_interval": 1.1, "host_load": 0.9},
    ),
    "event loops of threads that hold the lock in turn": evidence(
        run={"loop_interval": 0.26, "host_load": 1.9},
        meanwhile={"profiled": 20.0},
    ),
    "tasks that waited for a worker that was starting": evidence(
        run={"unrunnable_seconds": 12.0, "asks": {"GPU=1": 4}},
    ),
    "threads of its own that were busy": evidence(
        # What time series say of more than its time is another matter.
        run={"worker_seconds": {"busy": 62.0, "idle": 3.6, "paused": 0.0}},
        meanwhile={"activities": {"idle": 80.0, "paused": 20.0, "thread-cpu": 60.0}},
    ),
    "a reduce waits for its map": evidence(
        run={"tasks": 135, "completed": 135, "done": 135, "seconds": {"compute": 52.0}},
        meanwhile={"most_waiting": 13.0, "not_done_then": 27.0,
                   "activities": {"idle": 12.5, "thread-cpu": 50.0, "thread-noncpu": 2.0}},
    ),
    "transfers that computing hides": evidence(
        run={"seconds": {"compute": 58.0, "transfer": 30.0}},
        meanwhile={"activities": {"thread-cpu": 58.0, "transfer": 4.0, "idle": 3.0}},
    ),
    "spilled, and never read back": evidence(
        meanwhile={"spilled": 900.0 * MIB, "unspilled": 20.0 * MIB}
    ),
    "a few retried runs": evidence(
        run={"retried": 3, "failures": (failure(count=3, retried=3),)}
    ),
    "small tasks that come slowly": evidence(
        run={"tasks": 3000, "completed": 3000, "done": 3000, "duration": 600.0,
             "seconds": {"compute": 6.0},
             "groups": (group(tasks=3000, completed=3000, durations=runs((3000, 0.002))),)},
        meanwhile={"activities": {"idle": 2390.0, "thread-cpu": 6.0}},
    ),
    "a large graph of many tasks": evidence(
        run={"graph_bytes": 60_000_000, "tasks": 100_000, "completed": 100_000, "done": 100_000,
             "duration": 300.0, "seconds": {"compute": 1100.0},
             "groups": (group(tasks=100_000, completed=100_000,
                              durations=runs((100_000, 0.011))),)},
    ),
    "a large graph of a long run": evidence(
        run={"graph_bytes": 96_000_000, "duration": 3600.0, "seconds": {"compute": 14000.0}}
    ),
    "one task that uses all cores itself": evidence(
        run={"tasks": 2, "completed": 2, "done": 2, "duration": 60.0,
             "seconds": {"compute": 110.0},
             "groups": (group(tasks=2, completed=2, durations=runs((2, 55.0)), longest=56.0),)},
        meanwhile={"threads": 8.0, "worker_cpu": 4.0,
                   "activities": {"idle": 370.0, "thread-cpu": 110.0}},
    ),
    "a short interactive run": evidence(
        run={"tasks": 20, "completed": 20, "done": 20, "duration": 0.4,
             "seconds": {"compute": 0.38}, "groups": (group(tasks=20, completed=20),)},
        meanwhile={"whole": False, "activities": {"thread-cpu": 0.3}},
    ),
    "workers are on their way": evidence(
        run={"status": "running", "duration": 45.0, "completed": 0, "done": 0,
             "states": {"no-worker": 100}, "seconds": {}},
        cluster={"held_by": {"workers starting": 4}},
    ),
    "one GPU of four is used": evidence(
        run={"duration": 120.0, "seconds": {"compute": 400.0}},
        cluster={"gpu_workers": 4},
        meanwhile={"gpu_utilization": 0.04, "gpu_points": 12, "busy_seconds": 400.0},
    ),
    "a GPU whose memory is full": evidence(
        run={"duration": 120.0, "seconds": {"compute": 400.0}},
        cluster={"gpu_workers": 1},
        meanwhile={"gpu_utilization": 0.0, "gpu_memory_share": 0.8, "gpu_points": 12,
                   "busy_seconds": 400.0},
    ),
    "a pause between two cells": of_cluster({"idle_seconds": 12.0, "held_by": {"clients": 1}}),
    "a cluster that takes the machine's memory": of_cluster(
        {"peak_memory": 900 * MIB, "memory_limit": 64 * GIB, "duration": 7200.0}
    ),
    "memory that was used between two beats": of_cluster(
        {"peak_memory": 194 * MIB, "memory_limit": int(11.2 * GIB), "duration": 16.2,
         "prices": {"gib": 0.36}, "currency": "USD", "peak_worker_memory": 5 * GIB}
    ),
    "one that stopped after it had worked": of_cluster(
        {"status": "stopped", "duration": 600.0},
        meanwhile=Meanwhile(idle_longest=45.0, most_clients=1.0),
    ),
    "workers that were asked to leave": evidence(
        run={"completed": 100}, losses=(loss(expected=True, reason="closed"),)
    ),
    "another computation's worker ran out of memory": evidence(
        losses=(loss(computations={"c2": 3}),),
    ),
    **paced.HEALTHY,
}  # fmt: skip


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy_work_sets_nothing_off(case: str) -> None:
    assert judge(HEALTHY[case]).findings == ()


@pytest.mark.parametrize(
    ("rule", "sick", "fields"),
    [
        ("spilling", SPILLING, {"spilled": None}),
        ("straggler", STRAGGLER, {"alone": False, "whole": False}),
        ("serial-chain", SERIAL, {"most_waiting": None}),
        ("gil-bound", GIL, {"profiled": None}),
        ("waiting", WAITING, {"waiting_lines": None}),
        ("unused-gpu", UNUSED_GPU, {"gpu_points": 0}),
    ],
)  # fmt: skip
def test_a_rule_without_its_signal_says_so_and_finds_nothing(
    rule: str, sick: Evidence, fields: dict[str, Any]
) -> None:
    judgement = judge(without(sick, **fields))
    assert rule not in {finding.rule for finding in judgement.findings}
    assert judgement.not_measured[rule]


@pytest.mark.parametrize(("rule", "part", "fields"), paced.LACKS)
def test_a_rule_whose_signal_is_missing_says_so_and_finds_nothing(
    rule: str, part: str, fields: dict[str, Any]
) -> None:
    judgement = judge(paced.changed(SICK[rule], part, **fields))
    assert rule not in {finding.rule for finding in judgement.findings}
    assert judgement.not_measured[rule]


@pytest.mark.parametrize("rule", ["compute-loop", "worker-churn"])
def test_what_nobody_looked_for_is_not_measured(rule: str) -> None:
    judgement = judge(replace(SICK[rule], loops=None, coming=None))
    assert rule not in {finding.rule for finding in judgement.findings}
    assert judgement.not_measured[rule]


def test_workers_that_died_have_in_common_what_they_ran() -> None:
    assert sentence(paced.COMMON) == (
        "3 workers that ran its tasks of decode died one after another."
    )


def test_workers_that_died_have_nothing_in_common_that_is_another_computations() -> None:
    # Lost results of another one waited beside the task that ended each worker.
    losses = [replace(one, tasks={"decode": 1, "load": 2}) for one in paced.COMMON.losses]
    assert sentence(replace(paced.COMMON, losses=losses)) == sentence(paced.COMMON)


def test_of_the_tasks_that_dask_gave_up_the_one_that_most_workers_had_is_named() -> None:
    decode = failure(type="KilledWorker", function="decode", fingerprint="2:decode")
    load = failure(type="KilledWorker", function="load", fingerprint="1:load")
    losses = [
        replace(one, tasks={"decode": 1} | ({"load": 2} if at % 2 else {}))
        for at, one in enumerate(paced.KILLED.losses)
    ]
    both = paced.changed(replace(paced.KILLED, losses=losses), "run", failures=(load, decode))
    assert sentence(both) == sentence(paced.KILLED)


def test_workers_that_ran_out_of_memory_were_not_killed_by_a_task() -> None:
    assert "killed-workers" not in {finding.rule for finding in judge(OUT_OF_MEMORY).findings}
    assert first(replace(paced.KILLED, losses=())) == "killed-workers"


def test_an_exception_about_another_package_is_no_mismatch() -> None:
    other = failure(type="AttributeError", message="'NoneType' object has no attribute 'x'")
    assert first(paced.changed(paced.MISMATCH, "run", failures=(other,))) == "failed"
    value = failure(type="ValueError", message="pandas cannot do that")
    assert first(paced.changed(paced.MISMATCH, "run", failures=(value,))) == "failed"
    graph = failure(type="TypeError", function="(graph)", message=None)
    of_graph = paced.changed(
        paced.changed(paced.MISMATCH, "run", failures=(graph,)), "cluster", mismatches=("dask",)
    )
    assert sentence(of_graph) == (
        "Its graph could not be loaded on the scheduler (TypeError), which has another "
        "version of dask than other processes."
    )


def test_a_computation_that_says_what_was_spilled_and_sent_needs_no_series() -> None:
    spilled = evidence(
        run={"duration": 2.1, "seconds": {"compute": 3.0, "disk-read": 0.5},
             "groups": (group(output_bytes=int(1.2 * GIB)),),
             "worker_seconds": {"busy": 6.4, "idle": 2.0},
             "spilled_bytes": 855 * MIB, "unspilled_bytes": 612 * MIB},
        meanwhile={"spilled": None, "unspilled": None, "activities": {}, "whole": False,
                   "threads": None, "workers": None},
    )  # fmt: skip
    assert sentence(spilled) == sentence(SPILLING)
    assert TRANSFER.run is not None
    sent = replace(TRANSFER, run=replace(TRANSFER.run, transferred_bytes=773 * MIB))
    assert sentence(without(sent, transferred=None)) == sentence(TRANSFER)


def test_idle_threads_are_those_of_its_own_time() -> None:
    assert STRAGGLER.run is not None
    own = {"busy": 30.6, "idle": 53.9, "paused": 0.0}
    short = replace(STRAGGLER, run=replace(STRAGGLER.run, worker_seconds=own))
    assert sentence(without(short, activities={}, whole=False, alone=False, threads=None)) == (
        sentence(STRAGGLER)
    )
    paused = evidence(
        run={"worker_seconds": {"busy": 50.0, "idle": 3.6, "paused": 12.0}},
        meanwhile={"activities": {}, "whole": False},
    )
    assert first(paused) == "paused"


def test_results_that_are_computed_again_after_its_end_are_not_of_its_time() -> None:
    twice = evidence(
        run={"duration": 20.2, "tasks": 40, "completed": 80, "done": 40,
             "seconds": {"compute": 80.0}, "worker_seconds": {"busy": 40.1, "idle": 0.3}},
        meanwhile={"threads": 2.0, "line": "work.py:96", "waiting_lines": 1.0,
                   "activities": {"thread-noncpu": 39.99, "thread-cpu": 0.01, "idle": 0.3}},
    )  # fmt: skip
    said = "Its tasks waited: of 40.1 s in threads 10 ms were on a CPU, at work.py:96."
    assert sentence(twice) == said
    # Threads that had no task for most of its time did not wait in tasks.
    assert twice.run is not None
    idle = replace(twice.run, worker_seconds={"busy": 16.0, "idle": 24.4})
    assert first(replace(twice, run=idle)) != "waiting"


def test_a_run_of_more_tasks_than_before_may_take_longer() -> None:
    assert SLOWER.run is not None
    known = SLOWER.slower
    assert known is not None
    tasks = SLOWER.run.tasks

    def judged(
        tasks_before: int, *, by_shape: bool = False, tasks_since: int = tasks
    ) -> str | None:
        slower = replace(
            known, tasks_before=tasks_before, tasks_since=tasks_since, by_shape=by_shape
        )
        return first(replace(SLOWER, slower=slower))

    assert judged(tasks) == judged(tasks * 2) == "slower-than-before"
    assert judged(tasks // 2) is None
    # A few more tasks explain a little of it only.
    assert judged(tasks * 10 // 11) == judged(tasks, by_shape=True) == "slower-than-before"
    # What has no more in common than the names of its tasks may be other work.
    assert judged(tasks * 2, by_shape=True) is judged(tasks // 2, by_shape=True) is None
    assert judged(tasks, by_shape=True, tasks_since=tasks * 5) is None


def test_what_cannot_run_says_what_it_asks_for_now_and_afterwards() -> None:
    assert UNRUNNABLE.run is not None
    run = replace(UNRUNNABLE.run, asks={"GPU=1": 1}, unrunnable_seconds=37.5)
    assert sentence(replace(UNRUNNABLE, run=run)) == (
        "1 task waits for a worker that can run it: none of 2 workers is or has what it asks "
        "for (GPU=1)."
    )
    gone = evidence(
        run={"status": "cancelled", "tasks": 3, "completed": 0, "done": 0, "cancelled": 3,
             "duration": 40.0, "states": {}, "seconds": {}, "unrunnable_seconds": 39.0,
             "asks": {"GPU=1": 2, "host a": 1}},
        cluster={"status": "stopped"},
        meanwhile={"most_unrunnable": None, "alone": False},
    )  # fmt: skip
    assert sentence(gone) == (
        "3 tasks waited for a worker that can run them: none of 2 workers was or had what they "
        "asked for (GPU=1, or host a)."
    )
    assert gone.run is not None
    short = replace(gone, run=replace(gone.run, unrunnable_seconds=0.0))
    assert first(short) == "cancelled"


#: Ten tasks are queued, and there is no worker.
NOBODY: dict[str, Any] = {
    "status": "running",
    "tasks": 10,
    "completed": 0,
    "done": 0,
    "duration": 125.0,
    "states": {"queued": 10},
    "seconds": {},
    "unrunnable_seconds": 124.0,
    "asks": {"any worker": 10},
}


def test_queued_tasks_without_a_worker_wait_for_one() -> None:
    said = "10 tasks wait for a worker that can run them: there is no worker."
    held = {"queued": 10}
    assert sentence(evidence(run=NOBODY, cluster={"workers": 0})) == said
    of_cluster_now = of_cluster({"workers": 0, "held_by": held}, waited=[run_of(**NOBODY)])
    assert sentence(of_cluster_now) == said
    # Behind others that run; or workers are starting, or had no time to.
    assert first(evidence(run=NOBODY)) != "unrunnable"
    starting = {"workers": 0, "held_by": held | {"workers starting": 2}}
    assert first(evidence(run=NOBODY, cluster=starting)) != "unrunnable"
    assert first(of_cluster(starting)) is None
    # A long computation, or an old cluster, may have lost its workers only now.
    soon = NOBODY | {"unrunnable_seconds": 5.0}
    assert first(evidence(run=soon, cluster={"workers": 0})) != "unrunnable"
    young = of_cluster({"workers": 0, "held_by": held, "duration": 9e4}, waited=[run_of(**soon)])
    assert first(young) is None


def test_that_there_was_no_worker_is_found_afterwards() -> None:
    gone = NOBODY | {"status": "cancelled", "cancelled": 10, "states": {}, "duration": 138.0}
    none = gone | {"worker_seconds": {"busy": 0.0, "idle": 0.0, "paused": 0.0}, "tasks": 1000}
    stopped = {"status": "stopped", "workers": 0}
    waited = "tasks waited for a worker that can run them: there was"
    assert sentence(evidence(run=none, cluster=stopped)) == f"1,000 {waited} never a worker."
    left = gone | {"worker_seconds": {"busy": 10.0, "idle": 4.0, "paused": 0.0}}
    assert sentence(evidence(run=left, cluster={})) == f"10 {waited} no worker for 2 min 4 s."
    lost = gone | {"status": "lost", "states": {"queued": 10}}
    silent = evidence(run=lost, cluster={"status": "lost", "workers": 0})
    found = [one.sentence for one in judge(silent).findings if one.rule == "unrunnable"]
    assert found == [f"10 {waited} no worker."]


def test_a_first_task_that_waited_for_a_worker_says_so() -> None:
    late = SICK["late-first-task"]
    assert late.run is not None
    run = replace(late.run, unrunnable_seconds=13.0, asks={"any worker": 38})
    assert sentence(replace(late, run=run)) == (
        "Its first task began after 14.4 s, 93\N{NO-BREAK SPACE}% of the time that it took; for "
        "13.0 s of that, no worker could run its tasks."
    )


def test_a_rule_without_what_workers_say_of_themselves_finds_nothing() -> None:
    run = BLOCKED_LOOP.run
    assert run is not None
    for lacks in (replace(run, loop_interval=None), replace(run, host_load=None)):
        judgement = judge(replace(BLOCKED_LOOP, run=lacks))
        assert "blocked-loop" not in {finding.rule for finding in judgement.findings}
        assert judgement.not_measured["blocked-loop"]


@pytest.mark.parametrize("rule", ["slow-worker", "warm-up"])
def test_a_rule_of_what_an_older_plugin_does_not_send_says_so(rule: str) -> None:
    sick = SICK[rule]
    assert sick.run is not None
    judgement = judge(replace(sick, run=replace(sick.run, workers=None)))
    assert rule not in {finding.rule for finding in judgement.findings}
    assert judgement.not_measured[rule]


def test_what_other_computations_did_is_not_laid_at_its_door() -> None:
    for cause in ("spilling", "serial-chain", "gil-bound", "waiting", "unused-gpu", "tiny-tasks",
                  "transfer-bound"):  # fmt: skip
        assert first(without(SICK[cause], alone=False)) != cause
    for cause in ("tiny-tasks", "transfer-bound"):
        assert judge(without(SICK[cause], alone=False)).not_measured[cause]


def test_a_cause_suppresses_its_effects() -> None:
    judgement = judge(STRAGGLER)
    by_rule = {finding.rule: finding for finding in judgement.findings}
    assert [finding.rule for finding in judgement.shown] == ["straggler"]
    assert by_rule.keys() == {"straggler"} or by_rule["waiting"].suppressed_by == "straggler"
    deaths = judge(OUT_OF_MEMORY)
    assert [finding.rule for finding in deaths.shown] == ["out-of-memory"]
    assert {f.rule: f.suppressed_by for f in deaths.findings}["failed"] == "out-of-memory"


def test_no_advice_on_the_speed_of_what_failed_early() -> None:
    early = evidence(
        run={"status": "erred", "tasks": 15000, "done": 5000, "completed": 5000, "erred": 1,
             "duration": 6.0, "seconds": {"compute": 0.2},
             "failures": (failure(),)},
    )  # fmt: skip
    assert {finding.rule for finding in judge(early).findings} == {"failed"}


def test_what_cost_little_is_a_notice_and_what_cost_much_a_warning() -> None:
    assert judge(TRANSFER).shown[0].severity == "notice"  # 2.4 thread-seconds
    assert judge(STRAGGLER).shown[0].severity == "warning"  # 54
    assert judge(ONE_BAD_INPUT).shown[0].severity == "critical"


def test_findings_have_their_costs_where_there_are_prices() -> None:
    priced = evidence(
        run={"duration": 21.05, "tasks": 64, "completed": 64, "done": 64,
             "seconds": {"compute": 30.6}, "groups": STRAGGLER.run.groups if STRAGGLER.run else ()},
        cluster={"cost": 0.24, "currency": "USD"},
        meanwhile={"activities": {"idle": 53.9, "thread-noncpu": 30.5, "thread-cpu": 0.1}},
    )  # fmt: skip
    finding = judge(priced).shown[0]
    assert finding.rule == "straggler"
    assert finding.seconds is not None
    assert finding.cost == pytest.approx(finding.seconds * 0.001)
    assert judge(STRAGGLER).shown[0].cost is None


@pytest.mark.parametrize(("done", "said"), [(0, "of which nothing came"), (199, "which failed")])
def test_nothing_came_of_a_run_only_if_no_task_was_done(done: int, said: str) -> None:
    assert ONE_BAD_INPUT.run is not None
    cluster = replace(ONE_BAD_INPUT.cluster, cost=0.24, currency="USD")
    run = replace(ONE_BAD_INPUT.run, done=done)
    finding = judge(replace(ONE_BAD_INPUT, run=run, cluster=cluster)).shown[0]
    assert finding.saving is not None
    assert finding.saving.formula == f"cost of the whole run, {said}"


@pytest.mark.parametrize("source", ["cluster", "list"])
def test_a_saving_of_time_is_told_in_money_where_there_are_prices(source: str) -> None:
    prices: dict[str, Any] = {"cost": 0.24, "currency": "USD", "price_source": source}
    priced = judge(replace(TRANSFER, cluster=replace(TRANSFER.cluster, **prices))).shown[0]
    free = judge(TRANSFER).shown[0]
    assert priced.saving is not None
    assert free.saving == replace(priced.saving, money=None)
    money, threads = priced.saving.money, TRANSFER.threads
    assert money is not None
    assert threads is not None
    a_second = 0.24 / TRANSFER.cluster.thread_seconds * threads
    assert money.high == pytest.approx(priced.saving.high * a_second)
    assert money.low == pytest.approx(priced.saving.low * a_second)
    assert f"{3600 * a_second:,.2f} USD an hour of its threads" in money.formula
    assert (priced.price_source, priced.currency) == (source, "USD")
    at = "estimate at list prices" if source == "list" else "estimate"
    assert f"USD ({at}): " in saving_in_words(priced.saving, priced.price_source)


def test_memory_alone_at_list_prices_is_no_reason_to_advise_less_of_it() -> None:
    memory = SICK["over-provisioned-memory"]
    assert first(memory) == "over-provisioned-memory"
    listed = replace(memory, cluster=replace(memory.cluster, price_source="list"))
    assert first(listed) is None


def test_where_nothing_stands_out_it_says_how_much_the_threads_computed() -> None:
    assert judge(evidence()).nothing == (
        "Nothing stands out: its threads computed 91\N{NO-BREAK SPACE}% of the time."
    )
    slow = evidence(run={"seconds": {"compute": 13.0}})
    assert judge(slow).nothing == (
        "No known cause stands out; its threads computed 20\N{NO-BREAK SPACE}% of the time."
    )
    busy = evidence(run={"host_load": 8.25})
    assert judge(busy).nothing == (
        "Nothing stands out: its threads computed 91\N{NO-BREAK SPACE}% of the time. A worker's "
        "machine had a load of 8.2 for each core, which may hide a cause."
    )
    assert judge(evidence(meanwhile={"alone": False})).nothing is None
    assert judge(TINY).nothing is None


def test_a_chain_is_known_by_a_measurement_near_its_end_and_not_by_a_client_that_waits() -> None:
    late = replace(SERIAL, meanwhile=replace(SERIAL.meanwhile, most_waiting=7.0, not_done_then=8.0))
    assert first(late) == "serial-chain"
    few = replace(SERIAL, meanwhile=replace(SERIAL.meanwhile, most_waiting=1.0, not_done_then=2.0))
    assert first(few) != "serial-chain"


def test_a_straggler_is_named_by_thresholds_that_can_be_set() -> None:
    found = evidence(
        run={"duration": 21.05, "tasks": 64, "completed": 64, "done": 64,
             "seconds": {"compute": 30.6}, "groups": STRAGGLER.run.groups if STRAGGLER.run else ()},
        meanwhile={"activities": {"idle": 53.9, "thread-noncpu": 30.5, "thread-cpu": 0.1}},
        thresholds={**DEFAULTS, "straggler.duration": 60.0},
    )  # fmt: skip
    assert first(found) is None


def test_tasks_that_waited_for_a_worker_are_named_after_the_cluster_has_gone() -> None:
    gone = evidence(
        run={"status": "cancelled", "tasks": 1, "completed": 0, "done": 0, "cancelled": 1,
             "duration": 40.0, "states": {}, "seconds": {}},
        cluster={"status": "stopped"},
        meanwhile={"most_unrunnable": 1.0},
    )  # fmt: skip
    assert first(gone) == "unrunnable"
    assert sentence(gone) == (
        "1 task waited for a worker that can run it: none of 2 workers was or had what it asked "
        "for."
    )
    assert first(without(gone, most_unrunnable=0.0)) == "cancelled"


#: Of 100 tasks three waited for a GPU; it was cancelled after ten minutes.
THREE_WAITED: dict[str, Any] = {
    "status": "cancelled",
    "tasks": 100,
    "completed": 97,
    "done": 97,
    "cancelled": 3,
    "duration": 600.0,
    "states": {"memory": 97},
    "seconds": {"compute": 10.0},
    "unrunnable_seconds": 600.0,
    "asks": {"GPU=1": 3},
}


@pytest.mark.parametrize("status", ["stopped", "lost", "running"])
def test_tasks_that_waited_are_named_though_others_were_done(status: str) -> None:
    given_up = evidence(run=THREE_WAITED, cluster={"status": status})
    assert sentence(given_up) == (
        "3 tasks waited for a worker that can run them: none of 2 workers was or had what they "
        "asked for (GPU=1)."
    )
    # A tenth of its time: they may have run since.
    waited = evidence(run=THREE_WAITED | {"unrunnable_seconds": 60.0}, cluster={"status": status})
    assert first(waited) == "cancelled"


def test_a_cluster_that_is_gone_says_what_no_worker_could_run() -> None:
    gone = {"status": "stopped", "duration": 900.0, "workers": 0, "last_held_by": {"clients": 1}}
    assert sentence(of_cluster(gone, waited=[run_of(**THREE_WAITED)])) == (
        "3 tasks waited for a worker that can run them: none of 2 workers was or had what they "
        "asked for (GPU=1)."
    )
    one_more = THREE_WAITED | {"id": "other", "asks": {"FPGA=1": 1}, "completed": 99, "done": 99}
    of_both = [run_of(**THREE_WAITED), run_of(**one_more | {"unrunnable_seconds": 400.0})]
    assert sentence(of_cluster(gone, waited=of_both)) == (
        "4 tasks waited for a worker that can run them: none of 2 workers was or had what they "
        "asked for (GPU=1, or FPGA=1)."
    )
    # That it was idle is no effect of that: while tasks wait, a cluster is not idle.
    idle = of_cluster(
        gone, waited=[run_of(**THREE_WAITED)], meanwhile=Meanwhile(idle_longest=800.0)
    )
    assert [one.rule for one in judge(idle).shown] == ["unrunnable", "idle-cluster"]
    assert first(of_cluster(gone)) is None


def test_an_idle_cluster_says_so_after_it_has_stopped() -> None:
    stopped = of_cluster(
        {"status": "stopped", "duration": 49.0, "cost": 0.2, "idle_cost": 0.196, "currency": "USD"},
        meanwhile=Meanwhile(idle_longest=48.1, most_clients=1.0),
    )
    assert sentence(stopped) == (
        "It was idle for 48.1 s of the 49.0 s that it was up (0.20 USD of 0.20 USD), with 1 client "
        "connected."
    )


def test_less_memory_is_advised_by_the_worker_that_used_most() -> None:
    found = of_cluster(
        {"peak_memory": 194 * MIB, "memory_limit": int(11.2 * GIB), "duration": 16.2,
         "prices": {"gib": 0.36}, "currency": "USD", "peak_worker_memory": 400 * MIB}
    )  # fmt: skip
    (finding,) = judge(found).findings
    assert "used at most 800 MiB of 11.2 GiB" in finding.clause
    assert [action.value for action in finding.actions] == ["500 MiB"]


def test_a_loss_belongs_to_the_computations_that_it_names_whatever_tasks_are_called() -> None:
    named = loss(tasks={"work": 3}, computations={"c2": 3})
    assert first(evidence(losses=(named,))) is None
    assert first(evidence(losses=(replace(named, computations={"c1": 3}),))) == "out-of-memory"


def test_workers_ended_at_the_most_memory_that_they_had() -> None:
    losses = (loss(nanny_memory=277 * MIB, peak_memory=309 * MIB, computations={"c1": 1}),)
    (finding,) = judge(evidence(losses=losses)).shown
    assert "1 worker out of memory, at 309 MiB of the 286 MiB" in finding.clause
    assert [action.value for action in finding.actions] == [None, "at least 386 MiB"]


def test_an_idle_cluster_names_who_holds_it_and_how_much() -> None:
    ada = Holder("ada", "10.0.0.2", START, 8, 610 * MIB)
    bob = Holder("bob", "", START, 0, 0)
    now = of_cluster(
        {"idle_seconds": 44.0, "held_by": {"clients": 2, "results": 8}, "connected": (ada, bob)}
    )
    assert sentence(now) == (
        "It is idle for 44.0 s, and kept for 2 clients connected and 8 results held in memory "
        "(ada on 10.0.0.2 with 610 MiB, bob)."
    )
    stopped = of_cluster(
        {"status": "stopped", "duration": 49.0, "connected": (ada,),
         "last_held_by": {"clients": 1, "results": 8}},
        meanwhile=Meanwhile(idle_longest=48.1),
    )  # fmt: skip
    assert sentence(stopped) == (
        "It was idle for 48.1 s of the 49.0 s that it was up, with 1 client connected and 8 "
        "results held in memory (ada on 10.0.0.2 with 610 MiB)."
    )


def test_a_run_that_took_no_longer_than_before_is_not_slower() -> None:
    assert first(evidence(run={"duration": 10.5}, slower=SLOWER.slower)) is None
    assert first(evidence(run={"duration": 20.0, "erred": 1}, slower=SLOWER.slower)) is None
    little = replace(SLOWER.slower, before=0.5, after=0.8)  # type: ignore[type-var]
    assert first(evidence(run={"duration": 1.2}, slower=little)) is None


def test_times_of_losses_bound_what_they_are_blamed_for() -> None:
    early = loss(at=START - 30, tasks={"work": 1})
    assert first(evidence(losses=(early,))) is None


@pytest.mark.parametrize("part", ["run", "cluster", "meanwhile"])
def test_whatever_number_was_sent_a_rule_says_something_or_nothing(part: str) -> None:
    for found in SICK.values():
        if not is_dataclass(getattr(found, part)):
            continue  # of a cluster
        for field in fields(getattr(found, part)):
            value = getattr(getattr(found, part), field.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            for extreme in (0, 1, 1e-300, 1e12, 2**53):
                of_type = int(extreme) if isinstance(value, int) else float(extreme)
                changed = replace(getattr(found, part), **{field.name: of_type})
                judgement = judge(replace(found, **{part: changed}))
                for one in judgement.findings:
                    assert one.sentence
                    assert [in_words(measure) for measure in one.evidence]
                    assert one.saving is None or saving_in_words(one.saving)
