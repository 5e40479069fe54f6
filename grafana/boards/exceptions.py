"""Exceptions: what is raised, where, and how often?"""

from __future__ import annotations

from daskscope import names
from grafana.board import Board, Row
from grafana.boards.parts import CLUSTER_LINKS, runs_by_prefix
from grafana.influxql import CLUSTER, equals, events, number_of, records, so_far
from grafana.panels import Bars, Lines, Stat
from grafana.table import Column, Table

_NONE = "No task raised an exception"

_OFTEN = (
    Stat(
        title="Exceptions",
        description="Exceptions of tasks since these clusters began, each counted once.",
        queries=(so_far(names.EXCEPTION_COUNT, title="Exceptions"),),
        empty=_NONE,
        bad=1,
        width=6,
    ),
    Stat(
        title="Failed computations",
        description="Computations that ended with an exception, in the time that is shown.",
        queries=(
            number_of(
                names.LOG_COMPUTATION_FINISHED,
                title="Failed",
                where=equals(names.COMPUTATION_STATUS, "erred"),
            ),
        ),
        empty="None failed",
        bad=1,
        width=6,
    ),
    Stat(
        title="Retried task runs",
        description="Task runs that failed and were repeated, since these clusters began.",
        queries=(
            so_far(
                names.TASK_COMPLETED, title="Retried", where=equals(names.TASK_OUTCOME, "retried")
            ),
        ),
        empty="None",
        width=6,
    ),
    Stat(
        title="Logged exceptions",
        description="Log records of schedulers and workers that carry an exception, in the time "
        "that is shown.",
        queries=(
            number_of(names.LOG_RECORD, title="Logged", where=f"\"{names.EXCEPTION_TYPE}\" != ''"),
        ),
        empty="None logged",
        width=6,
    ),
)

_WHAT = (
    Lines(
        title="When they were raised",
        description="Reports of exceptions: one per interval for equal ones of one computation.",
        queries=(
            events(
                names.LOG_EXCEPTION, names.EXCEPTION_TYPE, alias=f"[[tag_{names.EXCEPTION_TYPE}]]"
            ),
        ),
        empty=_NONE,
        bars=True,
    ),
    Bars(
        title="Exceptions by type",
        description="Since these clusters began; each is counted once, where it was raised.",
        queries=(so_far(names.EXCEPTION_COUNT, names.EXCEPTION_TYPE, title="Exceptions"),),
        empty=_NONE,
        label=names.EXCEPTION_TYPE,
    ),
    Table(
        title="Exceptions by cluster",
        description="Since each cluster began.",
        queries=(
            so_far(names.EXCEPTION_COUNT, *CLUSTER, names.EXCEPTION_TYPE, title="Exceptions"),
        ),
        empty=_NONE,
        width=12,
        height=8,
        columns=(
            Column(names.EXCEPTION_TYPE, "Type"),
            Column("Exceptions", "Exceptions"),
            Column(names.CLUSTER_NAME, "Cluster"),
            Column(names.CLUSTER_ID, "Cluster id", links=CLUSTER_LINKS),
            Column(names.SERVICE_NAMESPACE, "Workspace"),
        ),
        sort="Exceptions",
    ),
    Table(
        title="Task runs that failed, by prefix",
        description="Since these clusters began.",
        queries=(
            runs_by_prefix("Failed", "erred"),
            runs_by_prefix("Finished", "finished"),
        ),
        empty=_NONE,
        width=12,
        height=8,
        columns=(
            Column(names.TASK_PREFIX, "Task"),
            Column("Failed", "Failed"),
            Column("Finished", "Finished"),
        ),
        sort="Failed",
    ),
)

_WHICH = (
    Table(
        title="Exceptions of tasks",
        description="The newest first, with message and traceback if the settings allow sending "
        "them. daskscope's page groups equal exceptions.",
        queries=(
            records(
                names.LOG_EXCEPTION,
                names.EXCEPTION_TYPE,
                names.TASK_PREFIX,
                names.CLUSTER_NAME,
                names.CLUSTER_ID,
            ),
        ),
        empty=_NONE,
        extract=True,
        height=12,
        columns=(
            Column("Time", "Time"),
            Column(names.EXCEPTION_TYPE, "Type"),
            Column(names.EXCEPTION_MESSAGE, "Message"),
            Column(names.TASK_PREFIX, "Task"),
            Column(names.EXCEPTION_OCCURRENCES, "So far"),
            Column(names.CLUSTER_NAME, "Cluster"),
            Column(names.CLUSTER_ID, "Cluster id", links=CLUSTER_LINKS),
            Column(names.EXCEPTION_STACKTRACE, "Traceback"),
        ),
    ),
    Table(
        title="Exceptions that were logged",
        description="Of schedulers, workers and tasks, with the name of the logger.",
        queries=(
            records(
                names.LOG_RECORD,
                names.EXCEPTION_TYPE,
                names.TASK_PREFIX,
                names.CLUSTER_NAME,
                where=f"\"{names.EXCEPTION_TYPE}\" != ''",
            ),
        ),
        empty="None logged",
        extract=True,
        columns=(
            Column("Time", "Time"),
            Column(names.EXCEPTION_TYPE, "Type"),
            Column("body", "Record"),
            Column(names.LOGGER, "Logger"),
            Column(names.TASK_PREFIX, "Task"),
            Column(names.CLUSTER_NAME, "Cluster"),
        ),
    ),
)

BOARD = Board(
    uid="daskscope-exceptions",
    title="Exceptions",
    question="What is raised, where, how often, and since when?",
    rows=(Row("How often", _OFTEN), Row("What", _WHAT), Row("Which", _WHICH)),
)
