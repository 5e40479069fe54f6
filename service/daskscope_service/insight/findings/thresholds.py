"""The thresholds of all rules, and the source of each number.

``docs`` is Dask's own documentation or source. ``measured`` comes from recorded workloads with one
known cause each; healthy ones stayed clear of the number. ``heuristic`` is a number that others
use, or a guess.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number with which a rule compares."""

    name: str
    value: float
    unit: str
    source: str

    @property
    def least(self) -> float:
        """The lowest value that a workspace may set."""
        return self.value / 1000

    @property
    def most(self) -> float:
        """The highest value that a workspace may set."""
        return 1.0 if self.unit == "1" and self.value <= 1 else 1000 * self.value


TABLE: tuple[Threshold, ...] = (
    Threshold("mass.seconds", 30.0, "s", "heuristic: less lost time than this is no alarm"),
    Threshold("mass.share", 0.01, "1", "heuristic: a smaller share of its time is no alarm"),
    Threshold("performance.seconds", 1.0, "s", "heuristic: a shorter run has nothing to save"),
    Threshold("retries.share", 0.05, "1", "heuristic: a few retried runs are normal"),
    Threshold("bad-input.share", 0.05, "1", "heuristic: with more, not single inputs are bad"),
    Threshold("bad-input.tasks", 20, "{task}", "heuristic: among fewer tasks none stands out"),
    Threshold("unrunnable.seconds", 30.0, "s", "heuristic: workers may be on their way"),
    Threshold("large-graph.bytes", 10e6, "By", "docs: large-graph-warning-threshold"),
    Threshold("large-graph.bytes-per-task", 100e3, "By", "measured: tasks alone are below 10 kB"),
    Threshold(
        "large-graph.bytes-per-second", 10e6, "By/s", "heuristic: the rate of a slow network"
    ),
    Threshold("spilling.share", 0.1, "1", "heuristic: of what the tasks returned"),
    Threshold("spilling.read-back", 0.1, "1", "heuristic: what is never read back costs little"),
    Threshold("spilling.bytes", 50 * 2**20, "By", "heuristic: a disk writes it in a second"),
    Threshold("paused.share", 0.05, "1", "heuristic: workers pause above 80 % of their memory"),
    Threshold("transfer.share", 0.15, "1", "measured: at most 8 % in healthy runs"),
    Threshold("transfer.idle", 0.2, "1", "docs: transfers that computing hides cost nothing"),
    Threshold("tiny-tasks.tasks", 1000, "{task}", "measured: with fewer, overhead is below 1 s"),
    Threshold("tiny-tasks.seconds", 0.01, "s", "docs: overhead is up to 1 ms a task"),
    Threshold("tiny-tasks.computed", 0.2, "1", "measured: 0.9 % in a sick run"),
    Threshold("tiny-tasks.rate", 250, "{task}/s", "docs: Dask hands out up to some 5,000 a second"),
    Threshold("tiny-tasks.idle", 0.5, "1", "measured: 98 % where a client was slow"),
    Threshold("straggler.times-median", 5, "1", "measured: healthy runs skew less, or are short"),
    Threshold("straggler.share", 0.25, "1", "measured: 86 % of the run in a sick one"),
    Threshold("straggler.duration", 10.0, "s", "measured: below it, imports on workers look alike"),
    Threshold("straggler.idle", 0.4, "1", "measured: 64 % in a sick run"),
    Threshold("straggler.tasks", 10, "{task}", "heuristic: fewer have no usual duration"),
    Threshold("straggler.few", 0.03, "1", "heuristic: more of them are no stragglers"),
    Threshold("slow-worker.times-usual", 2, "1", "measured: 9.9 in a sick run, at most 1.28 else"),
    Threshold("slow-worker.runs", 4, "{run}", "heuristic: fewer may have had the larger inputs"),
    Threshold("slow-worker.share", 0.1, "1", "heuristic: of the computation's time"),
    Threshold(
        "late.seconds", 5.0, "s", "heuristic: 14 s were measured where workers imported numpy"
    ),
    Threshold("late.share", 0.2, "1", "heuristic: of the computation's time"),
    Threshold("warm-up.seconds", 2.0, "s", "measured: to import numpy takes 1.2 s on a busy host"),
    Threshold("warm-up.share", 0.2, "1", "heuristic: of the threads' time"),
    Threshold("too-few.duration", 10.0, "s", "measured: shorter runs need no more parts"),
    Threshold("too-few.idle", 0.5, "1", "measured: 77 % in a sick run"),
    Threshold("serial.duration", 10.0, "s", "measured: 2.8 s of a table's statistics looked alike"),
    Threshold("serial.tasks", 10, "{task}", "measured: 40 in a sick run"),
    Threshold("serial.waiting", 0.5, "1", "measured: all but one of those not done in a sick run"),
    Threshold("serial.at-once", 5, "{task}", "heuristic: a client that waits submits fewer"),
    Threshold("serial.idle", 0.4, "1", "measured: 89 % in a sick run, 19 % in a healthy one"),
    Threshold("serial.least", 0.7, "1", "measured: computing is 99 % of the time it took"),
    Threshold("serial.most", 1.3, "1", "measured: above it, tasks ran side by side"),
    Threshold("gil.cpu-share", 1.3, "1", "measured: 0.25 with 4 threads"),
    Threshold("gil.cpu-least", 0.5, "1", "measured: 0.01 where both threads slept"),
    Threshold("gil.cores", 1.25, "{cpu}", "measured: 0.98 cores of 4 threads"),
    Threshold("gil.profiled", 0.7, "1", "measured: 0.25 to 0.52; 1.0 and more elsewhere"),
    Threshold("gil.task-seconds", 0.1, "s", "measured: profiles of shorter tasks have gaps, too"),
    Threshold("blocked-loop.seconds", 1.0, "s", "measured: 1.2 s in a sick run, else up to 0.26"),
    Threshold("blocked-loop.host-load", 2.0, "1", "heuristic: more wait for a core than have one"),
    Threshold("waiting.cpu-share", 0.1, "1", "measured: 0.00 in a sick run, from 0.34 in healthy"),
    Threshold("waiting.lines", 0.7, "1", "measured: 39 % in a healthy run on a busy host"),
    Threshold("waiting.busy", 0.5, "1", "heuristic: else the threads have nothing to do, either"),
    Threshold("memory.share", 0.1, "1", "measured: 1.7 % in a sick run"),
    Threshold("memory.unused", 2 * 2**30, "By", "measured: below it there is no smaller worker"),
    Threshold("memory.headroom", 1.25, "1", "heuristic: the same as Ray advises"),
    Threshold("memory.duration", 10.0, "s", "measured: the sick run took 16 s"),
    Threshold("gpu.utilization", 0.05, "1", "heuristic: at most, in any measurement"),
    Threshold("gpu.memory", 0.1, "1", "heuristic: a full memory is in use"),
    Threshold("gpu.points", 3, "{point}", "heuristic: fewer measurements say nothing"),
    Threshold("gpu.seconds", 30.0, "s", "heuristic: of tasks that ran"),
    Threshold("idle.share", 0.5, "1", "heuristic: of the time that the cluster was up"),
    Threshold("idle.seconds", 30.0, "s", "heuristic: a pause between two notebook cells"),
    Threshold("idle.alarm", 3600.0, "s", "the same as on the overview"),
    Threshold("killed.memory", 0.8, "1", "docs: workers pause at 80 % of their memory"),
    Threshold("killed.common", 0.8, "1", "heuristic: else all that runs is of that name"),
    Threshold("scheduler.cpu", 0.9, "{cpu}", "heuristic: its loop runs on one core"),
    Threshold("scheduler.rate", 250, "{task}/s", "docs: Dask needs up to 1 ms for each task"),
    Threshold("scheduler.computed", 0.5, "1", "heuristic: else threads have enough to do"),
    Threshold("slow-start.seconds", 10.0, "s", "heuristic: a worker needs some to start"),
    Threshold("slow-start.share", 0.2, "1", "heuristic: of its time, and of its threads' time"),
    Threshold("slow-start.began", 0.5, "1", "heuristic: of the most workers that there were"),
    Threshold("stuck.seconds", 600.0, "s", "heuristic: at least as in Ray"),
    Threshold("stuck.times-longest", 10, "1", "heuristic: of the longest task so far"),
    Threshold("stuck.tasks", 10, "{task}", "heuristic: the same as in Ray"),
    Threshold("stuck.cores", 0.1, "{cpu}", "measured: a worker without work uses 0.02"),
    Threshold("loop.times", 10, "{computation}", "heuristic: fewer are a script's steps"),
    Threshold("loop.seconds", 10.0, "s", "heuristic: there is nothing to save in less"),
    Threshold("loop.pause", 10.0, "s", "heuristic: a person takes longer to rerun a cell"),
    Threshold("loop.idle", 0.5, "1", "heuristic: of the threads' time"),
    Threshold("churn.workers", 10, "{worker}", "heuristic: fewer may be on purpose"),
    Threshold("churn.times", 3, "1", "heuristic: of the workers that there were at once"),
    Threshold("churn.lifetime", 60.0, "s", "heuristic: starting one takes up to minutes"),
    Threshold("shuffle.share", 0.4, "1", "heuristic: of its tasks' time"),
    Threshold("shuffle.other", 0.05, "1", "heuristic: with less, the shuffle is the work"),
    Threshold("shuffle.threads", 0.1, "1", "heuristic: of all threads' time"),
    Threshold("shuffle.duration", 5.0, "s", "heuristic: a shorter shuffle costs little"),
    Threshold("threads.results", 3, "1", "docs: two or three chunks a core must fit at once"),
    Threshold("growing.seconds", 1800.0, "s", "heuristic: imports and caches fill up before"),
    Threshold("growing.share", 0.3, "1", "docs: Dask warns if 70 % are unmanaged memory"),
    Threshold("growing.goes-on", 0.5, "1", "heuristic: of the mean growth, in the last part"),
    Threshold("near.share", 0.9, "1", "docs: nannies end workers at 95 %"),
    Threshold("slower.share", 0.1, "1", "the same as for changes of jobs"),
    Threshold("slower.seconds", 1.0, "s", "heuristic: a shorter delay costs little"),
    Threshold("nothing.computed", 0.7, "1", "heuristic: above it, the page calls threads busy"),
)

DEFAULTS: Mapping[str, float] = MappingProxyType({one.name: one.value for one in TABLE})
