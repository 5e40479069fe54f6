"""Computation: how do they stand, and where does their time go?"""

from __future__ import annotations

from daskscope import names
from grafana.board import Board, Row
from grafana.boards.parts import COMPUTATION, GONE, computations_that_ended, runs_by_prefix
from grafana.influxql import (
    OF_COMPUTATION,
    buckets,
    equals,
    level,
    mean,
    now,
    number_of,
    percentile,
    rate,
    records,
    slowest,
    so_far,
)
from grafana.panels import TO_JAEGER, TO_TEMPO, Bars, Buckets, Lines, Link, Stat
from grafana.table import Column, Table

_SILENT = "The cluster reported nothing in this time"


def _ended(title: str, status: str, bad: float | None = None) -> Stat:
    return Stat(
        title=title,
        description=f"Computations that ended as {status}, in the time that is shown.",
        queries=(
            number_of(
                names.LOG_COMPUTATION_FINISHED,
                title=title,
                where=equals(names.COMPUTATION_STATUS, status),
            ),
        ),
        empty="None",
        width=4,
        bad=bad,
    )


_STATUS = (
    Stat(
        title="Begun",
        description="Computations that began, in the time that is shown.",
        queries=(number_of(names.LOG_COMPUTATION_STARTED, title="Begun"),),
        empty="None",
    ),
    _ended("Finished", "finished"),
    _ended("Failed", "erred", bad=1),
    _ended("Cancelled", "cancelled"),
    Stat(
        title="Tasks that workers have",
        description="Tasks that are assigned to workers: those that run, and those that wait for a "
        "thread.",
        queries=(
            now(
                names.TASK_COUNT,
                title="Tasks",
                where=equals(names.TASK_STATE, "processing"),
            ),
        ),
        empty=GONE,
    ),
    Stat(
        title="Tasks that wait",
        description="Tasks that wait for other tasks, in the queue, or for a worker that can run "
        "them.",
        queries=(
            now(
                names.TASK_COUNT,
                title="Tasks",
                where=equals(names.TASK_STATE, "waiting", "queued", "no-worker"),
            ),
        ),
        empty=GONE,
    ),
)

_PROGRESS = (
    computations_that_ended(
        title="Computations that ended",
        description="The newest first. A computation's page shows its code, graph and failures.",
        width=14,
    ),
    Table(
        title="On their way",
        description="The progress that long computations reported, the newest first.",
        queries=(records(names.LOG_COMPUTATION_PROGRESS, names.USER_NAME, where=OF_COMPUTATION),),
        empty="No computation took long enough to report progress",
        extract=True,
        width=10,
        columns=(
            Column("Time", "Time"),
            Column(names.COMPUTATION_DONE, "Done"),
            Column(names.COMPUTATION_TASKS, "Tasks"),
            Column(names.USER_NAME, "User"),
            COMPUTATION,
        ),
    ),
)

_TIME = (
    Lines(
        title="Where the threads' time goes",
        description="Thread-seconds per second, by activity. The time of a prefix before its first "
        "report is not included.",
        queries=(rate(names.TASK_TIME, names.TASK_ACTIVITY),),
        empty="No task has run in this time",
        stacked=True,
    ),
    Bars(
        title="Where the threads' time went",
        description="Thread-seconds since the cluster began, by activity.",
        queries=(so_far(names.TASK_TIME, names.TASK_ACTIVITY, title="Thread time"),),
        empty="No task has run",
        unit="s",
        label=names.TASK_ACTIVITY,
    ),
    Lines(
        title="Task runs that end",
        description="Per second, by task prefix. Runs of a prefix before its first report are not "
        "included.",
        queries=(rate(names.TASK_COMPLETED, names.TASK_PREFIX),),
        empty="No task has ended in this time",
        unit="ops",
    ),
    Lines(
        title="Time of running tasks",
        description="Thread-seconds that the running tasks have taken so far: a line that only "
        "rises is a task that does not end.",
        queries=(level(names.TASK_RUNNING, names.TASK_PREFIX),),
        empty="Nothing was seen running: tasks are short, or there are none",
        unit="s",
    ),
)

