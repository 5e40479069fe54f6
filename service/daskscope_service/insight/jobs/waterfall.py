"""Explains why one run took longer than another, in parts that add up to the difference.

Measured for each run are the time until its first task began (``start``), the number of threads
(``threads``), and the thread-seconds in which they computed, waited with a task assigned (for
transfers, disks, or anything else), had no task (``idle``), or were ``paused``. If ``busy`` is the
time with a task, computing and waiting, a run takes::

    start + busy × (1 + idle / busy + paused / busy) / threads

and ``busy`` is the sum over prefixes of ``runs × seconds of each``, plus waiting. Each part is the
effect of one of these numbers, with all others at the mean of both runs: for a product of two,
``mean(y) Δx + mean(x) Δy`` is exactly the difference. So nothing is left over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from daskscope_service.insight.wording import duration, number, percent


@dataclass(frozen=True, slots=True)
class Work:
    """Tasks of one prefix: their number, the number of their runs, and all seconds computed."""

    tasks: int
    runs: int
    seconds: float

    @property
    def repeated(self) -> int:
        """The runs of tasks that had run before."""
        return max(self.runs - self.tasks, 0)

    @property
    def first(self) -> int:
        """The first runs of tasks."""
        return self.runs - self.repeated


@dataclass(frozen=True, slots=True)
class RunTime:
    """Where the time of a run went. All but ``duration`` and ``start`` are thread-seconds.

    ``thread_seconds`` are those of all threads from its start to its end, None if the exporter did
    not report them; ``idle`` and ``paused`` are parts of them. ``compute`` is the sum over all
    tasks.
    """

    duration: float
    start: float
    compute: float
    transfer: float
    disk: float
    work: Mapping[str, Work] = field(default_factory=dict)
    thread_seconds: float | None = None
    idle: float = 0.0
    paused: float = 0.0


@dataclass(frozen=True, slots=True)
class WaterfallPart:
    """By how many ``seconds`` one cause made the second run longer or, if negative, shorter.

    ``kind`` is start, tasks, repeated, each, computing, transfer, disk, waiting, idle, paused,
    threads or rest. ``prefix`` is that of the tasks, if the part is about one. ``words`` name the
    cause; ``change`` shows its value in both runs.
    """

    kind: str
    seconds: float
    words: str
    change: str
    prefix: str | None = None


@dataclass(frozen=True, slots=True)
class _Account:
    """The numbers of one run in the formula above. ``waits`` are busy seconds without computing."""

    start: float
    work: Mapping[str, Work]
    computing: float
    waits: Mapping[str, float]
    idle: float
    paused: float
    threads: float

    @property
    def busy(self) -> float:
        return (
            sum(one.seconds for one in self.work.values())
            + self.computing
            + sum(self.waits.values())
        )


#: Fewer seconds, or threads, are as good as none: what is divided by them may be infinite.
_LEAST = 1e-9

_WAITS = {
    "transfer": "transfers between workers",
    "disk": "writing to disk and reading back",
    "waiting": "waiting with a task assigned, or other work",
}


def parts(a: RunTime, b: RunTime) -> list[WaterfallPart]:
    """Return the parts of the difference between two runs; their sum is that difference.

    Parts of zero seconds are left out.
    """
    known = a.thread_seconds is not None and b.thread_seconds is not None
    one, other = _account(a, known=known), _account(b, known=known)
    if one is None or other is None:
        return [part for part in (_rest(a, b),) if part.seconds]
    parts_of_all = _parts(one, other, known=known)
    return [part for part in parts_of_all if abs(part.seconds) > 1e-9]


def _rest(a: RunTime, b: RunTime) -> WaterfallPart:
    return WaterfallPart("rest", b.duration - a.duration, "all of it: too little was measured", "")


def _account(run: RunTime, *, known: bool) -> _Account | None:
    start = min(max(run.start, 0.0), run.duration)
    running = run.duration - start
    inside = sum(one.seconds for one in run.work.values())
    # The rest belongs to groups beyond the exporter's bound.
    computing = run.compute - inside
    if not known or running <= 0:
        busy = run.compute + run.transfer + run.disk
        if busy < _LEAST or running <= 0 or busy / running < _LEAST:
            return None
        waits = {"transfer": run.transfer, "disk": run.disk}
        return _Account(start, run.work, computing, waits, 0.0, 0.0, busy / running)
    assert run.thread_seconds is not None
    threads = run.thread_seconds / run.duration if run.duration > 0 else 0.0
    capacity = threads * running
    # Until the first task began, all threads were idle.
    idle = min(max(run.idle - threads * start, 0.0), capacity)
    paused = min(max(run.paused, 0.0), capacity - idle)
    busy = capacity - idle - paused
    if busy < _LEAST or threads < _LEAST:
        return None
    waiting = busy - run.compute
    # Transfers and disk I/O also run beside computing: only as much as threads waited is counted.
    measured = run.transfer + run.disk
    share = min(max(waiting, 0.0) / measured, 1.0) if measured > 0 else 0.0
    waits = {"transfer": run.transfer * share, "disk": run.disk * share}
    waits["waiting"] = waiting - sum(waits.values())
    account = _Account(start, run.work, computing, waits, idle, paused, threads)
    # Rounding may leave no busy time if tasks report far more seconds than the threads had.
    return account if account.busy >= _LEAST else None


def _parts(a: _Account, b: _Account, *, known: bool) -> Iterable[WaterfallPart]:
    yield WaterfallPart(
        "start", b.start - a.start, "until the first task began", _took(a.start, b.start)
    )
    busy_a, busy_b = a.busy, b.busy
    factor_a = 1 + a.idle / busy_a + a.paused / busy_a
    factor_b = 1 + b.idle / busy_b + b.paused / busy_b
    # By how many seconds a run gets longer for each thread-second with a task.
    each = (factor_a / a.threads + factor_b / b.threads) / 2
    for prefix in sorted({*a.work, *b.work}):
        yield from _of_prefix(prefix, a.work.get(prefix), b.work.get(prefix), each)
    yield WaterfallPart(
        "computing", (b.computing - a.computing) * each, "computing in other groups",
        _took(a.computing, b.computing),
    )  # fmt: skip
    for kind, words in _WAITS.items():
        one, other = a.waits.get(kind, 0.0), b.waits.get(kind, 0.0)
        yield WaterfallPart(kind, (other - one) * each, words, _took(one, other))
    busy = (busy_a + busy_b) / 2
    slow = (1 / a.threads + 1 / b.threads) / 2
    for kind, one, other, words in (
        ("idle", a.idle, b.idle, "threads without a task"),
        ("paused", a.paused, b.paused, "workers paused for lack of memory"),
    ):
        share_a, share_b = one / busy_a, other / busy_b
        change = (
            f"{percent(one / (busy_a * factor_a))} → {percent(other / (busy_b * factor_b))} "
            "of the threads' time"
        )
        yield WaterfallPart(kind, busy * slow * (share_b - share_a), words, change)
    factor = (factor_a + factor_b) / 2
    yield WaterfallPart(
        "threads",
        busy * factor * (1 / b.threads - 1 / a.threads),
        "number of threads" if known else "tasks at a time",
        f"{_number(a.threads)} → {_number(b.threads)}",
    )


def _of_prefix(prefix: str, a: Work | None, b: Work | None, each: float) -> Iterable[WaterfallPart]:
    a, b = a or Work(0, 0, 0.0), b or Work(0, 0, 0.0)
    if not a.runs and not b.runs:
        yield WaterfallPart("each", (b.seconds - a.seconds) * each, f"{prefix}", "", prefix)
        return
    # A run without tasks of this prefix has no mean: then the number of tasks explains all.
    took_a = a.seconds / a.runs if a.runs else b.seconds / b.runs
    took_b = b.seconds / b.runs if b.runs else took_a
    lost_a = 0.0 if a.runs else a.seconds
    lost_b = 0.0 if b.runs else b.seconds
    took, runs = (took_a + took_b) / 2, (a.runs + b.runs) / 2
    yield WaterfallPart(
        "tasks", (b.first - a.first) * took * each, f"number of {prefix} tasks",
        f"{number(a.first)} → {number(b.first)}", prefix,
    )  # fmt: skip
    yield WaterfallPart(
        "repeated", (b.repeated - a.repeated) * took * each, f"{prefix} tasks that ran again",
        f"{number(a.repeated)} → {number(b.repeated)}", prefix,
    )  # fmt: skip
    yield WaterfallPart(
        "each", (runs * (took_b - took_a) + lost_b - lost_a) * each,
        f"what each {prefix} task takes", _took(took_a, took_b), prefix,
    )  # fmt: skip


def _took(one: float, other: float) -> str:
    return f"{duration(max(one, 0.0))} → {duration(max(other, 0.0))}"


def _number(value: float) -> str:
    return number(value) if value >= 9.95 or abs(value - round(value)) < 0.05 else f"{value:.1f}"
