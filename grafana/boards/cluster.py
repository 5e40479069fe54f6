"""Cluster: why is it running, and how is it?"""

from __future__ import annotations

from daskscope import names
from grafana.board import Board, Row
from grafana.boards.parts import GONE, WORKERS_LOST
from grafana.config import IDLE_SECONDS, MUCH_MEMORY
from grafana.influxql import (
    equals,
    highest,
    level,
    level_rows,
    now,
    rate,
    records,
    so_far,
)
from grafana.panels import Bars, Lines, Stat
from grafana.table import Column, Table
from grafana.transformations import MERGED, quotient, without

_SILENT = "The cluster reported nothing in this time"


def _task_states(*states: str) -> str:
    return equals(names.TASK_STATE, *states)


_WHY = (
    Stat(
        title="Idle for",
        description="Time since the cluster last had work. 0 while it has work.",
        queries=(now(names.CLUSTER_IDLE, title="Idle for"),),
        empty=GONE,
        unit="s",
        bad=IDLE_SECONDS,
    ),
    Stat(
        title="Clients",
        description="Connected clients: their users may still need the cluster.",
        queries=(now(names.CLIENT_COUNT, title="Clients"),),
        empty=GONE,
    ),
    Stat(
        title="Tasks to be done",
        description="Tasks that wait, are queued, run, or that no worker can run.",
        queries=(
            now(
                names.TASK_COUNT,
                title="Tasks",
                where=_task_states("waiting", "queued", "processing", "no-worker"),
            ),
        ),
        empty=GONE,
    ),
    Stat(
        title="Tasks that no worker can run",
        description="Tasks that require a worker or a resource that no worker has; without any "
        "worker, all that could run.",
        queries=(now(names.TASK_UNRUNNABLE, title="Tasks"),),
        empty=GONE,
        bad=1,
    ),
    Stat(
        title="Results held",
        description="Results in the workers' memory: lost if the cluster is closed.",
        queries=(now(names.TASK_COUNT, title="Results", where=_task_states("memory")),),
        empty=GONE,
    ),
    WORKERS_LOST,
)

_WORK = (
    Lines(
        title="Tasks by state",
        width=8,
        description="Tasks that the scheduler holds.",
        queries=(level(names.TASK_COUNT, names.TASK_STATE),),
        empty=_SILENT,
        stacked=True,
    ),
    Lines(
        title="Threads at work",
        width=8,
        description="The workers' threads, by what they do; the line is their number.",
        queries=(
            rate(names.WORKER_TIME, names.WORKER_STATE),
            level(names.WORKER_THREADS, alias="all threads"),
        ),
        empty=_SILENT,
    ),
    Lines(
        title="CPU of the workers",
        width=8,
        description="Cores that the workers' processes use, and the number of their threads.",
        queries=(
            level(names.WORKER_CPU, alias="cores"),
            level(names.WORKER_THREADS, alias="all threads"),
        ),
        empty=_SILENT,
    ),
)

_MEMORY = (
    Lines(
        title="Memory of the workers",
        width=8,
        description="Managed: Dask's data. Unmanaged: all other memory of the processes. Held by "
        "clients: results that stay until they are released. The most that one worker ever had.",
        queries=(
            level(names.MEMORY_USED, names.MEMORY_KIND),
            level(names.MEMORY_LIMIT, alias="limit"),
            level(names.CLIENT_MEMORY, alias="held by clients"),
            level(names.MEMORY_PEAK, alias="most of one worker"),
        ),
        empty=_SILENT,
        unit="bytes",
    ),
    Lines(
        title="Share of the memory in use",
        width=8,
        description="Managed and unmanaged memory, as a share of the limit of all workers. A "
        "worker above the line (80 % by default) pauses; a little below it, a worker spills.",
        queries=(
            level_rows(
                names.MEMORY_USED,
                title="Used",
                where=equals(names.MEMORY_KIND, "managed", "unmanaged"),
            ),
            level_rows(names.MEMORY_LIMIT, title="Limit"),
        ),
        empty=_SILENT,
        unit="percentunit",
        bad=MUCH_MEMORY,
        computed=(MERGED, quotient("Used", "Limit", "Share"), without("Used", "Limit")),
    ),
    Lines(
        title="Workers by state",
        width=8,
        description="Workers that are connected.",
        queries=(level(names.WORKER_COUNT, names.WORKER_STATE),),
        empty=_SILENT,
    ),
    Lines(
        title="Spilled and read back",
        description="Results that the workers wrote to disk for lack of memory.",
        queries=(rate(names.SPILL_IO, names.SPILL_DIRECTION),),
        empty="Nothing was spilled, or the workers may not",
        unit="Bps",
    ),
    Lines(
        title="Results sent",
        description="Results that workers sent to each other and to clients, by size in memory.",
        queries=(rate(names.TRANSFER_IO, names.TRANSFER_DIRECTION),),
        empty="Nothing was sent, or the workers do not count it: see telemetry.md",
        unit="Bps",
    ),
)

