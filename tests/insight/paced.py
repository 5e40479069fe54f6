"""Sick and healthy cases of rules about deaths, versions, pace, shuffles and memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from daskscope_service.insight.findings.evidence import Evidence, Loop, Meanwhile, WorkerChurn
from tests.insight.constructed import (
    GIB,
    MIB,
    START,
    evidence,
    failure,
    group,
    loss,
    of_cluster,
    runs,
)


def died(**fields: Any) -> Any:
    """Return the loss of a worker whose process died."""
    given = {
        "reason": "process died",
        "nanny_memory": None,
        "memory_limit": GIB,
        "peak_memory": 200 * MIB,
    }
    return loss(**(given | fields))


def loop(**fields: Any) -> Loop:
    """Return 120 computations that used a fifth of the threads' time."""
    given: dict[str, Any] = {
        "line": "etl.py:41",
        "times": 120,
        "seconds": 123.0,
        "between": 54.0,
        "pause": 0.45,
        "thread_seconds": 492.0,
        "busy": 92.0,
    }
    return Loop(**(given | fields))


KILLED = evidence(
    run={
        "status": "erred", "erred": 1, "completed": 0, "done": 0, "tasks": 3, "duration": 14.0,
        "groups": (group(name="decode", prefix="decode", tasks=3, completed=0, erred=1),),
        "failures": (failure(type="distributed.scheduler.KilledWorker", function="decode"),),
    },
    losses=tuple(died(id=f"w{i}", tasks={"decode": 1, "load": i % 2}) for i in range(4)),
)  # fmt: skip
COMMON = evidence(
    run={"groups": (group(name="decode", prefix="decode", tasks=20), group(tasks=80))},
    losses=tuple(
        died(id=f"w{i}", tasks={"decode": 1} | ({"work": 2} if i else {})) for i in range(3)
    ),
)
KILLED_FOR_MEMORY = evidence(
    losses=tuple(died(id=f"w{i}", peak_memory=size * MIB) for i, size in enumerate((900, 960))),
)
MISMATCH = evidence(
    run={"status": "erred", "erred": 12, "done": 88, "completed": 88,
         "failures": (failure(type="AttributeError", count=12,
                              message="Can't get attribute 'x' on <module 'pandas.core' from …>"),),
         "groups": (group(erred=12, completed=88),)},
    cluster={"mismatches": ("pandas",)},
)  # fmt: skip
SCHEDULER = evidence(
    run={"tasks": 29000, "done": 29000, "completed": 29000, "duration": 20.0,
         "seconds": {"compute": 1160.0},
         "groups": (group(tasks=29000, completed=29000, durations=runs((29000, 0.04)),
                          longest=0.09),)},
    cluster={"in_client": False, "workers": 20, "peak_workers": 20, "threads": 200,
             "peak_threads": 200},
    meanwhile={"threads": 200.0, "workers": 20.0, "scheduler_cpu": 0.97, "worker_cpu": 0.2,
               "activities": {"thread-cpu": 200.0, "thread-noncpu": 960.0, "unattributed": 2840.0}},
)  # fmt: skip
SLOW_START = evidence(
    run={"duration": 60.0, "worker_seconds": {"busy": 118.0, "idle": 2.0},
         "seconds": {"compute": 110.0}},
    cluster={"workers": 2, "peak_workers": 2, "peak_threads": 4},
    meanwhile={"threads": 4.0, "workers": 2.0, "first_workers": 0.0, "gathered": 30.0},
)  # fmt: skip
STUCK = evidence(
    run={"status": "running", "completed": 97, "done": 97, "duration": 2900.0,
         "states": {"memory": 97, "processing": 3},
         "groups": (group(completed=97, longest=2.1, stopped_at=START + 80.0),)},
    meanwhile={"worker_cpu_now": 0.01, "activities": {"thread-noncpu": 58.0, "idle": 9000.0}},
)  # fmt: skip
COLLISION = evidence(meanwhile={"collisions": 1})
SHUFFLE = evidence(
    run={"duration": 20.0, "seconds": {"compute": 40.0, "transfer": 26.0},
         "groups": (group(name="r-1", prefix="rechunk-p2p", output_bytes=4 * GIB,
                          seconds={"compute": 18.0, "transfer": 20.2}),
                    group(name="r-2", prefix="rechunk-transfer", seconds={"compute": 3.0}),
                    group(seconds={"compute": 30.0}))},
)  # fmt: skip
THREADS = evidence(
    run={"largest_output": 200 * MIB, "spilled_bytes": 900 * MIB, "unspilled_bytes": 700 * MIB,
         "groups": (group(output_bytes=2 * GIB),)},
    meanwhile={"workers": 1.0},
    cluster={"workers": 1, "peak_workers": 1, "memory_limit": 2 * GIB},
)  # fmt: skip
GROWING = of_cluster(
    {"duration": 7200.0, "memory_limit": 16 * GIB},
    meanwhile=Meanwhile(
        busy_seconds=60.0, unmanaged=[one * GIB for one in (0.8, 1.2, 2.0, 2.9, 3.8, 4.6)]
    ),
)
LOOP = of_cluster({"duration": 130.0}, loops=(loop(),))
CHURN = of_cluster(
    {"duration": 1300.0, "peak_workers": 6, "peak_threads": 12},
    coming=WorkerChurn(58, 34.0, 1200.0),
)
NEAR = of_cluster({"peak_worker_memory": 950 * MIB})

