"""Every name that daskscope gives to telemetry: metrics, spans, log events, attributes.

Data only. Docs, dashboards and tests are made from it or held against it. Units are UCUM codes
(https://ucum.org); a count of things has its thing in braces. Names follow OpenTelemetry's naming
rules: singular, dots, no unit and no ``total`` in the name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Upper bounds of the task duration histogram, in seconds.
DURATION_BOUNDS: tuple[float, ...] = (
    0.001,
    0.003,
    0.01,
    0.03,
    0.1,
    0.3,
    1.0,
    3.0,
    10.0,
    30.0,
    100.0,
    300.0,
    1000.0,
)  # fmt: skip

#: Those of them that are left where series are to be few.
FEW_DURATION_BOUNDS: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0)

#: Stands for all values of an attribute beyond the number that is kept apart.
OTHER = "other"

#: Why a worker left. Asked to: closed; retired, its results moved away; restarted; or terminated by
#: a signal, as a batch system and Kubernetes end jobs and pods.
LOSS_CLOSED = "closed"
LOSS_RETIRED = "retired"
LOSS_RESTARTED = "restarted"
LOSS_TERMINATED = "terminated"
#: Ended by its nanny for its memory; its process ended on its own; no word from it any more, but no
#: sign of its end; no beat for longer than Dask waits; given up after an error inside of Dask.
LOSS_OUT_OF_MEMORY = "out of memory"
LOSS_DIED = "process died"
LOSS_LOST_CONNECTION = "lost connection"
LOSS_TIMED_OUT = "timed out"
LOSS_FAILED = "failed"

# --- attributes -----------------------------------------------------------------------------------
# None may share its name with a field that the collector's InfluxDB exporter writes
# (gauge, counter, count, sum, min, max, body, attributes, …): points would be lost.

SERVICE_NAME = "service.name"
SERVICE_NAMESPACE = "service.namespace"
SERVICE_INSTANCE_ID = "service.instance.id"
HOST_NAME = "host.name"
TELEMETRY_SDK_NAME = "telemetry.sdk.name"
TELEMETRY_SDK_LANGUAGE = "telemetry.sdk.language"
TELEMETRY_SDK_VERSION = "telemetry.sdk.version"
CLUSTER_ID = "dask.cluster.id"
CLUSTER_NAME = "dask.cluster.name"
RESOURCE_ATTRIBUTES: tuple[str, ...] = (
    SERVICE_NAME,
    SERVICE_NAMESPACE,
    SERVICE_INSTANCE_ID,
    CLUSTER_ID,
    CLUSTER_NAME,
    HOST_NAME,
)
#: What OpenTelemetry wants every SDK to say of itself. The collector's configuration leaves them
#: out: in InfluxDB they would be tags.
SDK_ATTRIBUTES: tuple[str, ...] = (
    TELEMETRY_SDK_NAME,
    TELEMETRY_SDK_LANGUAGE,
    TELEMETRY_SDK_VERSION,
)

WORKER_STATE = "dask.worker.state"
MEMORY_KIND = "dask.memory.kind"
TASK_STATE = "dask.task.state"
TASK_PREFIX = "dask.task.prefix"
TASK_OUTCOME = "dask.task.outcome"
TASK_ACTIVITY = "dask.task.activity"
EXCEPTION_TYPE = "exception.type"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"
EXCEPTION_OCCURRENCES = "dask.exception.occurrences"
EVENT_NAME = "event.name"
EVENT_TOPIC = "dask.event.topic"
EVENT_CUT = "dask.event.cut"
WORKER_LOSS_REASON = "dask.worker.loss.reason"
WORKER_LOSS_EXPECTED = "dask.worker.loss.expected"
WORKER_LOSS_TASKS = "dask.worker.loss.tasks"
WORKER_LOSS_PREFIXES = "dask.worker.loss.prefixes"
WORKER_LOSS_LOG = "dask.worker.loss.log"
WORKER_LOSS_DEPLOYMENT = "dask.worker.loss.deployment"
WORKER_LOSS_NANNY_MEMORY = "dask.worker.loss.nanny_memory"
WORKER_ADDRESS = "dask.worker.address"
WORKER_NAME = "dask.worker.name"
WORKER_LIFETIME = "dask.worker.lifetime"
WORKER_LAST_SEEN = "dask.worker.last_seen"
WORKER_MEMORY_USED = "dask.worker.memory.used"
WORKER_MEMORY_LIMIT = "dask.worker.memory.limit"
LOGGER = "dask.log.logger"
TRANSFER_DIRECTION = "dask.transfer.direction"
SPILL_DIRECTION = "dask.spill.direction"
QUEUE_NAME = "daskscope.queue.name"
DROPPED_WHAT = "daskscope.dropped.what"
SENT_WHAT = "daskscope.send.what"
COMPUTATION_ID = "dask.computation.id"
COMPUTATION_STATUS = "dask.computation.status"
COMPUTATION_TASKS = "dask.computation.tasks"
COMPUTATION_DONE = "dask.computation.done"
USER_NAME = "user.name"
SHUTDOWN_STATE = "dask.shutdown.state"
SHUTDOWN_REQUESTED_BY = "dask.shutdown.requested_by"
FINDING_RULE = "dask.finding.rule"
FINDING_SEVERITY = "dask.finding.severity"
FINDING_SECONDS = "dask.finding.seconds"
FINDING_COST = "dask.finding.cost"
FINDING_CURRENCY = "dask.finding.currency"
FINDING_URL = "dask.finding.url"
TASK_GROUP_NAME = "dask.task_group.name"
TASK_GROUP_TASKS = "dask.task_group.tasks"
TASK_GROUP_SAMPLED = "dask.task_group.sampled"

# --- metrics --------------------------------------------------------------------------------------

Instrument = Literal["counter", "updowncounter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. ``attributes`` are those of its points."""

    name: str
    instrument: Instrument
    unit: str
    help: str
    attributes: tuple[str, ...] = ()


