"""How long a beat holds up the event loop of a scheduler with 1,000 workers.

The workers are Dask's own records of workers, in a real scheduler that none connects to: each
thread has a task, each worker a GPU. ``at work`` is a large cluster on an ordinary day; in ``all at
once`` all other things that are bounded are at their bound, and as many workers have left. Measured
is CPU time of the loop's thread: what else runs on the machine does not count.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

from dask._task_spec import Task
from distributed.core import Status
from distributed.scheduler import Scheduler, TaskState, WorkerState

from daskscope.config import settings
from daskscope.observe.cluster.users import Registrant
from daskscope.observe.errors.failures import MAX_FAILURES
from daskscope.observe.messages.events import MAX_EVENTS
from daskscope.observe.messages.logs import MAX_RECORDS
from daskscope.observe.naming import MAX_PREFIXES
from daskscope.observe.observer import Observer
from daskscope.observe.snapshot import weight
from daskscope.observe.workers.metrics import MAX_KEYS
from tests.bench.results import Figure

WORKERS, THREADS = 1_000, 4
GOAL = 5.0

_LABELS = ("thread-cpu", "thread-noncpu", "executor", "other", "deserialize", "disk-read")


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is, and what happens between two beats.

    ``groups`` end a task each. ``waiting`` computations, of one task each, came before the beat,
    more than one snapshot tells. ``metrics`` are the keys of the workers' own. With ``from_before``
    the tasks in the threads have been there since before daskscope came. ``goal`` is that of a
    whole beat, in milliseconds; no stretch of any may be above ``GOAL``.
    """

    name: str
    prefixes: int
    groups: int
    waiting: int
    metrics: int
    failures: int
    events: int
    logs: int
    losses: int
    from_before: bool
    goal: float | None


SCENES = (
    Scene(
        "at work",
        100,
        100,
        0,
        1_000,
        failures=5,
        events=10,
        logs=10,
        losses=1,
        from_before=False,
        goal=GOAL,
    ),
    Scene(
        "all at once",
        MAX_PREFIXES,
        200,
        10_000,
        MAX_KEYS,
        failures=MAX_FAILURES,
        events=MAX_EVENTS,
        logs=MAX_RECORDS,
        losses=WORKERS,
        from_before=True,
        goal=None,
    ),
)


@cache
def _function(name: str) -> Any:
    """Return what tasks call that go by that name."""
    return type(name, (), {"__call__": lambda self: None})()


def measure(rounds: int) -> list[Figure]:
    """Return the figures over ``rounds`` beats of each scene."""
    figures = []
    for scene in SCENES:
        snapshots, stretches = asyncio.run(_play(scene, rounds))
        name = f"{WORKERS:,} workers {scene.name}"
        figures += [
            Figure.of_values(f"a beat, {name}", snapshots, "ms", goal=scene.goal),
            Figure.of_values(f"at a time, {name}", stretches, "ms", goal=GOAL),
            Figure.of_values(f"longest, {name}", [max(stretches)], "ms", goal=GOAL),
        ]
    return figures


async def _play(scene: Scene, rounds: int) -> tuple[list[float], list[float]]:
    # A scheduler has to be made where its event loop runs.
    return await _Stage(scene).play(rounds)


