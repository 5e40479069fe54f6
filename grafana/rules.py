"""The alert rules. Each has its section in ``docs/runbooks.md``."""

from __future__ import annotations

from daskscope import names
from daskscope.names import LogEvent, Metric
from grafana.alerts import Rule, Value
from grafana.boards import cluster, computation, fleet, pipeline
from grafana.config import IDLE_SECONDS, LOST_WORKERS, NEARLY_ALL_MEMORY, WERE_LOST
from grafana.influxql import CLUSTER, equals

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_WHO = 'cluster {{ index .Labels "dask.cluster.name" }} of {{ index .Labels "service.namespace" }}'

_TAGS = ", ".join(f'"{tag}"' for tag in CLUSTER)
_UNFINISHED = equals(names.TASK_STATE, "waiting", "queued", "processing", "no-worker")


def _gauge(metric: Metric, where: str = "") -> str:
    """Return the query of the last sum over the metric's own attributes."""
    if metric.instrument not in ("gauge", "updowncounter"):
        raise ValueError(f"{metric.name} is a {metric.instrument}")
    return _sum('last("gauge")', metric, where)


def _sum(value: str, metric: Metric, where: str = "") -> str:
    conditions = f"{where} AND $timeFilter" if where else "$timeFilter"
    tags = ", ".join(f'"{tag}"' for tag in (*CLUSTER, *metric.attributes))
    return (
        f'SELECT sum("v") FROM (SELECT {value} AS "v" FROM "{metric.name}" '
        f"WHERE {conditions} GROUP BY {tags}) WHERE $timeFilter GROUP BY {_TAGS}"
    )


def _count(where: str, *events: LogEvent) -> str:
    event = equals(names.EVENT_NAME, *(event.name for event in events))
    conditions = f"{event} AND {where} AND $timeFilter" if where else f"{event} AND $timeFilter"
    return f'SELECT count("severity_number") FROM "logs" WHERE {conditions} GROUP BY {_TAGS}'


def _increase(metric: Metric) -> str:
    """Return the query of how much a counter grew; what was not there before was 0.

    A dip is no growth: not the end of a cluster, nor the step that has only begun.
    """
    if metric.instrument != "counter":
        raise ValueError(f"{metric.name} is a {metric.instrument}")
    tags = ", ".join(f'"{tag}"' for tag in (*CLUSTER, *metric.attributes))
    each = (
        f'SELECT last("counter") AS "v" FROM "{metric.name}" '
        f"WHERE $timeFilter GROUP BY time(5m), {tags} fill(0)"
    )
    steps = (
        f'SELECT non_negative_difference(sum("v")) AS "d" FROM ({each}) '
        f"WHERE $timeFilter GROUP BY time(5m), {_TAGS}"
    )
    return f'SELECT sum("d") FROM ({steps}) WHERE $timeFilter GROUP BY {_TAGS}'


_UNFINISHED_TASKS = _gauge(names.TASK_COUNT, _UNFINISHED)

#: Points per step of two minutes, the mean of the last three steps: 0 after some five minutes
#: without any. Known for an hour; then the cluster is history.
_POINTS = Value(
    "points",
    'SELECT moving_average("n", 3) FROM (SELECT count("gauge") AS "n" '
    f'FROM "{names.WORKER_THREADS.name}" WHERE $timeFilter GROUP BY time(2m), {_TAGS} fill(0)) '
    f"WHERE $timeFilter GROUP BY {_TAGS}",
    since=HOUR,
)

#: 1: the cluster said that it began; 2: and that it stopped.
_SAID = Value("said", _count("", names.LOG_CLUSTER_STARTED, names.LOG_CLUSTER_STOPPED), 30 * DAY)

#: Whether it was at work when it was last heard of: then 0.
_IDLE = Value("idle", _gauge(names.CLUSTER_IDLE), HOUR)

#: Computations that had begun and not ended when it was last heard of. One whose results are
#: computed again after its end is none.
_RUNNING = Value("running", _gauge(names.COMPUTATION_COUNT), HOUR)