WORKER_COUNT = Metric(
    "dask.worker.count", "updowncounter", "{worker}", "Workers connected.", (WORKER_STATE,)
)
WORKER_THREADS = Metric(
    "dask.worker.threads", "updowncounter", "{thread}", "Threads of the connected workers."
)
WORKER_CPU = Metric(
    "dask.worker.cpu",
    "gauge",
    "{cpu}",
    "Cores that the workers' processes use, by their last reports.",
)
WORKER_LOOP_INTERVAL = Metric(
    "dask.worker.loop_interval",
    "gauge",
    "s",
    "Longest interval between two turns of a worker's event loop, each averaged between two of its "
    "heartbeats, since the previous report.",
)
WORKER_HEARTBEAT_AGE = Metric(
    "dask.worker.heartbeat_age",
    "gauge",
    "s",
    "Longest time since a worker's last heartbeat that was seen since the previous report.",
)
HOST_LOAD = Metric(
    "dask.host.load",
    "gauge",
    "1",
    "Highest load of a worker's host for each of its cores since the previous report: above 1, "
    "more wants to run than the host has cores. Absent if no worker reports it.",
)
WORKER_TIME = Metric(
    "dask.worker.time",
    "counter",
    "s",
    "Thread-seconds of all workers: busy with a task, idle without one, or paused.",
    (WORKER_STATE,),
)
WORKER_LOSS = Metric(
    "dask.worker.loss",
    "counter",
    "{worker}",
    "Workers that left, expectedly or not.",
    (WORKER_LOSS_REASON,),
)
MEMORY_LIMIT = Metric(
    "dask.memory.limit", "updowncounter", "By", "Memory that the connected workers may use."
)
MEMORY_USED = Metric(
    "dask.memory.used",
    "updowncounter",
    "By",
    "Memory of the connected workers: managed (Dask's data), unmanaged, or spilled to disk.",
    (MEMORY_KIND,),
)
MEMORY_PEAK = Metric(
    "dask.memory.peak",
    "gauge",
    "By",
    "The most memory that the process of any one worker of the cluster has ever had, as its "
    "operating system or its nanny says. Absent while none of them says so.",
)
TASK_COUNT = Metric(
    "dask.task.count", "updowncounter", "{task}", "Tasks that the scheduler holds.", (TASK_STATE,)
)
TASK_UNRUNNABLE = Metric(
    "dask.task.unrunnable",
    "updowncounter",
    "{task}",
    "Tasks that no worker can run: those that require what no worker has, which Dask holds in its "
    "state no-worker, and without any worker those that it keeps queued, too.",
)
TASK_COMPLETED = Metric(
    "dask.task.completed",
    "counter",
    "{task}",
    "Task runs that ended, by outcome: finished, erred, or retried (it failed and ran again).",
    (TASK_PREFIX, TASK_OUTCOME),
)
TASK_DURATION = Metric(
    "dask.task.duration", "histogram", "s", "Seconds that a task run computed.", (TASK_PREFIX,)
)
TASK_TIME = Metric(
    "dask.task.time",
    "counter",
    "s",
    "Thread-seconds by what they were spent on. Together with dask.task.running they add up "
    "to all thread-seconds of the workers. lost is the time of tasks whose worker left before they "
    "ended. Without a prefix: idle, paused, transfer (waiting for data), unattributed.",
    (TASK_PREFIX, TASK_ACTIVITY),
)
TASK_RUNNING = Metric(
    "dask.task.running",
    "updowncounter",
    "s",
    "Thread-seconds that the tasks now running have taken so far.",
    (TASK_PREFIX,),
)
TASK_OUTPUT = Metric(
    "dask.task.output", "counter", "By", "Bytes that finished tasks returned.", (TASK_PREFIX,)
)
EXCEPTION_COUNT = Metric(
    "dask.exception.count",
    "counter",
    "{exception}",
    "Exceptions of tasks, each counted once, where it was raised.",
    (EXCEPTION_TYPE,),
)
EVENT_COUNT = Metric(
    "dask.event.count", "counter", "{event}", "Allow-listed events.", (EVENT_TOPIC,)
)
CLIENT_COUNT = Metric("dask.client.count", "updowncounter", "{client}", "Clients connected.")
CLIENT_MEMORY = Metric(
    "dask.client.memory",
    "updowncounter",
    "By",
    "Size of the results that the connected clients hold, which stay in memory until they release "
    "them. What two clients hold counts twice. Absent if one holds too many to add up.",
)
COMPUTATION_COUNT = Metric(
    "dask.computation.count",
    "updowncounter",
    "{computation}",
    "Computations that have begun and not ended. Tasks whose results were lost and that run again "
    "do not count.",
)
CLUSTER_IDLE = Metric(
    "dask.cluster.idle", "gauge", "s", "Seconds since the last sign of work; 0 while working."
)
CLUSTER_COST = Metric(
    "dask.cluster.cost",
    "counter",
    "{currency}",
    "Cost of the cluster by the prices in its settings, in their currency. Absent without them.",
)
CLUSTER_IDLE_COST = Metric(
    "dask.cluster.idle_cost",
    "counter",
    "{currency}",
    "The part of that cost which idle threads had: at each moment, their share of all threads. "
    "While there is no thread, all of it if the cluster is idle.",
)
TRANSFER_IO = Metric(
    "dask.transfer.io",
    "counter",
    "By",
    "Bytes of results, by their size in memory, that workers sent to other workers and "
    "clients. Absent where workers may not spill, because such workers do not count them.",
    (TRANSFER_DIRECTION,),
)
SPILL_IO = Metric(
    "dask.spill.io",
    "counter",
    "By",
    "Bytes of results that workers wrote to disk because memory was short, and read back.",
    (SPILL_DIRECTION,),
)
SCHEDULER_CPU = Metric(
    "dask.scheduler.cpu", "gauge", "{cpu}", "Cores that the scheduler's process used, on average."
)
SCHEDULER_MEMORY = Metric(
    "dask.scheduler.memory", "updowncounter", "By", "Memory of the scheduler's process."
)
SCHEDULER_LAG = Metric(
    "dask.scheduler.lag",
    "gauge",
    "s",
    "Longest delay of the scheduler's event loop since the previous report.",
)
GPU_UTILIZATION = Metric(
    "dask.gpu.utilization",
    "gauge",
    "1",
    "Mean utilization of the workers' GPUs, from 0 to 1. Absent if no worker reports a GPU.",
)
GPU_MEMORY_USED = Metric(
    "dask.gpu.memory.used", "updowncounter", "By", "Memory of the workers' GPUs that is in use."
)
GPU_MEMORY_LIMIT = Metric(
    "dask.gpu.memory.limit", "updowncounter", "By", "Memory that the workers' GPUs have."
)
HOOK_TIME = Metric(
    "daskscope.hook.time",
    "counter",
    "s",
    "Seconds of the scheduler's event loop that snapshots took.",
)
QUEUE_SIZE = Metric(
    "daskscope.queue.size",
    "updowncounter",
    "{item}",
    "Items that wait: snapshots to be scrubbed, reported and emitted, and rows for the service.",
    (QUEUE_NAME,),
)
DROPPED = Metric(
    "daskscope.dropped",
    "counter",
    "{item}",
    "Items that daskscope left out, or folded into another, because of a bound.",
    (DROPPED_WHAT,),
)
SEND_FAILURES = Metric(
    "daskscope.send.failures",
    "counter",
    "{request}",
    "Requests that failed: heartbeats, metrics, traces, logs.",
    (SENT_WHAT,),
)