LATE = evidence(
    run={"duration": 15.5, "began_at": START + 14.4, "tasks": 38, "completed": 38, "done": 38,
         "seconds": {"compute": 0.62},
         "groups": (group(tasks=38, completed=38, durations=runs((38, 0.016)), longest=0.1),)},
    meanwhile={"activities": {"idle": 60.0, "thread-cpu": 0.6}},
)  # fmt: skip

SICK: dict[str, Evidence] = {
    "killed-workers": KILLED,
    "killed-for-memory": KILLED_FOR_MEMORY,
    "version-mismatch": MISMATCH,
    "scheduler-bound": SCHEDULER,
    "slow-start": SLOW_START,
    "late-first-task": LATE,
    "stuck": STUCK,
    "key-collision": COLLISION,
    "shuffle-bound": SHUFFLE,
    "too-many-threads": THREADS,
    "growing-memory": GROWING,
    "compute-loop": LOOP,
    "worker-churn": CHURN,
    "nearly-out-of-memory": NEAR,
}

SAID = [
    ("killed-workers", "4 workers that ran its tasks of decode died one after another; Dask gave "
     "up."),
    ("killed-for-memory", "2 workers died without reporting why, at 900 MiB to 960 MiB of the "
     "1 GiB that each may use: the machine or the platform may have ended them for their memory."),
    ("version-mismatch", "12 task runs raised AttributeError about pandas, whose version differs "
     "between processes."),
    ("scheduler-bound", "Its scheduler used 0.97 of a core for 1,450 tasks a second, and threads "
     "computed for 29\N{NO-BREAK SPACE}% of the time: more workers will not help."),
    ("late-first-task", "Its first task began after 14.4 s, 93\N{NO-BREAK SPACE}% of the time that "
     "it took."),
    ("slow-start", "It began with 0 of 2 workers, and 30.0 s passed until 2 were there."),
    ("stuck", "Nothing has ended for 47 min: 3 tasks run on workers that use 0.01 of a core; the "
     "longest so far took 2.1 s."),
    ("key-collision", "The scheduler warned 1 time that two graphs used one key for different "
     "tasks: results may be wrong, or never come."),
    ("shuffle-bound", "58\N{NO-BREAK SPACE}% of its tasks' time went into moving data between "
     "chunks (rechunk-p2p): 41.2 s."),
    ("too-many-threads", "Each of the 4 threads of a worker has 512 MiB of its memory, and the "
     "largest result has 200 MiB: not three fit."),
    ("growing-memory", "Memory that Dask does not know of grew on each worker from 1.2 GiB to "
     "4.6 GiB of 8 GiB in 1 h 20 min: at that rate a worker is full in 1 h 20 min."),
    ("compute-loop", "120 computations came one after another from etl.py:41; threads had nothing "
     "to do for 81\N{NO-BREAK SPACE}% of the 2 min 3 s that they took together."),
    ("worker-churn", "58 workers were sent away and others started within 20 min; half of them "
     "were there for less than 34.0 s."),
    ("nearly-out-of-memory", "A worker used 950 MiB of its 1 GiB (93\N{NO-BREAK SPACE}%): at "
     "95 % its nanny would have ended it."),
]  # fmt: skip


def changed(found: Evidence, part: str, **fields: Any) -> Evidence:
    """Return ``found`` with other fields of one part of it."""
    return replace(found, **{part: replace(getattr(found, part), **fields)})