RULES: tuple[Rule, ...] = (
    Rule(
        uid="computation-failed",
        title="Computation failed",
        summary=f'{{{{ (index .Values "failed").Value }}}} computation(s) failed on {_WHO}',
        severity="warning",
        values=(
            Value(
                "failed",
                _count(equals(names.COMPUTATION_STATUS, "erred"), names.LOG_COMPUTATION_FINISHED),
                since=10 * MINUTE,
            ),
        ),
        condition="$failed > 0",
        minutes=0,
        board=computation.BOARD,
        panel="Computations that ended",
    ),
    Rule(
        uid="computation-lost",
        title="Computation lost",
        summary=f"{_WHO} fell silent while computations ran",
        severity="critical",
        values=(_POINTS, _SAID, _RUNNING),
        condition="$points == 0 && $said == 1 && $running > 0",
        minutes=2,
        board=pipeline.BOARD,
        panel="When each cluster was last heard of",
    ),
    Rule(
        uid="cluster-silent",
        title="Cluster silent",
        summary=f"{_WHO} was at work, sends nothing any more and did not say that it stopped",
        severity="warning",
        # One without work most likely ended with the process of its client, and nothing is lost.
        # So did one whose only tasks belong to computations that had ended: as a client's process
        # ends, its workers end first, and what they held waits to be computed again.
        values=(_POINTS, _SAID, _IDLE, _RUNNING, Value("tasks", _UNFINISHED_TASKS, HOUR)),
        condition="$points == 0 && $said == 1 && $idle == 0 && ($running > 0 || $tasks == 0)",
        minutes=2,
        board=pipeline.BOARD,
        panel="When each cluster was last heard of",
    ),
    Rule(
        uid="idle-and-burning",
        title="Idle and burning",
        summary=f"{_WHO} has had no work for "
        '{{ (index .Values "idle").Value | humanizeDuration }} and still has '
        '{{ (index .Values "threads").Value }} threads',
        severity="warning",
        values=(
            Value("idle", _gauge(names.CLUSTER_IDLE), 5 * MINUTE),
            Value("threads", _gauge(names.WORKER_THREADS), 5 * MINUTE),
        ),
        condition=f"$idle > {IDLE_SECONDS} && $threads > 0",
        minutes=5,
        board=cluster.BOARD,
        panel="Idle for",
    ),
    Rule(
        uid="memory-near-its-limit",
        title="Memory near its limit",
        summary=f"the workers of {_WHO} use nearly all the memory that they may",
        severity="warning",
        values=(
            Value(
                "used",
                _gauge(names.MEMORY_USED, equals(names.MEMORY_KIND, "managed", "unmanaged")),
                5 * MINUTE,
            ),
            Value("limit", _gauge(names.MEMORY_LIMIT), 5 * MINUTE),
        ),
        condition=f"$limit > 0 && $used > {NEARLY_ALL_MEMORY} * $limit",
        minutes=2,
        board=cluster.BOARD,
        panel="Memory of the workers",
    ),
    Rule(
        uid="workers-being-lost",
        title="Workers being lost",
        summary=f'{{{{ (index .Values "lost").Value }}}} workers of {_WHO} were lost in a quarter '
        "of an hour",
        severity="warning",
        values=(Value("lost", _count(WERE_LOST, names.LOG_WORKER_LOST), 15 * MINUTE),),
        condition=f"$lost >= {LOST_WORKERS}",
        minutes=0,
        board=cluster.BOARD,
        panel="Workers that left",
    ),
    Rule(
        uid="progress-stuck",
        title="Progress stuck",
        summary=f"{_WHO} has tasks to be done, and none has changed its state in half an hour",
        severity="warning",
        values=(
            Value("changed", _sum('spread("gauge")', names.TASK_COUNT), 30 * MINUTE),
            Value("work", _UNFINISHED_TASKS, 3 * MINUTE),
            # It was there all that time.
            Value("before", _gauge(names.WORKER_THREADS), 30 * MINUTE, until=25 * MINUTE),
        ),
        condition="$changed == 0 && $work > 0 && $before >= 0",
        minutes=5,
        board=cluster.BOARD,
        panel="Tasks by state",
    ),
    Rule(
        uid="cause-found",
        title="Cause found",
        summary='the service found {{ (index .Values "found").Value }} cause(s) of lost time or '
        f"failures on {_WHO}",
        severity="warning",
        values=(Value("found", _count("", names.LOG_FINDING), since=10 * MINUTE),),
        condition="$found > 0",
        minutes=0,
        board=fleet.BOARD,
        panel="Findings",
    ),
    Rule(
        uid="telemetry-dropped",
        title="Telemetry dropped",
        summary=f"daskscope leaves something out on {_WHO}",
        severity="warning",
        values=(Value("dropped", _increase(names.DROPPED), 20 * MINUTE),),
        condition="$dropped > 0",
        minutes=2,
        board=pipeline.BOARD,
        panel="Left out, by what it was",
    ),
)