METRICS: tuple[Metric, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Metric)
)

# --- spans and log events -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpanKind:
    """One kind of span. Its spans are called ``name``, or ``name`` and what ran."""

    name: str
    help: str
    attributes: tuple[str, ...]

    def of(self, prefix: str) -> str:
        """Return the name of a span of tasks with that prefix: there are as few as prefixes."""
        return f"{self.name} {prefix}"

    def includes(self, name: str) -> bool:
        """Return whether a span of that name is of this kind, with or without what ran."""
        return name == self.name or name.startswith(f"{self.name} ")


SPAN_COMPUTATION = SpanKind(
    "dask.computation",
    "One per computation, from its graph's arrival to its last task's end, in the trace of "
    "whoever submitted it. Its name ends with the prefix whose tasks took the longest, as in "
    "`dask.computation read`. An error if a task raised an exception: the status says how many "
    "did.",
    (COMPUTATION_ID, USER_NAME, COMPUTATION_STATUS, COMPUTATION_TASKS),
)
SPAN_TASK_GROUP = SpanKind(
    "dask.task_group",
    "One per task group that ran, below its computation: from its first task's start to its "
    "last one's end. Its name ends with the prefix of its tasks, as in `dask.task_group read`. "
    "Spans that your tasks make are below it. Linked to the groups that it depends on. "
    "`dask.task_group.sampled` of its tasks have a span.",
    (COMPUTATION_ID, TASK_GROUP_NAME, TASK_PREFIX, TASK_GROUP_TASKS, TASK_GROUP_SAMPLED),
)
SPAN_TASK = SpanKind(
    "dask.task",
    "A sample of a group's task runs, below their group: those that failed, the slowest, and some "
    "others. From the start of its function to its end. Its name ends with the prefix, as in "
    "`dask.task read`. The status of a failed one is an error, described by the exception's type.",
    (COMPUTATION_ID, TASK_PREFIX, TASK_OUTCOME, WORKER_ADDRESS, EXCEPTION_TYPE),
)

