"""Pipeline health: is the telemetry itself complete?"""

from __future__ import annotations

from daskscope import names
from grafana.board import Board, Row
from grafana.boards.parts import CLUSTER_COLUMNS
from grafana.config import LONG_QUEUE
from grafana.influxql import (
    CLUSTER,
    clusters,
    clusters_now,
    events,
    highest,
    level,
    newest,
    number_of,
    rate,
    records,
    so_far,
)
from grafana.panels import Bars, Lines, Stat
from grafana.table import Column, Table

_WELL = (
    Stat(
        title="Clusters that report",
        description="Clusters that report now.",
        queries=(clusters_now(names.WORKER_THREADS, title="Clusters"),),
        empty="No cluster reports",
        width=6,
    ),
    Stat(
        title="Left out",
        description="Items that daskscope left out because of a limit, over all clusters.",
        queries=(so_far(names.DROPPED, title="Left out"),),
        empty="Nothing was left out",
        bad=1,
        width=6,
    ),
    Stat(
        title="Failed requests",
        description="Requests of the plugin that failed, over all clusters. Most are repeated.",
        queries=(so_far(names.SEND_FAILURES, title="Failed"),),
        empty="None failed",
        bad=1,
        width=6,
    ),
    Stat(
        title="Clusters that stopped",
        description="Clusters that reported that they stopped, in the time that is shown.",
        queries=(number_of(names.LOG_CLUSTER_STOPPED, title="Stopped"),),
        empty="None",
        width=6,
    ),
)

_LOST = (
    Bars(
        title="Left out, by what it was",
        description="Items beyond a limit: left out, or added to another item. Over all clusters.",
        queries=(so_far(names.DROPPED, names.DROPPED_WHAT, title="Left out"),),
        empty="Nothing was left out",
        label=names.DROPPED_WHAT,
    ),
    Lines(
        title="Failed requests",
        description="Failed requests of the plugin per second, by their content.",
        queries=(rate(names.SEND_FAILURES, names.SENT_WHAT),),
        empty="None failed",
        unit="reqps",
    ),
    Lines(
        title="What waits in the plugin",
        description="If a queue only grows, its destination does not answer.",
        queries=(level(names.QUEUE_SIZE, names.QUEUE_NAME),),
        empty="No cluster reports",
        bad=LONG_QUEUE,
    ),
    Lines(
        title="What the plugin takes of the event loop",
        description="Share of the scheduler's time that snapshots take; the sum of all clusters.",
        queries=(rate(names.HOOK_TIME, alias="snapshots"),),
        empty="No cluster reports",
        unit="percentunit",
    ),
)

_ARRIVES = (
    Lines(
        title="Clusters that report",
        description="If the line drops although no cluster was stopped, a cluster stopped "
        "reporting, or a collector is unavailable.",
        queries=(clusters(names.WORKER_THREADS, alias="clusters"),),
        empty="No cluster reports",
        width=8,
    ),
    Lines(
        title="Log records that arrive",
        description="Log records by event.",
        queries=tuple(
            events(event, alias=event.name)
            for event in (
                names.LOG_COMPUTATION_FINISHED,
                names.LOG_EXCEPTION,
                names.LOG_WORKER_LOST,
                names.LOG_EVENT,
                names.LOG_RECORD,
            )
        ),
        empty="No log record arrived in this time",
        bars=True,
        width=8,
    ),
    Lines(
        title="Longest wait at a scheduler",
        description="The longest delay of the event loop of any scheduler. A plugin that takes too "
        "much time shows here.",
        queries=(highest(names.SCHEDULER_LAG, alias="lag"),),
        empty="No cluster reports",
        unit="s",
        width=8,
    ),
    Table(
        title="When each cluster was last heard of",
        description="A cluster that is not up to date and did not report a stop was lost.",
        queries=(newest(names.WORKER_THREADS, *CLUSTER, title="Threads"),),
        empty="No cluster has reported in this time",
        width=12,
        height=8,
        columns=(Column("Time", "Last heard of"), *CLUSTER_COLUMNS, Column("Threads", "Threads")),
        sort="Last heard of",
    ),
    Table(
        title="Clusters that began and stopped",
        description="The newest first.",
        queries=(
            records(names.LOG_CLUSTER_STARTED, names.USER_NAME, *CLUSTER),
            records(names.LOG_CLUSTER_STOPPED, names.USER_NAME, *CLUSTER),
        ),
        empty="No cluster began or stopped in this time",
        width=12,
        height=8,
        columns=(
            Column("Time", "Time"),
            Column("body", "What"),
            Column(names.USER_NAME, "User"),
            *CLUSTER_COLUMNS,
        ),
        sort="Time",
    ),
)

BOARD = Board(
    uid="daskscope-pipeline",
    title="Pipeline health",
    question="Is the telemetry itself complete?",
    rows=(Row("Is all well?", _WELL), Row("What is missing", _LOST), Row("What arrives", _ARRIVES)),
)
