"""Fleet: what runs, what failed, what it costs, over all clusters."""

from __future__ import annotations

from daskscope import names
from grafana.board import Board, Row
from grafana.boards.parts import (
    CLUSTER_COLUMNS,
    WORKERS_LOST,
    computations_that_ended,
    cost_per_hour,
    idle_cost,
)
from grafana.influxql import (
    CLUSTER,
    clusters_now,
    equals,
    events,
    grown,
    heard,
    latest,
    level,
    now,
    number_of,
    rate,
    rate_now,
    records,
)
from grafana.panels import Lines, Link, Stat
from grafana.table import Column, Table

_ERRED = equals(names.COMPUTATION_STATUS, "erred")

_NOW = (
    Stat(
        title="Clusters",
        description="Clusters that report. For clusters that stopped reporting, see Pipeline.",
        queries=(clusters_now(names.WORKER_THREADS, title="Clusters"),),
        empty="No cluster reports",
    ),
    Stat(
        title="Clusters at work",
        description="Clusters that have work now.",
        queries=(clusters_now(names.CLUSTER_IDLE, title="At work", condition="v = 0"),),
        empty="None at work",
    ),
    Stat(
        title="Workers",
        description="Workers that are connected, whatever their state.",
        queries=(now(names.WORKER_COUNT, title="Workers"),),
        empty="No cluster reports",
    ),
    Stat(
        title="Tasks to be done",
        description="Tasks that wait, are queued, run, or that no worker can run.",
        queries=(
            now(
                names.TASK_COUNT,
                title="Tasks",
                where=equals(names.TASK_STATE, "waiting", "queued", "processing", "no-worker"),
            ),
        ),
        empty="No cluster reports",
    ),
    Stat(
        title="Failed computations",
        description="Computations that ended with an exception, in the time that is shown.",
        queries=(number_of(names.LOG_COMPUTATION_FINISHED, title="Failed", where=_ERRED),),
        empty="None failed",
        bad=1,
    ),
    WORKERS_LOST,
)

_MONEY = (
    cost_per_hour(),
    Stat(
        title="Cost",
        description="What the clusters have cost in the time that is shown.",
        queries=(grown(names.CLUSTER_COST, title="Cost"),),
        empty="No cluster has prices in its settings",
        width=6,
        decimals=2,
    ),
    idle_cost(width=6),
    Stat(
        title="Idle threads",
        description="How many of the workers' threads have nothing to do now, on average.",
        queries=(
            rate_now(names.WORKER_TIME, title="Idle", where=equals(names.WORKER_STATE, "idle")),
        ),
        empty="No cluster reports",
        width=6,
        decimals=1,
    ),
)

_OVER_TIME = (
    Lines(
        title="Threads",
        description="The workers' threads, by what they do; the areas add up to all threads.",
        queries=(rate(names.WORKER_TIME, names.WORKER_STATE),),
        empty="No cluster reports",
        stacked=True,
    ),
    Lines(
        title="Tasks",
        description="Tasks that the schedulers hold, by state.",
        queries=(level(names.TASK_COUNT, names.TASK_STATE),),
        empty="No cluster reports",
        stacked=True,
    ),
    Lines(
        title="Computations that ended",
        description="By status. Computations that ran when their cluster was lost are not counted.",
        queries=(
            events(
                names.LOG_COMPUTATION_FINISHED,
                names.COMPUTATION_STATUS,
                alias=f"[[tag_{names.COMPUTATION_STATUS}]]",
            ),
        ),
        empty="No computation ended",
        bars=True,
    ),
    Lines(
        title="Memory",
        description="Memory that the workers use, and their limit.",
        queries=(
            level(names.MEMORY_USED, names.MEMORY_KIND),
            level(names.MEMORY_LIMIT, alias="limit"),
        ),
        empty="No cluster reports",
        unit="bytes",
    ),
)

_LISTS = (
    Table(
        title="Clusters in this time",
        description="One row for each cluster that reported, with its last report. "
        "A cluster is lost if it has not reported for five minutes and did not report a stop.",
        queries=(
            latest(names.WORKER_THREADS, *CLUSTER, title="Threads"),
            latest(names.WORKER_COUNT, *CLUSTER, title="Workers"),
            latest(names.CLIENT_COUNT, *CLUSTER, title="Clients"),
            latest(names.CLUSTER_IDLE, *CLUSTER, title="Idle for"),
            latest(names.MEMORY_USED, *CLUSTER, title="Memory"),
            grown(names.CLUSTER_COST, *CLUSTER, title="Cost"),
            heard(names.WORKER_THREADS, *CLUSTER, title="Heard"),
            number_of(names.LOG_CLUSTER_STOPPED, *CLUSTER, title="Stopped"),
        ),
        empty="No cluster has reported in this time",
        columns=(
            *CLUSTER_COLUMNS,
            Column("Heard", "Reported in 5 min", words=("yes", "no")),
            Column("Stopped", "Stopped", words=("yes", "no")),
            Column("Workers", "Workers"),
            Column("Threads", "Threads"),
            Column("Clients", "Clients"),
            Column("Idle for", "Idle for", unit="s"),
            Column("Memory", "Memory", unit="bytes"),
            Column("Cost", "Cost", decimals=2),
        ),
        sort="Idle for",
    ),
    Table(
        title="Findings",
        description="Causes that the service found, the newest first, without those that cost "
        "little. The service sends them if its --otlp-endpoint is set.",
        queries=(records(names.LOG_FINDING, names.CLUSTER_NAME, names.USER_NAME),),
        empty="Nothing stands out in this time, or the service sends no findings",
        height=8,
        extract=True,
        columns=(
            Column("Time", "Found"),
            Column(names.FINDING_RULE, "Cause"),
            Column(names.FINDING_SEVERITY, "Severity"),
            Column("body", "Finding"),
            Column(names.FINDING_SECONDS, "Thread time lost", unit="s"),
            Column(names.CLUSTER_NAME, "Cluster"),
            Column(names.USER_NAME, "User"),
            Column(
                names.FINDING_URL,
                "Page",
                links=(Link("The finding in daskscope", "${__value.raw}", new_tab=True),),
            ),
        ),
    ),
    computations_that_ended(
        title="Computations that ended last",
        description="The newest first. A computation's page shows its code, graph and failures.",
        width=24,
    ),
)

BOARD = Board(
    uid="daskscope-fleet",
    title="Fleet",
    question="What runs, what failed, what was lost, and what does it cost?",
    rows=(
        Row("Now", _NOW),
        Row("Money", _MONEY),
        Row("Over time", _OVER_TIME),
        Row("Which", _LISTS),
    ),
)
