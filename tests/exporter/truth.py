"""What a cluster really did, counted beside the plugin and without any of its code.

A second scheduler plugin notes every transition, and reads off the scheduler a hundred times a
second what its threads have to do. :meth:`Truth.assert_equals` compares with it what the plugin has
sent, or what the service answers. Nothing of daskscope is imported here.

What is not compared, as nothing but Dask's own sums knows it: the bytes that were spilled, read
back and transferred, and which share of a CPU a task had.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from distributed import Scheduler, SchedulerPlugin
from distributed.metrics import time as wall_clock

#: Seconds between two looks at the threads, beside one at each transition.
LOOK = 0.01
#: Workers from which on there is no look at each transition, and the others are rarer: each looks
#: at all workers. Then threads cannot be compared.
MANY = 50
#: How far thread-seconds may be off: a share, for looks come late on a busy machine, and thread-
#: seconds, for the two plugins do not start and stop at the same moment.
SHARE, SECONDS = 0.03, 0.6
#: How far the memory of a process may be off, in bytes.
PAGES = 4 << 20


@dataclass
class Run:
    """One run of a task, from when a worker was given it until it ended."""

    key: Any
    worker: str
    given_at: float
    retries: int
    ended_at: float = 0.0
    outcome: str = ""
    nbytes: int = 0
    prefix: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    #: Whether the computation of its task had surely ended.
    after_end: bool = False


class Spent(NamedTuple):
    """Thread-seconds: of all threads, of those without a task, and of paused workers'."""

    threads: float = 0.0
    idle: float = 0.0
    paused: float = 0.0
    #: Seconds of clusters, workers and GiB of their memory: what prices are for, beside threads.
    cluster: float = 0.0
    worker: float = 0.0
    gib: float = 0.0
    #: The same, as far as threads were idle: the share of the threads that were.
    idle_cluster: float = 0.0
    idle_worker: float = 0.0
    idle_gib: float = 0.0

    def plus(self, passed: float, had: Spent) -> Spent:
        """Return this and what passed while there was so much."""
        return Spent(*(x + passed * y for x, y in zip(self, had, strict=True)))

    def cost(self, per_hour: Mapping[str, float]) -> float:
        """Return what that costs by these prices. No GPUs: no test counts them."""
        held = (self.cluster, self.worker, self.threads, self.gib)
        return _priced(per_hour, held)

    def idle_cost(self, per_hour: Mapping[str, float]) -> float:
        """Return the part of it that is of idle threads."""
        return _priced(per_hour, (self.idle_cluster, self.idle_worker, self.idle, self.idle_gib))