class _Stage:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._serial = count()
        self._scheduler = Scheduler(host="127.0.0.1", port=0, dashboard_address="127.0.0.1:0")
        self._observer: Observer | None = None

    async def play(self, rounds: int) -> tuple[list[float], list[float]]:
        """Return milliseconds of each beat without the rows that it left for later; and of each
        stretch that the event loop was held up for, be it a step of a beat or some of these rows.
        """
        scheduler = self._scheduler
        self._fill()
        observer = self._observer = Observer(
            scheduler,
            settings(
                prices={"currency": "USD", "thread": 0.06},
                events__allow="*",
                logs__level="INFO",
                profile__interval="1s",
            ),
            Counter(),
            registrant=Registrant("bench", "here", "Client-bench"),
            sampled=lambda trace_id: True,
        )
        beats: list[float] = []
        stretches: list[float] = []
        try:
            for number in range(rounds + 1):
                self._work()
                if number:
                    self._execute()
                # What this filled the scheduler with is not to be looked through for garbage now.
                gc.collect()
                gc.freeze()
                steps = observer.snapshots.steps("beat" if number else "start")
                first = len(stretches)
                taken = None
                while taken is None:
                    began = time.thread_time()
                    try:
                        next(steps)
                    except StopIteration as end:
                        taken = end.value
                        weight(taken)
                        observer.profile_window()
                    stretches.append(_milliseconds(began))
                if number:  # by the first, no task of an ordinary day has begun
                    beats.append(sum(stretches[first:]))
                while observer.snapshots.rows_wait():
                    began = time.thread_time()
                    weight(observer.snapshots.rest("beat"))
                    stretches.append(_milliseconds(began))
        finally:
            gc.unfreeze()
            observer.stop()
            await scheduler.close()
        return beats, stretches

    def _fill(self) -> None:
        scheduler = self._scheduler
        for number in range(WORKERS):
            worker = self._worker(number)
            for _ in range(THREADS):
                task = self._task()
                task.processing_on = worker
                worker.processing.add(task)
            scheduler.workers[worker.address] = worker
        if self._scene.from_before:
            self._execute()

    def _execute(self) -> None:
        """Have the workers tell that their tasks are in their threads."""
        for worker in self._scheduler.workers.values():
            worker.executing = dict.fromkeys(worker.processing, 1.0)

    def _worker(self, number: int) -> WorkerState:
        worker = WorkerState(
            address=f"tcp://10.0.{number // 250}.{number % 250}:1234",
            status=Status.running,
            pid=number,
            name=number,
            nthreads=THREADS,
            memory_limit=16 * 2**30,
            local_directory="/nowhere",
            nanny=f"tcp://10.0.{number // 250}.{number % 250}:1235",
            server_id=f"worker-{number}",
            scheduler=self._scheduler,
        )
        worker.last_seen = time.time()
        worker.metrics = {
            "memory": 2**30,
            "managed_bytes": 2**20,
            "spilled_bytes": {"memory": 0, "disk": 0},
            "gpu_utilization": 50,
            "gpu_memory_used": 2**30,
            "gpu-memory-total": 2**34,
        }
        return worker

    def _task(self) -> TaskState:
        number = next(self._serial)
        prefix = f"prefix{number % self._scene.prefixes}"
        key = f"{prefix}-{number:032x}"
        return self._scheduler.new_task(key, Task(key, _function(prefix)), "released")

    def _work(self) -> None:
        """Let happen what happens between two beats."""
        observer, scene = self._observer, self._scene
        assert observer is not None
        metrics = self._scheduler.cumulative_worker_metrics
        for key in range(scene.metrics):
            label = _LABELS[key // scene.prefixes % len(_LABELS)]
            prefix = f"prefix{key % scene.prefixes}"
            metrics["execute", prefix, label, f"part {key // len(_LABELS)}", "seconds"] += 1
            metrics["execute", prefix, label, "seconds"] += 1
        self._run([self._task() for _ in range(scene.groups)])
        for _ in range(scene.waiting):
            self._run([self._task()])
        for _ in range(scene.failures):
            self._fail()
        for number in range(scene.events):
            observer.log_event("bench", {"number": number})
        for number in range(scene.logs):
            told = (time.time(), logging.INFO, "bench", "a line", None, None, None)
            observer.logs.of_worker(f"tcp://10.0.0.{number % 250}:1234", [(told, None)])
        for number in range(scene.losses):
            self._lose(number)

    def _run(self, tasks: list[TaskState]) -> None:
        observer = self._observer
        assert observer is not None
        observer.update_graph("client", [task.key for task in tasks])
        now = time.time()
        worker = next(iter(self._scheduler.workers.values()))
        told = {
            "worker": worker.address,
            "nbytes": 28,
            "typename": "int",
            "startstops": ({"action": "compute", "start": now, "stop": now + 0.1},),
        }
        for task in tasks:
            task.processing_on = worker
            for start, finish in (("released", "waiting"), ("waiting", "processing")):
                observer.transitions.note(task.key, start, finish)
            observer.transitions.note(task.key, "processing", "memory", **told)
        # Long before the beat, as soon as the loop is quiet.
        observer.transitions.count()

    def _fail(self) -> None:
        observer = self._observer
        assert observer is not None
        task = self._task()
        text = f"ValueError({'x' * 200!r})"
        observer.update_graph("client", [task.key])
        task.processing_on = next(iter(self._scheduler.workers.values()))
        observer.transitions.note(task.key, "released", "waiting")
        observer.transitions.note(task.key, "waiting", "processing")
        told = {"cause": task.key, "exception_text": text, "traceback_text": "in f\n" * 20}
        observer.transitions.note(task.key, "processing", "erred", **told)

    def _lose(self, number: int) -> None:
        observer = self._observer
        assert observer is not None
        worker = self._worker(WORKERS + number)
        self._scheduler.workers[worker.address] = worker
        observer.add_worker(worker.address)
        message = {
            "action": "remove-worker",
            "worker": worker.address,
            "processing-tasks": (),
            "stimulus_id": "handle-worker-cleanup-1",
        }
        observer.log_event("all", message)
        del self._scheduler.workers[worker.address]
        observer.remove_worker(worker.address)


def _milliseconds(began: float) -> float:
    return (time.thread_time() - began) * 1_000
