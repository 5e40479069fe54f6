"""Cost and people: who spends what, and how much of it on nothing?"""

from __future__ import annotations

from daskscope import names
from grafana.board import Board, Row
from grafana.boards.parts import CLUSTER_COLUMNS, cost_per_hour, idle_cost
from grafana.influxql import CLUSTER, equals, events, grown, number_of, rate
from grafana.panels import Bars, Lines, Stat
from grafana.table import Column, Table
from grafana.transformations import quotient

_UNPRICED = "No cluster has prices in its settings"
_IDLE = equals(names.WORKER_STATE, "idle")

_MONEY = (
    cost_per_hour(),
    Stat(
        title="Cost",
        description="What the clusters have cost in the time that is shown.",
        queries=(grown(names.CLUSTER_COST, title="Cost"),),
        empty=_UNPRICED,
        width=6,
        decimals=2,
    ),
    idle_cost(width=6),
    Stat(
        title="Thread time",
        description="The time of all threads that the clusters had in the time that is shown.",
        queries=(grown(names.WORKER_TIME, title="Thread time"),),
        empty="No cluster reports",
        unit="s",
        width=6,
    ),
)

_OVER_TIME = (
    Lines(
        title="Cost per hour, by cluster",
        description="In the currency of the prices.",
        queries=(rate(names.CLUSTER_COST, names.CLUSTER_NAME, per="1h"),),
        empty="No cluster has prices in its settings, or no cluster ran for longer than a step",
        stacked=True,
    ),
    Lines(
        title="Threads",
        description="Paid threads, by whether they work.",
        queries=(rate(names.WORKER_TIME, names.WORKER_STATE),),
        empty="No cluster reports",
        stacked=True,
    ),
)

_CLUSTERS = (
    Table(
        title="Cost by cluster",
        description="In the time that is shown. Idle cost: the cost of idle threads, by their "
        "share of all threads at each moment. Idle: their share of the thread time.",
        queries=(
            grown(names.WORKER_TIME, *CLUSTER, title="All"),
            grown(names.WORKER_TIME, *CLUSTER, title="Idle", where=_IDLE),
            grown(names.CLUSTER_COST, *CLUSTER, title="Cost"),
            grown(names.CLUSTER_IDLE_COST, *CLUSTER, title="Idle cost"),
        ),
        empty="No cluster has reported in this time",
        computed=(quotient("Idle", "All", "Idle share"),),
        columns=(
            *CLUSTER_COLUMNS,
            Column("Cost", "Cost", decimals=2),
            Column("Idle cost", "Idle cost", decimals=2),
            Column("All", "Thread time", unit="s"),
            Column("Idle share", "Idle", unit="percentunit"),
        ),
        sort="Cost",
    ),
    Bars(
        title="Cost by workspace",
        description="In the time that is shown.",
        queries=(grown(names.CLUSTER_COST, names.SERVICE_NAMESPACE, title="Cost"),),
        empty=_UNPRICED,
        label=names.SERVICE_NAMESPACE,
    ),
    Bars(
        title="Thread time by workspace",
        description="In the time that is shown.",
        queries=(grown(names.WORKER_TIME, names.SERVICE_NAMESPACE, title="Thread time"),),
        empty="No cluster has reported in this time",
        unit="s",
        label=names.SERVICE_NAMESPACE,
    ),
)

_PEOPLE = (
    Bars(
        title="Computations by person",
        description="Computations that ended in the time that is shown. To see what "
        "one person's clusters cost, choose them above.",
        queries=(number_of(names.LOG_COMPUTATION_FINISHED, names.USER_NAME, title="Computations"),),
        empty="No computation ended in this time",
        label=names.USER_NAME,
    ),
    Lines(
        title="Computations over time, by person",
        description="Computations that ended.",
        queries=(
            events(
                names.LOG_COMPUTATION_FINISHED,
                names.USER_NAME,
                alias=f"[[tag_{names.USER_NAME}]]",
            ),
        ),
        empty="No computation ended in this time",
        bars=True,
    ),
    Table(
        title="Who used which cluster",
        description="Computations that ended, by person and cluster.",
        queries=(
            number_of(
                names.LOG_COMPUTATION_FINISHED, names.USER_NAME, *CLUSTER, title="Computations"
            ),
        ),
        empty="No computation ended in this time",
        columns=(
            Column(names.USER_NAME, "Person"),
            Column("Computations", "Computations"),
            *CLUSTER_COLUMNS,
        ),
        sort="Computations",
    ),
)

BOARD = Board(
    uid="daskscope-cost",
    title="Cost and people",
    question="Who spends what, and how much of it on nothing?",
    rows=(
        Row("Money", _MONEY),
        Row("Over time", _OVER_TIME),
        Row("Clusters and workspaces", _CLUSTERS),
        Row("People", _PEOPLE),
    ),
    since="now-7d",
)