_PREFIXES = (
    Lines(
        title="How long task runs take, over time",
        description="50 %, 95 % and 99 % of the runs that ended in a step took at most this long. "
        "The resolution is that of the histogram's buckets; the highest bound is the maximum. "
        "Empty unless otlp.histogram is all.",
        queries=tuple(
            percentile(names.TASK_DURATION, share, alias=alias)
            for share, alias in ((0.5, "half"), (0.95, "95 %"), (0.99, "99 %"))
        ),
        empty="No task has ended in this time",
        unit="s",
    ),
    Lines(
        title="How long 95 % of each prefix's runs take, over time",
        description="95 % of the runs that ended in a step took at most this long, by task prefix.",
        queries=(percentile(names.TASK_DURATION, 0.95, names.TASK_PREFIX),),
        empty="No task has ended in this time",
        unit="s",
    ),
    Table(
        title="Tasks by prefix",
        description="Since the cluster began: runs, failures, seconds and bytes of each kind of "
        "task.",
        queries=(
            runs_by_prefix("Finished", "finished"),
            runs_by_prefix("Failed", "erred"),
            runs_by_prefix("Retried", "retried"),
            so_far(
                names.TASK_TIME,
                names.TASK_PREFIX,
                title="Thread time",
                where=f"\"{names.TASK_PREFIX}\" != ''",
            ),
            mean(names.TASK_DURATION, names.TASK_PREFIX, title="Mean"),
            so_far(names.TASK_OUTPUT, names.TASK_PREFIX, title="Returned"),
        ),
        empty="No task has ended",
        width=16,
        height=12,
        columns=(
            Column(names.TASK_PREFIX, "Task"),
            Column("Finished", "Finished"),
            Column("Failed", "Failed"),
            Column("Retried", "Retried"),
            Column("Thread time", "Thread time", unit="s"),
            Column("Mean", "Mean", unit="s"),
            Column("Returned", "Returned", unit="bytes"),
        ),
        sort="Thread time",
    ),
    Buckets(
        title="How long task runs take",
        description="Task runs in each bucket of duration, since the cluster began.",
        queries=(buckets(names.TASK_DURATION),),
        empty="No task has ended",
        width=8,
        height=12,
    ),
)

_FAILURES = (
    Table(
        title="Exceptions of tasks",
        description="The newest first. Equal exceptions of one computation are one row per "
        "interval. A computation's page shows the tracebacks.",
        queries=(
            records(
                names.LOG_EXCEPTION,
                names.EXCEPTION_TYPE,
                names.TASK_PREFIX,
                where=OF_COMPUTATION,
            ),
        ),
        empty="No task raised an exception",
        extract=True,
        columns=(
            Column("Time", "Time"),
            Column(names.EXCEPTION_TYPE, "Type"),
            Column(names.EXCEPTION_MESSAGE, "Message"),
            Column(names.TASK_PREFIX, "Task"),
            Column(names.EXCEPTION_OCCURRENCES, "So far"),
            COMPUTATION,
        ),
    ),
)

#: A trace, for what stores traces, if Grafana has such a source: chosen in the dashboard's menu.
_TRACE = Column(
    "trace_id",
    "Trace",
    links=(
        Link("The trace in Tempo", TO_TEMPO, new_tab=True),
        Link("The trace in Jaeger", TO_JAEGER, new_tab=True),
    ),
)

_TRACES = (
    Table(
        title="Task groups that took longest",
        description="From the start of the first task to the end of the last. The attributes name "
        "the computation.",
        queries=(slowest(names.SPAN_TASK_GROUP, names.TASK_PREFIX, where=OF_COMPUTATION),),
        empty="No task group ended in this time, or settings forbid sending spans",
        extract=True,
        width=12,
        columns=(
            Column("Time", "Began"),
            Column(names.TASK_GROUP_NAME, "Group"),
            Column(names.TASK_GROUP_TASKS, "Tasks"),
            Column("duration", "Took", unit="ns"),
            COMPUTATION,
            _TRACE,
        ),
        sort="Took",
    ),
    Table(
        title="Tasks that took longest",
        description="Of the tasks with a span: some that failed, the slowest, and a few others.",
        queries=(slowest(names.SPAN_TASK, names.TASK_PREFIX, where=OF_COMPUTATION),),
        empty="No task has a span in this time, or settings forbid sending spans",
        extract=True,
        width=12,
        columns=(
            Column("Time", "Began"),
            Column(names.TASK_PREFIX, "Task"),
            Column(names.TASK_OUTCOME, "Outcome"),
            Column("duration", "Took", unit="ns"),
            Column(names.WORKER_ADDRESS, "Worker"),
            COMPUTATION,
            _TRACE,
        ),
        sort="Took",
    ),
)

BOARD = Board(
    uid="daskscope-computation",
    title="Computation",
    question="Did it finish, what failed, and where does the time go?",
    rows=(
        Row("How they stand", _STATUS),
        Row("Which", _PROGRESS),
        Row("Where the time goes", _TIME),
        Row("Which tasks", _PREFIXES),
        Row("What failed", _FAILURES),
        Row("Traces", _TRACES),
    ),
    single=True,
    by_computation=True,
)