class Truth(SchedulerPlugin):
    """Counts what happens from when the plugin called ``beside`` comes, after :meth:`begin`, until
    :meth:`end`; both on the scheduler's loop.

    Tasks that the scheduler had before are left out.
    """

    name = "truth"

    def __init__(self, scheduler: Scheduler, beside: str) -> None:
        self._scheduler = scheduler
        self._beside = beside
        self._left_out: set[Any] = set()
        self._running: dict[Any, Run] = {}
        self._reported: defaultdict[Any, set[Any]] = defaultdict(set)
        self._looks: asyncio.Task[None] | None = None
        self._looked_at = 0.0
        self.began_at = 0.0
        # Seconds by which the other plugin may have come before it was seen here: looks come late
        # where the event loop is held up.
        self._seen_late = 0.0
        # At each look: when it was by the wall clock, and the thread-seconds and costs until then.
        self._history: list[tuple[float, Spent]] = []
        #: Tasks that were asked for and were to run.
        self.tasks = 0
        #: Runs that ended, in their order.
        self.runs: list[Run] = []
        self._spent = self._has = Spent()
        self.peak_workers = self.peak_threads = 0
        #: Actors that were lost with their worker, tasks that failed as no worker came, and graphs
        #: that Dask could not make tasks of.
        self.lost_actors = self.never_given = self.no_tasks = 0
        # Tasks that were asked for and have not ended, and those that have to run once more.
        self._open: set[Any] = set()
        self._again: set[Any] = set()
        # Of those, the ones of computations that may not have ended: some task had not when they
        # were to run once more.
        self._before_end: set[Any] = set()
        # Tasks that have failed and may be retried by hand.
        self._failed: set[Any] = set()
        #: Runs that failed and were repeated; tasks that were given up before they had run, and
        #: those of which that had run before and were to run once more.
        self.retried = self.cancelled = self.given_up_again = 0
        # Of workers: how many threads each had, when the last two of its beats
        # came, and in which process it is.
        self._threads_of: dict[str, int] = {}
        self._heard: dict[str, tuple[float, float]] = {}
        self._processes: dict[str, int] = {}
        # Prefixes of tasks that ran before this began, or in no thread that is counted.
        self._unsure: set[str] = set()
        # Runs that ended with each worker that was lost, by whether their task runs once more.
        self._lost_with: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
        # Of those, the ones that had seceded: they were in no thread.
        self._seceded_with: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
        #: The most memory that all workers together have reported, and any of them, and that any
        #: process had.
        self.peak_memory = self.peak_reported = self.peak_worker_memory = 0

    @property
    def is_counting(self) -> bool:
        """Whether it has begun, and not ended."""
        return self._looks is not None

    async def begin(self) -> None:
        """Count from when the other plugin comes; once, whatever comes in its place later."""
        if self.is_counting:
            return
        self._scheduler.add_plugin(self)
        self._looked_at = time.monotonic()
        self._looks = asyncio.create_task(self._look_regularly())

    async def end(self) -> None:
        """Count no more."""
        self.stop()

    def stop(self) -> None:
        """Count no more. On the scheduler's loop."""
        if self._looks is not None:
            self._looks.cancel()
            self._looks = None
            self._scheduler.remove_plugin(self.name)
            self.look_at_processes()
            # What has not ended has no end any more: the other plugin has closed.
            self.cancelled += len(self._open)
            self.given_up_again += len(self._again)
            self._open.clear()
            self._again.clear()
            self._before_end.clear()

    # --- hooks of Dask's ---

    def update_graph(self, scheduler: Scheduler, *, keys: Iterable[Any], **_: Any) -> None:
        """Count the tasks that are to run: what is asked for, and what that needs, if it is not
        there and nobody else has asked for it.
        """
        self._look_if_few()
        if not self._is_there():
            return
        waiting, seen = list(keys), set()
        while waiting:
            task = scheduler.tasks.get(waiting.pop())
            if task is None or task.key in seen or task.state != "released":
                continue
            seen.add(task.key)
            waiting += [needed.key for needed in task.dependencies]
        self._left_out -= seen
        self.cancelled += len(self._open & seen)  # they were given up, and now others want them
        self._open |= seen
        self._again -= seen
        self._before_end |= self._again  # their computation may go on with these
        self._before_end -= seen
        self._failed -= seen
        self.tasks += len(seen)

    def transition(self, key: Any, start: str, finish: str, *_: Any, **details: Any) -> None:
        """Note when runs begin, and how they end."""
        self._look_if_few()
        if not self._is_there() or start == finish or key in self._left_out:
            if finish == "forgotten":
                self._left_out.discard(key)
            return
        task = self._scheduler.tasks[key]
        again, after_end = key in self._again, self._is_after_end(key)
        self._note_end(key, start, finish)
        at_rest = start not in ("processing", "no-worker")
        if finish == "erred" and at_rest and task.exception_blame is task:
            self.lost_actors += 1  # that is an exception without a run
        if (start, finish) == ("no-worker", "erred"):
            self.never_given += 1
            self._failed.add(key)
        if finish == "processing":
            on = task.processing_on
            address = "" if on is None else on.address
            if on is not None:
                self._threads_of[address] = on.nthreads
            self._running[key] = Run(
                key, address, wall_clock(), task.retries, prefix=task.prefix.name
            )
        elif start == "processing" and key in self._running:
            run = self._running.pop(key)
            run.ended_at, run.after_end = wall_clock(), after_end
            run.worker = details.get("worker") or run.worker  # it may have been moved
            run.outcome = self._outcome(key, finish, run, task, details)
            if finish == "memory":
                run.nbytes = details.get("nbytes") or 0
            for action in details.get("startstops") or ():
                # A worker that still knows the task sends what it did for earlier runs, too.
                name, start, stop = action["action"], action["start"], action["stop"]
                if (name, start) in self._reported[key]:
                    continue
                self._reported[key].add((name, start))
                if name == "compute" and name in run.seconds:
                    run.seconds.clear()  # that was of one that was cancelled
                run.seconds[name] = run.seconds.get(name, 0.0) + stop - start
            self.runs.append(run)
            if run.outcome == "raised" and not after_end:
                if finish == "erred":
                    self._failed.add(key)
                else:
                    self.retried += 1
            if run.outcome != "finished" and run.worker not in self._scheduler.workers:
                self._lost_with[again][run.worker] += not after_end

    def log_event(self, topic: str, msg: Any) -> None:
        """Count graphs that Dask could not make tasks of: it logs that, and no task fails."""
        of_graph = isinstance(msg, dict) and msg.get("action") == "update-graph"
        if topic == "scheduler" and of_graph and msg.get("status") == "error" and self._is_there():
            self.no_tasks += 1
        if topic == "all" and isinstance(msg, dict) and msg.get("action") == "remove-worker":
            for key in msg["processing-tasks"]:
                task = self._scheduler.tasks.get(key)
                on = None if task is None else task.processing_on
                if on is not None and task in on.long_running and not self._is_after_end(key):
                    self._seceded_with[key in self._again][msg["worker"]] += 1

    def _is_after_end(self, key: Any) -> bool:
        """Return whether a task runs once more for a computation that has surely ended."""
        return key in self._again and key not in self._before_end and not self._open

    def _note_end(self, key: Any, start: str, finish: str) -> None:
        if finish in ("memory", "erred"):
            for keys in (self._open, self._again, self._before_end):
                keys.discard(key)
        elif finish == "forgotten":
            self.cancelled += key in self._open
            self.given_up_again += key in self._again
            for keys in (self._open, self._again, self._before_end, self._failed):
                keys.discard(key)
        elif finish == "waiting" and key not in self._open:
            if key in self._failed:
                self._failed.discard(key)
                self._open.add(key)
                self.retried += 1
            else:
                if self._open or self._before_end:
                    self._before_end.add(key)
                self._again.add(key)

    def _outcome(
        self, key: Any, finish: str, run: Run, task: Any, details: Mapping[str, Any]
    ) -> str:
        if finish == "memory":
            return "finished"
        if finish == "erred":
            return "raised" if details.get("cause") == key else "blamed"
        # Dask takes one off the retries that are left as it gives a task back.
        return "raised" if task.retries < run.retries else "given up"

    # --- threads ---

    async def _look_regularly(self) -> None:
        while True:
            await asyncio.sleep(LOOK * max(1, len(self._scheduler.workers) / MANY))
            self._look()

    def _look_if_few(self) -> None:
        if len(self._scheduler.workers) < MANY:
            self._look()

    def _is_there(self) -> bool:
        """Return whether the other plugin is or was there, and begin if that is new."""
        if not self.began_at and self._has_come():
            self.began_at = wall_clock()
            self._seen_late = time.monotonic() - self._looked_at
            self._left_out = set(self._scheduler.tasks)
            self._unsure |= {task.prefix.name for task in self._scheduler.tasks.values()}
        return bool(self.began_at)

    def _has_come(self) -> bool:
        return self._beside in self._scheduler.plugins

    def _look(self) -> None:
        """Add the time since the last look, in which the threads had what they had then: where the
        event loop was held up, nothing changed meanwhile.
        """
        self._is_there()
        now = time.monotonic()
        passed, self._looked_at = now - self._looked_at, now
        before, had = self._spent, self._has
        self._spent = before.plus(passed, had)
        self._history.append((wall_clock(), self._spent))
        threads = free = paused = memory = limit = 0
        for worker in self._scheduler.workers.values():
            threads += worker.nthreads
            limit += worker.memory_limit or 0
            memory += worker.metrics.get("memory") or 0
            self.peak_reported = max(self.peak_reported, worker.metrics.get("memory") or 0)
            self._threads_of[worker.address] = worker.nthreads
            _, heard = self._heard.get(worker.address, (0.0, 0.0))
            if worker.last_seen != heard:
                self._heard[worker.address] = heard, worker.last_seen
            self._processes[worker.address] = worker.pid
            self._unsure |= {task.prefix.name for task in worker.long_running}
            # What has seceded is in a thread beyond those that are counted.
            at_work = len(worker.processing) - len(worker.long_running)
            if worker.status.name == "paused":
                paused += max(worker.nthreads - len(worker.executing), 0)
            else:
                free += max(worker.nthreads - at_work, 0)
        workers = len(self._scheduler.workers)
        held = (1, workers, limit / 2**30)
        share = free / threads if threads else 0.0
        self._has = Spent(threads, free, paused, *held, *(share * much for much in held))
        if not self.began_at:
            return
        self.peak_memory = max(self.peak_memory, memory)
        self.peak_workers = max(self.peak_workers, workers)
        self.peak_threads = max(self.peak_threads, threads)

    def look_at_processes(self) -> None:
        """Read how much memory the process of each worker has had at most, as Linux knows it."""
        for process in self._processes.values():
            try:
                status = Path(f"/proc/{process}/status").read_text()
            except OSError:  # it has ended, or is on no Linux
                continue
            for line in status.splitlines():
                if line.startswith("VmHWM:"):
                    peak = int(line.split()[1]) * 1024
                    self.peak_worker_memory = max(self.peak_worker_memory, peak)

    # --- totals ---

    def count(self, outcome: str) -> int:
        """Return how many runs ended so: finished, raised, blamed, given up."""
        return sum(run.outcome == outcome for run in self.runs)

    def _raised_before_end(self) -> list[Run]:
        return [run for run in self.runs if run.outcome == "raised" and not run.after_end]

    def seconds(self) -> dict[str, float]:
        """Return what runs spent by Dask's action. Of those that Dask repeats it does not say."""
        seconds: defaultdict[str, float] = defaultdict(float)
        for run in self.runs:
            for action, took in run.seconds.items():
                seconds[action] += took
        return dict(seconds)

    def unreported(self) -> float:
        """Return the seconds of runs whose own times Dask's transitions do not have, at most."""
        return sum(
            run.ended_at - run.given_at
            for run in self.runs
            if run.outcome == "raised" and not run.seconds
        )

    def output_bytes(self) -> int:
        """Return the bytes of all results."""
        return sum(run.nbytes for run in self.runs)

    def by_worker(self) -> dict[str, tuple[int, float]]:
        """Return by worker how many runs finished or failed there, and what they computed."""
        found: dict[str, tuple[int, float]] = {}
        for run in self.runs:
            told = run.outcome == "finished" or (run.outcome == "raised" and not run.after_end)
            if told and "compute" in run.seconds:
                runs, seconds = found.get(run.worker, (0, 0.0))
                found[run.worker] = runs + 1, seconds + run.seconds["compute"]
        return found

    # --- comparing ---

    def idle_seconds(self) -> float:
        """Return the thread-seconds without a task since the other plugin came, until now."""
        return self.spent(self.began_at, wall_clock()).idle if self.began_at else 0.0

    def spent(self, since: float, until: float) -> Spent:
        """Return what the threads did between two times of the scheduler's wall clock."""
        return self._spent_at(until).plus(-1, self._spent_at(since))

    def _spent_at(self, time: float) -> Spent:
        place = bisect_right(self._history, time, key=itemgetter(0))
        if not place:
            return Spent()
        at, before = self._history[place - 1]
        if place == len(self._history):
            return before
        # Between two looks nothing has changed.
        next_at, after = self._history[place]
        share = (time - at) / (next_at - at) if next_at > at else 0.0
        return before.plus(share, after.plus(-1, before))

    def lost_runs(self) -> tuple[int, int]:
        """Return how many runs were in a thread of a worker that was lost, or had seceded, until
        their computation's end: at least and at most, for which of those that run once more for one
        that has ended is not always known here.
        """
        first, again = self._lost_with[False], self._lost_with[True]
        seceded, seceded_again = self._seceded_with[False], self._seceded_with[True]
        return (
            self._lost_in_threads(first, seceded),
            self._lost_in_threads(first + again, seceded + seceded_again),
        )

    def _lost_in_threads(self, lost: Counter[str], seceded: Counter[str]) -> int:
        return sum(
            seceded[worker] + min(count - seceded[worker], self._threads_of.get(worker, count))
            for worker, count in lost.items()
        )

    def assert_equals(
        self,
        computations: Iterable[Any],
        groups: Iterable[Any],
        failures: Iterable[Any],
    ) -> None:
        """Compare rows as they were sent, or as the service answers them, all of them.

        Counts and bytes are the same to the last one. Seconds of runs differ by nothing but those
        of which Dask's transitions do not have the times. What ran again after a computation's end
        is told apart: then bytes, and seconds by action, are at most the true ones.
        """
        computations, groups, failures = (
            [_fields(row) for row in rows] for rows in (computations, groups, failures)
        )
        later = _sum(computations, "completed_later")
        seconds_later = sum(row["seconds_later"] for row in computations)
        for what, rows in (("computations", computations), ("groups", groups)):
            told = {
                "tasks": _sum(rows, "tasks"),
                "finished": _sum(rows, "completed") + later,
                "raised": _sum(rows, "erred") + _sum(rows, "retried"),
                "retried": _sum(rows, "retried"),
            }
            true = {
                "tasks": self.tasks,
                "finished": self.count("finished"),
                "raised": len(self._raised_before_end()) + self.never_given,
                "retried": self.retried,
            }
            assert told == true, (what, told, true)
            seconds: Counter[str] = Counter()
            for row in rows:
                seconds.update(row["seconds"])
            self._assert_seconds(what, seconds, seconds_later)
        given_up = _sum((row for row in computations if row["tasks"]), "cancelled")
        most = self.cancelled + self.given_up_again
        assert self.cancelled <= given_up <= most, ("cancelled", given_up, self.cancelled, most)
        lost, (least, most) = _sum(computations, "lost_runs"), self.lost_runs()
        assert least <= lost <= most, ("lost with workers", lost, least, most)
        # An actor that is lost may be given to a worker once more before it fails: it depends on
        # Dask's version.
        exceptions, raised = _sum(failures, "count"), self.count("raised") + self.never_given
        least, most = raised + self.no_tasks, raised + self.no_tasks + self.lost_actors
        assert least <= exceptions <= most, ("failures", exceptions, least, most)
        output_bytes = _sum(groups, "output_bytes")
        largest = max((run.nbytes for run in self.runs), default=0)
        if later:
            assert output_bytes <= self.output_bytes(), "bytes of results"
        else:
            assert output_bytes == self.output_bytes(), "bytes of results"
            self._assert_shares(computations)
        for rows in (computations, groups):
            of_rows = [row["largest_output"] for row in rows]
            assert max(of_rows, default=0) == largest, "bytes of the largest result"
        runs = sum(sum(group["durations"]) for group in groups)
        assert runs + later == self.count("finished"), "runs in the histogram of durations"

    def _assert_shares(self, computations: list[Mapping[str, Any]]) -> None:
        if any(row["workers"] > len(row["worker_shares"]) for row in computations):
            return  # those that lost least are not sent
        told: defaultdict[str, list[float]] = defaultdict(lambda: [0, 0.0])
        for row in computations:
            for share in map(_fields, row["worker_shares"]):
                told[share["worker"]][0] += share["runs"]
                told[share["worker"]][1] += share["seconds"]
        true = self.by_worker()
        # Whether these computed is not known.
        untimed = Counter(run.worker for run in self._raised_before_end() if not run.seconds)
        for worker in told.keys() | true.keys() | untimed.keys():
            (runs, seconds), (said, took) = true.get(worker, (0, 0.0)), told[worker]
            assert runs <= said <= runs + untimed[worker], ("runs by worker", worker)
            assert -1e-3 < took - seconds < 1e-3 + self.unreported(), ("seconds", worker)

    def _assert_seconds(self, what: str, told: Mapping[str, float], later: float) -> None:
        # What Dask calls time of the disk may be none.
        told, true = _disk_as_other(told), _disk_as_other(self.seconds())
        for action in told.keys() | true.keys():
            least = true.get(action, 0.0) - 1e-3 - later
            most = true.get(action, 0.0) + 1e-3 + self.unreported()
            assert least <= told.get(action, 0.0) <= most, (what, action, told, true)
        whole, said = sum(true.values()), sum(told.values()) + later
        assert whole - 1e-2 <= said <= whole + 1e-2 + self.unreported(), (what, told, later, true)

    def assert_stretches(self, computations: Iterable[Any]) -> None:
        """Compare what the threads did while each computation ran, as of :meth:`assert_threads`."""
        for row in map(_fields, computations):
            since, until = row["started_at"], row["ended_at"]
            if until is None or since < self.began_at:
                continue
            spent, told = self.spent(since, until), row["worker_seconds"]
            assert told, "nothing is known of the threads"
            # Looks come late where the event loop is held up: at both ends of the time.
            may_differ = off(spent) + 2 * self._seen_late * self.peak_threads
            assert abs(sum(told.values()) - spent.threads) <= may_differ, (told, spent)
            assert abs(told["idle"] - spent.idle) <= may_differ, (told, spent)
            assert abs(told["paused"] - spent.paused) <= may_differ, (told, spent)

    def assert_threads(self, worker_seconds: Mapping[str, float], until: float) -> None:
        """Compare thread-seconds by state, ``until`` a time: they may differ by :data:`SHARE` and
        :data:`SECONDS`, and by the time in which nobody looked when it began and ended.
        """
        assert self.peak_workers < MANY, "there were too few looks"
        spent = self.spent(self.began_at, until)
        last = next((at for at, _ in reversed(self._history) if at <= until), until)
        unseen = (self._seen_late + until - last) * self.peak_threads
        true = {"idle": spent.idle, "paused": spent.paused}
        true["busy"] = spent.threads - spent.idle - spent.paused
        for state, seconds in true.items():
            told = worker_seconds.get(state, 0.0)
            may_differ = off(spent) + unseen
            assert abs(told - seconds) <= may_differ, (state, dict(worker_seconds), true)

    def assert_activities(
        self, rows: Mapping[str, Mapping[str, float]], until: float, *, stopped: bool
    ) -> None:
        """Compare the threads' time by prefix and activity, as of :meth:`assert_threads`.

        It adds up to all their time. No prefix has more of it than its runs lasted, from when a
        worker was given each, nor less than they computed: by its worker's last beat, as long as
        the other plugin has not ``stopped``.
        """
        spent = self.spent(self.began_at, until)
        may_differ = off(spent) + self._seen_late * self.peak_threads
        whole = sum(sum(seconds.values()) for seconds in rows.values())
        assert abs(whole - spent.threads) <= may_differ, ("all activities", whole, spent)
        nobody = rows.get("", {})
        assert abs(nobody.get("idle", 0.0) - spent.idle) <= may_differ, (nobody, spent)
        assert abs(nobody.get("paused", 0.0) - spent.paused) <= may_differ, (nobody, spent)
        least: Counter[str] = Counter()
        most: Counter[str] = Counter()
        for run in (*self.runs, *self._running.values()):
            most[run.prefix] += (run.ended_at or until) - run.given_at  # type: ignore[assignment]
            # The last beat was made after the one before it had come.
            made_after, _ = self._heard.get(run.worker, (0.0, 0.0))
            if run.ended_at and (stopped or run.ended_at < made_after):
                least[run.prefix] += run.seconds.get("compute", 0.0)  # type: ignore[assignment]
        for prefix in (rows.keys() & most.keys()) - self._unsure:
            # One that was cancelled may go on in its thread, and is no run then.
            told = sum(took for what, took in rows[prefix].items() if what != "cancelled")
            assert least[prefix] - may_differ <= told, (prefix, rows[prefix], least[prefix])
            assert told <= most[prefix] + may_differ, (prefix, rows[prefix], most[prefix])
        if not self._unsure:
            told = whole - sum(nobody.values())
            assert sum(least.values()) - may_differ <= told, ("in tasks", told, least)

    def assert_status(self, status: Any, per_hour: Mapping[str, float] | None) -> None:
        """Compare the peaks, and what was held and cost; ``per_hour`` are the prices, if any."""
        status = _fields(status)
        # Those of a moment before are no more than the peaks; after the end they are the last ones.
        assert status["workers"] <= status["peak_workers"] <= self.peak_workers, "peak of workers"
        assert status["threads"] <= status["peak_threads"] <= self.peak_threads, "peak of threads"
        assert status["memory_used"] <= status["peak_memory_used"], "peak of memory"
        spent = self.spent(self.began_at, status["at"])
        unseen = 0.5 + self._seen_late
        held = (("gib_seconds", spent.gib, self._has.gib),)
        for what, seconds, now in held:
            may_differ = SHARE * seconds + unseen * now
            assert abs(status[what] - seconds) <= may_differ, (what, status[what], seconds)
        if per_hour is not None:
            for what, cost in (
                ("cost", spent.cost(per_hour)), ("idle_cost", spent.idle_cost(per_hour))
            ):  # fmt: skip
                may_differ = SHARE * spent.cost(per_hour) + self._has.cost(per_hour) * unseen
                assert abs(status[what] - cost) <= may_differ, (what, status[what], cost)
        if len(self._processes) > len(self._scheduler.workers):
            return  # what one that is gone had can be read no more
        assert status["peak_memory_used"] <= self.peak_memory, "memory of all workers together"
        told = status["peak_worker_memory"]
        if told is not None and self.peak_worker_memory:
            # Linux itself counts a process's pages at each of its processors, and adds up later.
            least, most = self.peak_reported - PAGES, self.peak_worker_memory + PAGES
            assert least <= told <= most, ("peak of a worker", least, told, most)


def _priced(per_hour: Mapping[str, float], held: tuple[float, float, float, float]) -> float:
    seconds = dict(zip(("cluster", "worker", "thread", "gib"), held, strict=True))
    return sum(per_hour.get(what, 0.0) * much for what, much in seconds.items()) / 3600


def off(spent: Spent) -> float:
    """Return by how many thread-seconds a number may be off."""
    return SHARE * spent.threads + SECONDS


def _fields(row: Any) -> Mapping[str, Any]:
    return asdict(row) if is_dataclass(row) and not isinstance(row, type) else row


def _disk_as_other(seconds: Mapping[str, float]) -> dict[str, float]:
    added: defaultdict[str, float] = defaultdict(float)
    for action, took in seconds.items():
        added["other" if action.startswith("disk-") else action] += took
    return dict(added)


def _sum(rows: Iterable[Mapping[str, Any]], field: str) -> int:
    return sum(row[field] for row in rows)