SPANS: tuple[SpanKind, ...] = (SPAN_COMPUTATION, SPAN_TASK_GROUP, SPAN_TASK)


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One kind of log record that reports an event. ``event.name`` is an attribute of each."""

    name: str
    help: str
    attributes: tuple[str, ...]


LOG_CLUSTER_STARTED = LogEvent("dask.cluster.started", "The plugin began to observe.", (USER_NAME,))
LOG_CLUSTER_STOPPED = LogEvent("dask.cluster.stopped", "The scheduler closed.", (USER_NAME,))
LOG_CLUSTER_SHUTDOWN = LogEvent(
    "dask.cluster.shutdown",
    "A requested shutdown was announced, called off, begun or failed; the body says why.",
    (SHUTDOWN_STATE, SHUTDOWN_REQUESTED_BY),
)
LOG_COMPUTATION_STARTED = LogEvent(
    "dask.computation.started",
    "A computation began.",
    (COMPUTATION_ID, COMPUTATION_TASKS, USER_NAME),
)
LOG_COMPUTATION_PROGRESS = LogEvent(
    "dask.computation.progress",
    "Progress of a running computation: the number of its tasks that are done. The number "
    "falls when results are lost. Sent every few intervals.",
    (COMPUTATION_ID, COMPUTATION_TASKS, COMPUTATION_DONE, USER_NAME),
)
LOG_COMPUTATION_FINISHED = LogEvent(
    "dask.computation.finished",
    "A computation ended; its status says how.",
    (COMPUTATION_ID, COMPUTATION_STATUS, COMPUTATION_TASKS, USER_NAME),
)
LOG_EXCEPTION = LogEvent(
    "dask.exception",
    "Tasks raised an exception. Equal exceptions of one computation are one record per "
    "interval, with their number so far.",
    (
        COMPUTATION_ID,
        TASK_PREFIX,
        EXCEPTION_TYPE,
        EXCEPTION_MESSAGE,
        EXCEPTION_STACKTRACE,
        EXCEPTION_OCCURRENCES,
    ),
)
LOG_WORKER_LOST = LogEvent(
    "dask.worker.lost",
    "A worker left; an error unless it was asked to leave. Holds the number of tasks "
    "assigned to it, in all and per prefix (a JSON object); its memory (bytes) at its last "
    "heartbeat, how many seconds before its end that was, and the reason its nanny saw if "
    "the nanny ended it; how many seconds it was there; its last log lines; and its batch job or "
    "pod (a JSON object). Attributes that are unknown or refused are left out.",
    (
        WORKER_ADDRESS,
        WORKER_NAME,
        WORKER_LOSS_REASON,
        WORKER_LOSS_EXPECTED,
        WORKER_LOSS_TASKS,
        WORKER_LOSS_PREFIXES,
        WORKER_LIFETIME,
        WORKER_LAST_SEEN,
        WORKER_MEMORY_USED,
        WORKER_MEMORY_LIMIT,
        WORKER_LOSS_NANNY_MEMORY,
        WORKER_LOSS_LOG,
        WORKER_LOSS_DEPLOYMENT,
    ),
)
LOG_EVENT = LogEvent(
    "dask.event",
    "An event of Dask's log whose topic the settings allow; the body is the message as JSON. "
    "dask.event.cut is true if the message was cut: characters, items or levels.",
    (EVENT_TOPIC, EVENT_CUT),
)
LOG_RECORD = LogEvent(
    "dask.log",
    "A log record of the scheduler or, with its address, of a worker: with the task that "
    "logged it and its computation if they are known, and the exception if one was logged.",
    (
        LOGGER,
        WORKER_ADDRESS,
        COMPUTATION_ID,
        TASK_PREFIX,
        EXCEPTION_TYPE,
        EXCEPTION_MESSAGE,
        EXCEPTION_STACKTRACE,
    ),
)

#: Sent by the service: only it knows findings.
LOG_FINDING = LogEvent(
    "dask.finding",
    "The service found the cause of a problem: the body is the finding's sentence. Sent once, and "
    "again if its severity changes; an error if that is critical, else a warning. Holds the "
    "thread-seconds that were lost and their cost, if they are known, and the address of the page.",
    (
        FINDING_RULE,
        FINDING_SEVERITY,
        FINDING_SECONDS,
        FINDING_COST,
        FINDING_CURRENCY,
        FINDING_URL,
        COMPUTATION_ID,
        USER_NAME,
    ),
)

#: Those that the plugin sends.
LOG_EVENTS: tuple[LogEvent, ...] = (
    LOG_CLUSTER_STARTED,
    LOG_CLUSTER_STOPPED,
    LOG_CLUSTER_SHUTDOWN,
    LOG_COMPUTATION_STARTED,
    LOG_COMPUTATION_PROGRESS,
    LOG_COMPUTATION_FINISHED,
    LOG_EXCEPTION,
    LOG_WORKER_LOST,
    LOG_EVENT,
    LOG_RECORD,
)
