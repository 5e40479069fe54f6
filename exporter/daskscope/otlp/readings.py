"""Reads each metric's values from a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from distributed.core import Status

from daskscope import names, protocol
from daskscope.privacy import Cleared

#: Values of a metric, each with its attributes.
Values = Iterable[tuple[float, Mapping[str, str]]]


def _states(attribute: str, known: Iterable[str], counts: Mapping[str, int]) -> Values:
    # Send a 0 for missing states: a series without a new point would stay at its last value.
    return each(attribute, {**dict.fromkeys(known, 0), **counts})


def each(attribute: str, values: Mapping[str, float]) -> Values:
    """Return values that differ in one attribute."""
    return [(value, {attribute: name}) for name, value in values.items()]


def one(value: float) -> Values:
    """Return the value of a metric without attributes."""
    return [(value, {})]


def measured(value: float | None) -> Values:
    """Return the value of a metric without attributes; none if it is None."""
    return [] if value is None else one(value)


def _field(part: protocol.SchedulerLoad | protocol.Gpu | None, name: str) -> Values:
    return measured(getattr(part, name, None))


def _directions(attribute: str, **measured: float | None) -> Values:
    return [
        (value, {attribute: direction})
        for direction, value in measured.items()
        if value is not None
    ]


def _task_running(snapshot: Cleared) -> Values:
    for row in snapshot.times:
        if "running" in row.seconds:
            yield row.seconds["running"], {names.TASK_PREFIX: row.prefix}


def _task_completed(snapshot: Cleared) -> Values:
    for row in snapshot.prefixes:
        outcomes = {"finished": row.completed, "erred": row.erred, "retried": row.retried}
        for outcome, count in outcomes.items():
            yield count, {names.TASK_PREFIX: row.prefix, names.TASK_OUTCOME: outcome}


def _task_output(snapshot: Cleared) -> Values:
    return [(row.output_bytes, {names.TASK_PREFIX: row.prefix}) for row in snapshot.prefixes]


def _task_unrunnable(snapshot: Cleared) -> Values:
    tasks = snapshot.status.tasks
    queued = 0 if snapshot.status.workers else tasks.get("queued", 0)
    return one(tasks["no-worker"] + queued) if "no-worker" in tasks else []


def _client_memory(snapshot: Cleared) -> Values:
    sizes = [client.bytes for client in snapshot.status.connected]
    known = [size for size in sizes if size is not None]
    return one(sum(known)) if len(known) == len(sizes) else []


#: The function that reads each metric's values from a snapshot.
READERS: dict[names.Metric, Callable[[Cleared], Values]] = {
    names.WORKER_COUNT: lambda s: _states(
        names.WORKER_STATE, (state.name for state in Status), s.workers.states
    ),
    names.WORKER_THREADS: lambda s: one(s.workers.threads),
    names.WORKER_CPU: lambda s: one(s.workers.cpu),
    names.WORKER_TIME: lambda s: each(names.WORKER_STATE, s.status.worker_seconds),
    names.WORKER_LOSS: lambda s: each(names.WORKER_LOSS_REASON, s.losses_by_reason),
    names.MEMORY_LIMIT: lambda s: one(s.workers.memory_limit),
    names.MEMORY_USED: lambda s: each(names.MEMORY_KIND, s.workers.memory),
    names.MEMORY_PEAK: lambda s: measured(s.status.peak_worker_memory),
    names.TASK_COUNT: lambda s: each(names.TASK_STATE, s.status.tasks),
    names.TASK_UNRUNNABLE: _task_unrunnable,
    names.TASK_COMPLETED: _task_completed,
    names.TASK_RUNNING: _task_running,
    names.TASK_OUTPUT: _task_output,
    names.EXCEPTION_COUNT: lambda s: each(names.EXCEPTION_TYPE, s.exceptions),
    names.EVENT_COUNT: lambda s: each(names.EVENT_TOPIC, s.events_by_topic),
    names.CLIENT_COUNT: lambda s: one(s.status.clients),
    names.CLIENT_MEMORY: _client_memory,
    names.COMPUTATION_COUNT: lambda s: one(s.computations_running),
    names.CLUSTER_IDLE: lambda s: one(s.status.idle_seconds or 0.0),
    names.CLUSTER_COST: lambda s: measured(s.status.cost),
    names.CLUSTER_IDLE_COST: lambda s: measured(s.status.idle_cost),
    names.TRANSFER_IO: lambda s: _directions(names.TRANSFER_DIRECTION, transmit=s.measured.served),
    names.SPILL_IO: lambda s: _directions(
        names.SPILL_DIRECTION, write=s.measured.spilled, read=s.measured.unspilled
    ),
    names.SCHEDULER_CPU: lambda s: _field(s.status.scheduler, "cpu"),
    names.SCHEDULER_MEMORY: lambda s: _field(s.status.scheduler, "memory"),
    names.GPU_UTILIZATION: lambda s: _field(s.status.gpu, "utilization"),
    names.GPU_MEMORY_USED: lambda s: _field(s.status.gpu, "memory_used"),
    names.GPU_MEMORY_LIMIT: lambda s: _field(s.status.gpu, "memory_limit"),
    names.HOOK_TIME: lambda s: one(s.hook_seconds),
    names.DROPPED: lambda s: each(names.DROPPED_WHAT, s.drops),
}

#: The function that reads the highest value since the last snapshot of each metric whose points are
#: the highest since the last export.
PEAKS: dict[names.Metric, Callable[[Cleared], float | None]] = {
    names.SCHEDULER_LAG: lambda s: None if s.status.scheduler is None else s.status.scheduler.lag,
    names.WORKER_LOOP_INTERVAL: lambda s: s.most.loop_interval,
    names.WORKER_HEARTBEAT_AGE: lambda s: s.most.silence,
    names.HOST_LOAD: lambda s: s.most.host_load,
}