HEALTHY: dict[str, Evidence] = {
    "first tasks that waited for another computation": changed(LATE, "meanwhile", alone=False),
    "a first task that began a little late": changed(LATE, "run", began_at=START + 4.0),
    "a first task that was late for a small part of it": evidence(
        run={"began_at": START + 6.0, "duration": 60.0, "seconds": {"compute": 216.0}}
    ),
    "one machine that went away with all kinds of tasks": replace(
        COMMON,
        losses=tuple(died(id=f"w{i}", tasks={"decode": 1, "work": 2}) for i in range(3)),
    ),
    "workers that died while they ran what all run": evidence(
        losses=tuple(died(id=f"w{i}", tasks={"work": 1}) for i in range(3)),
    ),
    "a worker that died with little memory": evidence(losses=(died(),)),
    "a scheduler that is busy, and threads that are, too": changed(
        changed(SCHEDULER, "meanwhile", scheduler_cpu=0.95), "run", seconds={"compute": 3300.0}
    ),
    "a scheduler that has time left": changed(SCHEDULER, "meanwhile", scheduler_cpu=0.6),
    "a busy process, and few tasks": changed(
        SCHEDULER, "run", completed=2000, tasks=2000, done=2000, seconds={"compute": 80.0}
    ),
    "tasks that compute in the scheduler's process": changed(
        changed(SCHEDULER, "cluster", in_client=None), "run", duration=20.0
    ),
    "workers that came within seconds": changed(
        changed(SLOW_START, "run", duration=20.0, worker_seconds={"busy": 54.0}),
        "meanwhile",
        gathered=6.0,
    ),
    "a few workers more, later": changed(SLOW_START, "meanwhile", first_workers=1.0),
    "workers that were late for a small part of it": changed(
        changed(SLOW_START, "run", duration=600.0), "meanwhile", gathered=40.0
    ),
    "a task that takes minutes": changed(STUCK, "run", duration=380.0),
    "few tasks that have ended": changed(STUCK, "run", completed=5),
    "long tasks, as the others were": changed(
        STUCK, "run", groups=(group(completed=97, longest=400.0, stopped_at=START + 80.0),)
    ),
    "long tasks that compute": changed(STUCK, "meanwhile", worker_cpu_now=0.9),
    "a shuffle that is all that was asked for": changed(
        SHUFFLE, "run",
        groups=(group(prefix="rechunk-p2p", seconds={"compute": 40.0, "transfer": 26.0}),),
    ),
    "a shuffle beside much else": changed(
        SHUFFLE, "run",
        groups=(group(prefix="shuffle-p2p", seconds={"compute": 20.0}),
                group(seconds={"compute": 40.0})),
    ),
    "a rechunk that is fused with what uses the data": changed(
        SHUFFLE, "run",
        groups=(group(prefix="rechunk-sum", seconds={"compute": 40.0, "transfer": 1.0}),
                group(prefix="rechunk-merge-rechunk-transfer", seconds={"compute": 1.0}),
                group(seconds={"compute": 24.0})),
    ),
    "a shuffle of seconds": changed(SHUFFLE, "run", duration=3.0),
    "a shuffle in threads that had much else": changed(SHUFFLE, "run", duration=400.0),
    "large results for which there is memory": changed(
        THREADS, "run", spilled_bytes=0, unspilled_bytes=0
    ),
    "memory that grew, and then no more": changed(
        GROWING, "meanwhile", unmanaged=[one * GIB for one in (0.8, 1.2, 2.0, 3.9, 4.5, 4.51)]
    ),
    "memory that grows a little": changed(
        GROWING, "meanwhile", unmanaged=[one * GIB for one in (0.8, 1.2, 1.3, 1.4, 1.5, 1.6)]
    ),
    "a young cluster whose memory grows": changed(GROWING, "cluster", duration=900.0),
    "memory that was given back": changed(
        GROWING, "meanwhile", unmanaged=[one * GIB for one in (0.8, 1.2, 2.6, 2.4, 3.8, 4.6)]
    ),
    "a loop that uses the cluster": of_cluster({}, loops=(loop(busy=400.0),)),
    "a cell that a person runs again and again": of_cluster({}, loops=(loop(pause=25.0),)),
    "a few steps of a script": of_cluster({}, loops=(loop(times=8),)),
    "a short loop": of_cluster(
        {}, loops=(loop(times=12, seconds=6.0, thread_seconds=24.0, busy=4.0),)
    ),
    "a dozen of workers, six at once": replace(CHURN, coming=WorkerChurn(12, 34.0, 600.0)),
    "nine workers, one at a time": replace(
        CHURN, coming=WorkerChurn(9, 34.0, 600.0), cluster=replace(CHURN.cluster, peak_workers=1)
    ),
    "adaptive scaling with long-lived workers": replace(
        CHURN, coming=WorkerChurn(58, 300.0, 40_000.0)
    ),
    "a few workers that came and went": replace(CHURN, coming=WorkerChurn(9, 20.0, 600.0)),
    "memory that is well used": of_cluster({"peak_worker_memory": 880 * MIB}),
    "workers that differ in their memory": of_cluster({"peak_worker_memory": 1500 * MIB}),
}  # fmt: skip

#: What each rule needs that may not be measured.
LACKS: list[tuple[str, str, dict[str, Any]]] = [
    ("scheduler-bound", "meanwhile", {"scheduler_cpu": None}),
    ("slow-start", "meanwhile", {"first_workers": None}),
    ("late-first-task", "run", {"began_at": None}),
    ("stuck", "meanwhile", {"worker_cpu_now": None}),
    ("key-collision", "meanwhile", {"collisions": None}),
    ("too-many-threads", "run", {"largest_output": None}),
    ("growing-memory", "meanwhile", {"unmanaged": ()}),
    ("nearly-out-of-memory", "cluster", {"peak_worker_memory": None}),
    ("version-mismatch", "run", {"failures": (failure(type="AttributeError", message=None),)}),
]