_LOSSES = (
    Bars(
        title="Workers that left",
        description="Since the cluster began, by reason, including requested departures.",
        queries=(so_far(names.WORKER_LOSS, names.WORKER_LOSS_REASON, title="Workers"),),
        empty="No worker has left",
        width=8,
        label=names.WORKER_LOSS_REASON,
    ),
    Table(
        title="Workers lost",
        description="The workers that left, why they left, and what they had. See the body.",
        queries=(records(names.LOG_WORKER_LOST, names.WORKER_LOSS_REASON),),
        empty="No worker left in this time",
        width=16,
        height=8,
        extract=True,
        columns=(
            Column("Time", "Left"),
            Column(names.WORKER_LOSS_REASON, "Reason"),
            Column(names.WORKER_NAME, "Worker"),
            Column(names.WORKER_ADDRESS, "Address"),
            Column(names.WORKER_LOSS_TASKS, "Tasks it had"),
            Column(names.WORKER_MEMORY_USED, "Memory", unit="bytes"),
            Column(names.WORKER_LIFETIME, "Lived", unit="s"),
            Column("body", "What happened"),
        ),
    ),
)

_SCHEDULER = (
    Lines(
        title="Scheduler's lag",
        description="The longest delay of the scheduler's event loop.",
        queries=(highest(names.SCHEDULER_LAG, alias="lag"),),
        empty=_SILENT,
        unit="s",
        width=8,
        bad=1,
    ),
    Lines(
        title="Scheduler's processor",
        description="Cores that the scheduler's process uses. At 1 it is the bottleneck.",
        queries=(level(names.SCHEDULER_CPU, alias="cores"),),
        empty=_SILENT,
        width=8,
        bad=1,
    ),
    Lines(
        title="Scheduler's memory",
        description="Memory of the scheduler's process.",
        queries=(level(names.SCHEDULER_MEMORY, alias="memory"),),
        empty=_SILENT,
        unit="bytes",
        width=8,
    ),
    Lines(
        title="Workers' event loops",
        description="The longest interval between two turns of a worker's event loop, averaged "
        "between two heartbeats, and the longest time without a heartbeat.",
        queries=(
            highest(names.WORKER_LOOP_INTERVAL, alias="between two turns"),
            highest(names.WORKER_HEARTBEAT_AGE, alias="without a heartbeat"),
        ),
        empty=_SILENT,
        unit="s",
    ),
    Lines(
        title="Load of the workers' hosts",
        description="The highest load of a worker's host for each of its cores. Above 1, more "
        "wants to run than the host has cores.",
        queries=(highest(names.HOST_LOAD, alias="load"),),
        empty=_SILENT,
        bad=1,
    ),
)

_GPU = (
    Lines(
        title="GPUs at work",
        description="Mean utilization of the workers' GPUs.",
        queries=(highest(names.GPU_UTILIZATION, alias="utilization"),),
        empty="No worker reports a GPU",
        unit="percentunit",
    ),
    Lines(
        title="Memory of the GPUs",
        description="Used memory of the workers' GPUs, and their limit.",
        queries=(
            level(names.GPU_MEMORY_USED, alias="used"),
            level(names.GPU_MEMORY_LIMIT, alias="limit"),
        ),
        empty="No worker reports a GPU",
        unit="bytes",
    ),
)

_LOGGED = (
    Table(
        title="Log records",
        description="Log records of the scheduler and its workers: by default warnings and errors.",
        queries=(records(names.LOG_RECORD, names.TASK_PREFIX, names.EXCEPTION_TYPE),),
        empty="Nothing was logged in this time, or settings forbid sending it",
        width=16,
        extract=True,
        columns=(
            Column("Time", "Time"),
            Column(names.LOGGER, "Logger"),
            Column(names.TASK_PREFIX, "Task"),
            Column(names.WORKER_ADDRESS, "Worker"),
            Column("body", "Record"),
        ),
    ),
    Bars(
        title="Events by topic",
        description="Events of Dask's log that the settings allow, since the cluster began.",
        queries=(so_far(names.EVENT_COUNT, names.EVENT_TOPIC, title="Events"),),
        empty="No event that the settings allow",
        width=8,
        height=10,
        label=names.EVENT_TOPIC,
    ),
    Table(
        title="Shutdowns",
        description="Each requested shutdown: by whom, and its result.",
        queries=(records(names.LOG_CLUSTER_SHUTDOWN),),
        empty="Nobody asked the cluster to shut down in this time",
        height=6,
        extract=True,
        columns=(
            Column("Time", "Time"),
            Column(names.SHUTDOWN_STATE, "State"),
            Column(names.SHUTDOWN_REQUESTED_BY, "Requested by"),
            Column("body", "Why"),
        ),
    ),
)

BOARD = Board(
    uid="daskscope-cluster",
    title="Cluster",
    question="Why is it still running, is it well, and what has it lost?",
    rows=(
        Row("Why is it running?", _WHY),
        Row("Work", _WORK),
        Row("Workers", _MEMORY),
        Row("Losses", _LOSSES),
        Row("Scheduler, workers' event loops and hosts", _SCHEDULER),
        Row("GPUs", _GPU),
        Row("What it logged", _LOGGED),
    ),
    single=True,
)
