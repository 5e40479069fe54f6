"""What several dashboards show alike."""

from __future__ import annotations

from daskscope import names
from grafana.config import WERE_LOST
from grafana.influxql import Query, equals, grown, number_of, rate_now, records, so_far
from grafana.panels import CARRIED, TO_CLUSTER, TO_CLUSTER_PAGE, TO_COMPUTATION_PAGE, Link, Stat
from grafana.table import Column, Table

#: In place of a figure of now, where its cluster sends nothing any more.
GONE = "The cluster does not report"

CLUSTER_LINKS = (
    Link("Why is it running?", TO_CLUSTER),
    Link("Its page in daskscope", TO_CLUSTER_PAGE, new_tab=True),
)

CLUSTER_COLUMNS = (
    Column(names.CLUSTER_NAME, "Cluster"),
    Column(names.CLUSTER_ID, "Cluster id", links=CLUSTER_LINKS),
    Column(names.SERVICE_NAMESPACE, "Workspace"),
)

#: Where a computation's page is: its row has the id of its cluster, too.
_COMPUTATION_PAGE = (
    '${service}/clusters/${__data.fields["Cluster id"]:percentencode}'
    "/computations/${__value.raw:percentencode}"
)
_CLUSTERS_COMPUTATIONS = (
    f'/d/daskscope-computation?var-cluster=${{__data.fields["Cluster id"]:percentencode}}&{CARRIED}'
)

#: On dashboards of one cluster.
COMPUTATION = Column(
    names.COMPUTATION_ID,
    "Computation",
    links=(Link("Its code and failures in daskscope", TO_COMPUTATION_PAGE, new_tab=True),),
)

COMPUTATION_COLUMNS = (
    Column("Time", "Ended"),
    Column(names.COMPUTATION_STATUS, "Status"),
    Column(names.USER_NAME, "User"),
    Column(names.COMPUTATION_TASKS, "Tasks"),
    Column(names.CLUSTER_NAME, "Cluster"),
    Column(names.CLUSTER_ID, "Cluster id", links=CLUSTER_LINKS),
    Column(
        names.COMPUTATION_ID,
        "Computation",
        links=(
            Link("Its code and failures in daskscope", _COMPUTATION_PAGE, new_tab=True),
            Link("Where its cluster's time went", _CLUSTERS_COMPUTATIONS),
        ),
    ),
)

WORKERS_LOST = Stat(
    title="Workers lost",
    description="Workers that left without being asked to, in the time that is shown.",
    queries=(number_of(names.LOG_WORKER_LOST, title="Lost", where=WERE_LOST),),
    empty="None lost",
    bad=1,
)


def idle_cost(*, width: int) -> Stat:
    """Return the panel of what the clusters cost while their threads had nothing to do."""
    return Stat(
        title="Idle cost",
        description="The cost of idle threads, by their share of all threads at each moment.",
        queries=(grown(names.CLUSTER_IDLE_COST, title="Idle cost"),),
        empty="No cluster has prices in its settings",
        width=width,
        decimals=2,
    )


def cost_per_hour() -> Stat:
    """Return the panel of what the clusters cost now."""
    return Stat(
        title="Cost per hour",
        description="The current cost of the clusters per hour, in the currency of the prices.",
        queries=(rate_now(names.CLUSTER_COST, title="Cost per hour", seconds=3600),),
        empty="No cluster with prices reports",
        width=6,
        decimals=2,
    )


def computations_that_ended(*, title: str, description: str, width: int) -> Table:
    """Return the panel of computations that ended, the newest first."""
    return Table(
        title=title,
        description=description,
        queries=(
            records(
                names.LOG_COMPUTATION_FINISHED,
                names.CLUSTER_ID,
                names.CLUSTER_NAME,
                names.USER_NAME,
                names.COMPUTATION_STATUS,
            ),
        ),
        empty="No computation ended in this time",
        extract=True,
        width=width,
        columns=COMPUTATION_COLUMNS,
    )


def runs_by_prefix(title: str, outcome: str) -> Query:
    """Return the query of how many runs of tasks came to ``outcome``, by prefix."""
    return so_far(
        names.TASK_COMPLETED,
        names.TASK_PREFIX,
        title=title,
        where=equals(names.TASK_OUTCOME, outcome),
    )
