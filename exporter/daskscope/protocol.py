"""Heartbeat and reply: the contract between the plugin and the service.

These dataclasses are the only definition of the wire format. The plugin sends them as JSON
(:mod:`daskscope.codec`), the service validates a body against the same classes. Standard library
only.

Rules of the format:

- Times are seconds since the Unix epoch, UTC, as floats. Durations are seconds, sizes bytes.
- Values are absolute (a total so far, never an increment) and every row has a natural key inside
  its cluster. A row of a higher ``seq`` replaces one of a lower, so a beat may arrive twice, late,
  or after its successor.
- ``None`` says "not measured" or "not sent"; it is never a stand-in for zero.
- A receiver ignores fields that it does not know. A field that is added needs a default; any other
  change raises the major number in ``PROTOCOL``.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Literal

#: ``major.minor``. A service answers a beat of another major number with a 4xx that says so.
PROTOCOL = "1.0"

#: The largest heartbeat that a service accepts, in bytes, after decompression.
MAX_BEAT_BYTES = 4 * 1024 * 1024

#: The most characters that a name may have on the wire: of a task group, a topic, a tag, a worker.
MAX_NAME = 300

#: The most characters that one text (message, traceback, code, event) may have on the wire.
MAX_TEXT = 20_000

#: The most characters of the keys of a cluster's rows, and of a cluster's own id.
MAX_ID = 100
MAX_CLUSTER_ID = 200

#: How the users of clients are named of whom nobody knows whose they are: a host follows.
UNREGISTERED = "unregistered client"

#: What a task asks for that any worker may run: see ``Computation.asks``.
ANY_WORKER = "any worker"

#: The most characters of a path, an address or the like, which is neither a name nor a long text.
MAX_WORDS = 4_000

#: The largest count and size: what JSON carries between any two languages. And the largest number
#: of seconds, or of a currency: 64,000 threads take half a year to get there.
MAX_COUNT = 2**53
MAX_AMOUNT = 1e12

#: The most entries of a mapping or a list, and the most rows of one kind in one beat.
MAX_ENTRIES = 100
MAX_ROWS = 10_000

#: The most rows of one beat that a reply can have left out.
MAX_LEFT_OUT = 10 * MAX_ROWS

#: The most runs and merged runs of one :class:`TaskStream`, and the most characters of its columns.
MAX_STREAM = 6_000
MAX_COLUMNS = 200_000

#: What can have a price for an hour of it.
PRICED = ("cluster", "worker", "thread", "gpu", "gib")

#: ISO 4217's code for no currency: that of a cluster whose user wants no costs of it.
NO_CURRENCY = "XXX"

#: Times lie between the year that Dask began in and this many seconds after the receiver's clock.
EARLIEST = 1_420_070_400.0
MAX_AHEAD = 86_400.0

#: The most seconds between the announcement of a shutdown and the close: seven days.
MAX_GRACE = 604_800.0


@dataclass(frozen=True, slots=True)
class Between:
    """The least and the most that a number may be. A receiver takes the nearest, and says so."""

    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, from :data:`EARLIEST` to :data:`MAX_AHEAD`; in all else as :class:`Between`."""


@dataclass(frozen=True, slots=True)
class Length:
    """The most characters of a text; and what it must look like, as a regular expression."""

    most: int
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Entries:
    """The most entries of a mapping or a list. A receiver leaves out those beyond, and says so."""

    most: int


@dataclass(frozen=True, slots=True)
class PartOfKey:
    """Part of the key of a row: a later row replaces an earlier one of the same key."""


@dataclass(frozen=True, slots=True)
class Encrypted:
    """It may quote a user's code or data: the service stores it encrypted."""


Count = Annotated[int, Between(0, MAX_COUNT)]
Seconds = Annotated[float, Between(0, MAX_AMOUNT)]
Money = Annotated[float, Between(0, MAX_AMOUNT)]
#: A number that may be of anything, such as cores.
Amount = Annotated[float, Between(0, MAX_AMOUNT)]
Timestamp = Annotated[float, Moment()]
Id = Annotated[str, Length(MAX_ID)]
#: What can be part of the address of a page: "." and ".." cannot.
_IN_ADDRESSES = "[._:@+~-]*[A-Za-z0-9][A-Za-z0-9._:@+~-]*"
ClusterId = Annotated[str, Length(MAX_CLUSTER_ID, _IN_ADDRESSES)]
#: The key of rows that have pages of their own.
PageId = Annotated[str, Length(MAX_ID, _IN_ADDRESSES)]
Name = Annotated[str, Length(MAX_NAME)]
Words = Annotated[str, Length(MAX_WORDS)]
Text = Annotated[str, Length(MAX_TEXT)]
Quote = Annotated[Text, Encrypted()]

#: Names or texts by name; counts, seconds and amounts by name.
Named = Annotated[dict[Name, Name], Entries(MAX_ENTRIES)]
Counts = Annotated[dict[Name, Count], Entries(MAX_ENTRIES)]
SecondsBy = Annotated[dict[Name, Seconds], Entries(MAX_ENTRIES)]

Phase = Literal["start", "beat", "stop"]

#: What became of a computation. Only the service sets ``lost``: when the cluster fell silent.
ComputationStatus = Literal["running", "finished", "erred", "cancelled"]

#: Where a shutdown stands. ``announced``: clients were notified; ``called off``: work arrived.
ShutdownState = Literal["announced", "called off", "closing", "failed"]


@dataclass(frozen=True, slots=True)
class Environment:
    """What a scheduler runs on. ``packages`` maps a package's name to its version."""

    python: Words
    python_path: Words
    operating_system: Words
    architecture: Words
    packages: Named


@dataclass(frozen=True, slots=True)
class Prices:
    """What an hour costs, in ``currency``: of a cluster, worker, thread, gpu, gib of memory.

    A ``currency`` of XXX (no currency) says that the cluster is to have no costs.
    """

    currency: Name  # ISO 4217
    per_hour: Annotated[dict[Name, Money], Entries(MAX_ENTRIES)]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A package whose version is not the same everywhere in a cluster.

    ``workers`` and ``clients`` count those that have each version: ``none`` where it is missing.
    """

    package: Words  # or ``python``
    scheduler: Words
    workers: Counts
    clients: Counts


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster's description: everything that seldom changes.

    ``kind`` says how it was started, for example ``LocalCluster`` or ``dask scheduler``.
    ``user`` registered it first or, with a preload, runs the scheduler; ``host`` is the
    scheduler's, whoever registered.
    ``deployment`` holds what the environment says about where it runs: names such as
    ``slurm.job.id``, ``k8s.pod.name``, ``gateway.cluster.name``. ``prices``: None if none are set.
    ``idle_timeout`` is the user's own setting, after which the cluster closes itself. ``settings``
    are those that decide what the cluster reports, and how often, as texts. ``in_client`` says
    whether the scheduler runs in the process of the client that started it, as a LocalCluster's
    does: it ends with that process.
    """

    id: Annotated[ClusterId, PartOfKey()]
    name: Name
    kind: Words
    user: Name
    host: Words
    started_at: Timestamp
    interval: Annotated[float, Between(0.01, 86_400)]
    environment: Environment
    tags: Named
    workspace: Name | None = None
    deployment: Named = dataclasses.field(default_factory=dict)
    prices: Prices | None = None
    idle_timeout: Seconds | None = None
    settings: Named = dataclasses.field(default_factory=dict)
    in_client: bool | None = None


@dataclass(frozen=True, slots=True)
class SchedulerLoad:
    """What a scheduler's process uses: ``cpu`` in cores, ``memory`` in bytes.

    ``lag`` is the longest that its event loop kept anyone waiting between two beats, in seconds.
    """

    cpu: Amount
    memory: Count
    lag: Seconds


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPUs of the ``workers`` that report one. ``utilization`` is their mean, from 0 to 1."""

    workers: Count  # Dask reads the first GPU of each
    utilization: Annotated[float, Between(0, 1)]
    memory_used: Count
    memory_limit: Count | None


@dataclass(frozen=True, slots=True)
class InstanceUse:
    """What the workers on machines of one instance type, such as ``m5.large``, used.

    ``seconds`` are those of the machines: one network address, in Kubernetes a pod's, counts once,
    however many workers it has, from its first worker's arrival until its last one has left. The
    others are those of the workers' threads, and of the GiB of their memory limits. All are since
    the plugin started.
    """

    type: Name
    seconds: Seconds
    thread_seconds: Seconds
    gib_seconds: Seconds


@dataclass(frozen=True, slots=True)
class ConnectedClient:
    """A connected client: its user, its host, and the results that it holds.

    ``user`` follows the same rule as the user of a computation. ``host`` is the client's address;
    it is empty if the client runs in the scheduler's process. ``since`` is when the client was
    first seen. ``results`` counts the futures that the client holds, including unfinished ones;
    ``bytes`` is their size, None if they are too many to add up. Results that two clients hold
    count for both.
    """

    user: Name
    host: Name
    since: Timestamp
    results: Count
    bytes: Count | None


@dataclass(frozen=True, slots=True)
class Status:
    """The cluster as it is at ``at``.

    ``worker_seconds`` are thread-seconds by state since the plugin started: ``idle`` while no task
    was assigned to the thread, ``paused`` while its worker took none for lack of memory, ``busy``
    all else. ``tasks`` counts the tasks that the scheduler holds, by Dask's state; a state that is
    left out was not counted, because that takes too long if Dask has thousands of prefixes.
    ``idle_seconds`` is None while the cluster is at work. The peaks are the highest values seen at
    any beat; ``peak_memory_used`` also counts what a nanny saw of a worker that it ended.
    ``peak_memory_limit`` is the memory limit of the workers of that time: others may be there now.
    ``peak_worker_memory`` is the most that the process of any one worker ever had, as its operating
    system or its nanny says. ``stopped_at`` is set once the scheduler has closed: then the workers,
    threads and memory are those of the last minute, for workers leave before the scheduler does.

    ``at_work`` says whether anything is under way that has not had its end: a computation that
    runs, a graph that arrives, a client's call. Lost results that are computed again after that are
    none, though they keep the cluster from being idle.

    ``held_by`` counts what there is to keep a cluster for, by kind; what there is none of is left
    out. Of the tasks that are ``processing``, those have a thread that are ``running``; the others
    wait on their workers for one. Dask's own idleness counts only ``tasks`` (``processing``,
    ``queued``, ``unrunnable``), not ``calls`` that are no tasks (``client.run``, methods of
    actors), ``clients``, ``results`` in memory, ``actors``, ``workers starting`` and ``other
    schedulers`` that run inside Dask's, whose tasks Dask does not know. Where tasks in memory were
    not counted, each worker's share of the ``results`` is, so that copies count too.

    ``connected`` are clients that are connected, those first that hold the most results; once it
    has stopped, those of its last beat before that. ``last_held_by`` is then the ``held_by`` of
    that beat; empty while it runs.

    ``busy_by`` says in words what the cluster is at, and so why it is not closed: empty where
    nothing speaks against that, None where nobody looked for all of it, as an older plugin.

    ``cost`` and ``idle_cost`` are what the cluster cost since the plugin started, by its prices,
    and the share of it that idle threads have in all threads' time; None without prices.
    ``gib_seconds`` (GiB of the workers' memory limits times seconds) and ``gpu_seconds`` (workers
    with a GPU times seconds) are since then as well: what prices that only the service knows are
    multiplied by. ``gpu`` is None where no worker reports one. ``mismatches`` are packages whose
    versions differ between the scheduler, its workers and the clients that are connected now.
    ``instances`` are the use of machines by instance type, those with the most threads' time first;
    machines of unknown types are left out.
    """

    at: Timestamp
    workers: Count
    threads: Count
    memory_used: Count
    memory_limit: Count
    worker_seconds: SecondsBy
    tasks: Counts
    clients: Count
    idle_seconds: Seconds | None
    peak_workers: Count
    peak_threads: Count
    peak_memory_used: Count
    stopped_at: Timestamp | None = None
    held_by: Counts = dataclasses.field(default_factory=dict)
    scheduler: SchedulerLoad | None = None
    gpu: Gpu | None = None
    cost: Money | None = None
    idle_cost: Money | None = None
    mismatches: Annotated[tuple[Mismatch, ...], Entries(MAX_ENTRIES)] = ()
    at_work: bool | None = None
    busy_by: Annotated[tuple[Name, ...], Entries(MAX_ENTRIES)] | None = None
    peak_worker_memory: Count | None = None
    connected: Annotated[tuple[ConnectedClient, ...], Entries(MAX_ENTRIES)] = ()
    last_held_by: Counts = dataclasses.field(default_factory=dict)
    gib_seconds: Seconds | None = None
    gpu_seconds: Seconds | None = None
    peak_memory_limit: Count | None = None
    instances: Annotated[tuple[InstanceUse, ...], Entries(MAX_ENTRIES)] = ()


@dataclass(frozen=True, slots=True)
class CodeFrame:
    """One frame of a user's call stack; ``code`` names its lines, None where they were not sent."""

    file: Words
    line: Count  # of the call
    code: Id | None = None  # the ``hash`` of a :class:`Code`


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of a user's code around a call. :func:`code_hash` makes its ``hash``.

    ``first_line`` is the number in the file of the first line of ``text``; ``cut`` says that the
    source has more lines than were kept.
    """

    hash: Annotated[Id, PartOfKey()]
    file: Words
    text: Quote
    first_line: Count
    cut: bool = False


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """What one worker did for a computation: task runs that finished or failed, and what they
    computed.

    ``usual_seconds`` is what as many runs of the same task groups took on all workers, on average
    until then; a run that failed counts as usual. ``longest`` is the longest of its runs.
    """

    worker: Words  # its address
    runs: Count
    seconds: Seconds
    usual_seconds: Seconds
    longest: Seconds


@dataclass(frozen=True, slots=True)
class Computation:
    """What one call to compute, persist or submit set going.

    ``states`` counts its tasks by Dask's state, ``seconds`` sums what its tasks spent by action
    (``compute``, ``transfer``, ``disk-read``, ``disk-write``; as ``other`` what Dask calls the last
    two while workers read or wrote nothing). ``completed`` and ``erred`` count task runs that ended
    so: how many tasks are done is :func:`tasks_done`, for one whose result was lost runs again.
    ``retried`` counts runs that were repeated after they failed. After the computation's end all of
    these stay as they were: of tasks that run again then, as their results were lost or released,
    ``completed_later`` counts the runs that ended in memory, and ``seconds_later`` are the seconds
    of all of these runs, whatever they were spent on. ``frames`` is
    the user's call stack, outermost first: None where it was refused, empty where none is known.
    ``trace_id`` is the W3C id (32 hex digits) of its trace. ``user`` is whose client sent it,
    ``unknown`` or ``unregistered client …`` where nobody said, see
    :class:`daskscope.observe.cluster.users.Users`.

    ``ended_at`` is when the last of its tasks ended; None while one has something to do. It is
    ``running`` for a second more, in which a loop may submit another.

    ``lost_runs`` counts runs until its end that ended with their worker: those that its last
    heartbeat named, those that had seceded, and at most one for each other thread: first those that
    were there when the most workers were lost, then those of the highest priority.
    ``blamed`` counts tasks that never ran because one that they needed had failed; ``blames`` says
    in which computations those were: their ids, and the prefix of one of theirs.

    ``cancelled`` counts tasks that were given up before they had run. ``annotations`` are those
    that the whole graph carries, as short texts: made around the call, not where a collection was
    built. ``graph_bytes`` is the size of the graphs as they came over the wire, None where it is
    not known.

    ``began_at`` is when the first of its tasks began to compute or to fetch, ``mostly_done_at``
    when 95 % of them had ended, once all have. ``largest_output`` is the size of its largest
    result, in bytes. ``first_runs`` counts runs that were the first of their prefix on a worker,
    which may have to import or to connect first, and ``first_seconds`` what they computed.
    ``workers`` is how many ran its tasks; ``worker_shares`` are a few of them, those that took
    longest beyond what is usual.

    ``worker_seconds`` are the thread-seconds of all workers by state, as of a :class:`Status`, from
    its start to its end, whatever else ran then; empty where they are not known. Likewise the bytes
    that workers wrote to disk (``spilled_bytes``), read back from there (``unspilled_bytes``), and
    sent to workers and clients (``transferred_bytes``): those of the whole cluster meanwhile, None
    where workers reported too little of it before they left. ``loop_interval`` is the longest
    interval between two turns of a worker's event loop, on average between two of its beats, and
    ``heartbeat_age`` the longest that a worker said nothing, both in seconds and once it has ended;
    ``host_load`` is the most load that a worker's host had for each of its cores.
    ``unrunnable_seconds`` is for how long it had tasks that no worker could run, as there was none
    or none had what they asked for. ``asks`` counts these by what they asked for, such as
    ``GPU=1``, or :data:`ANY_WORKER`.

    One without ``tasks`` is a graph that Dask made no task of: erred, as it could not be loaded on
    the scheduler (its failure has ``(graph)`` for a function), or cancelled, as it needs what is
    gone.
    """

    id: Annotated[PageId, PartOfKey()]
    status: ComputationStatus
    user: Name
    started_at: Timestamp
    stopped_at: Timestamp | None
    tasks: Count
    completed: Count
    erred: Count
    retried: Count
    states: Counts
    seconds: SecondsBy
    frames: Annotated[tuple[CodeFrame, ...], Entries(MAX_ENTRIES)] | None
    spans: Annotated[tuple[Name, ...], Entries(MAX_ENTRIES)]
    trace_id: Id | None = None
    cancelled: Count = 0
    annotations: Named = dataclasses.field(default_factory=dict)
    graph_bytes: Count | None = None
    ended_at: Timestamp | None = None
    lost_runs: Count = 0
    blamed: Count = 0
    blames: Named = dataclasses.field(default_factory=dict)
    began_at: Timestamp | None = None
    mostly_done_at: Timestamp | None = None
    largest_output: Count | None = None
    first_runs: Count | None = None
    first_seconds: Seconds | None = None
    workers: Count | None = None
    worker_shares: Annotated[tuple[WorkerShare, ...], Entries(MAX_ENTRIES)] = ()
    worker_seconds: SecondsBy = dataclasses.field(default_factory=dict)
    spilled_bytes: Count | None = None
    unspilled_bytes: Count | None = None
    transferred_bytes: Count | None = None
    loop_interval: Seconds | None = None
    heartbeat_age: Seconds | None = None
    host_load: Amount | None = None
    unrunnable_seconds: Seconds | None = None
    asks: Counts = dataclasses.field(default_factory=dict)
    completed_later: Count | None = None
    seconds_later: Seconds | None = None

    @property
    def done(self) -> int:
        """How many of its tasks are done."""
        return tasks_done(
            tasks=self.tasks,
            completed=self.completed,
            erred=self.erred,
            cancelled=self.cancelled,
            states=self.states,
            status=self.status,
        )


def tasks_done(
    *,
    tasks: int,
    completed: int,
    erred: int,
    states: Mapping[str, int],
    status: ComputationStatus,
    cancelled: int = 0,
) -> int:
    """Return how many tasks of a computation, or of a group of one, are done.

    ``status`` is the computation's own.

    A task is done when it has ended in memory and has nothing to do any more; whether Dask has
    released or forgotten it since is all the same. One whose result is lost with a worker, or was
    released and is needed after all, is not done until it has run again.

    All that are in ``memory`` are done. Of others there are at most as many as

    - further runs ended in memory (``completed``);
    - tasks are ``released`` or ``forgotten`` now, but for those that erred and were cancelled. Once
      a computation has ended it is all but those: what Dask has run then was done before, and its
      result was lost since. Of one that has finished, so was what erred.

    The fewer of these is the number, unless two things come together: some tasks ran again, and
    others never will, because a task that they need erred and Dask has forgotten it. They look like
    released ones. Dask does not report cancelled tasks by group, so they look the same there.
    """
    memory, erred_now = states.get("memory", 0), states.get("erred", 0)
    if status == "finished":
        erred_now = erred = cancelled = 0
    most = tasks
    if status == "running":
        gone = states.get("released", 0) + states.get("forgotten", 0)
    else:
        gone = tasks - memory - erred_now
        # What was cancelled may be needed after all, by others.
        most -= cancelled
    # Of those that erred, Dask has forgotten some.
    gone -= max(erred - erred_now, 0) + cancelled
    # Some may be in memory without a run: a client sent their data.
    return max(min(memory + max(min(completed - memory, gone), 0), most), 0)


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """The tasks of one computation that do the same thing.

    Tasks with keys of their own (``submit``, ``delayed``) are joined by prefix, so ``name`` is the
    prefix there; elsewhere it is the prefix and a hash, for a key never leaves the cluster.
    ``dependencies`` are names of groups. ``types`` counts results by the name of their type.
    ``durations`` is the histogram of the compute seconds of runs that finished, one count per
    bucket of :data:`daskscope.names.DURATION_BOUNDS` and one for what lies above the last;
    ``shortest`` and ``longest`` are of the same runs. Groups beyond the
    plugin's bound are joined as ``other``. ``largest_output`` is the size of the largest result;
    ``first_runs`` and ``first_seconds`` are as of a :class:`Computation`. ``tokenized``: Dask's
    name of the group ends with its token of what the tasks do and of their inputs, so groups of the
    same ``name`` do the same on the same inputs. After the computation's end nothing changes but
    ``states``.
    """

    computation: Annotated[Id, PartOfKey()]
    name: Annotated[Name, PartOfKey()]
    prefix: Name
    tasks: Count
    completed: Count
    erred: Count
    states: Counts
    seconds: SecondsBy
    output_bytes: Count
    dependencies: Annotated[tuple[Name, ...], Entries(MAX_ENTRIES)]
    durations: Annotated[tuple[Count, ...], Entries(MAX_ENTRIES)]
    shortest: Seconds | None
    longest: Seconds | None
    started_at: Timestamp | None
    stopped_at: Timestamp | None
    types: Counts = dataclasses.field(default_factory=dict)
    retried: Count = 0
    largest_output: Count | None = None
    first_runs: Count | None = None
    first_seconds: Seconds | None = None
    tokenized: bool | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """What the workers' threads did for the tasks of one prefix.

    ``seconds`` are thread-seconds since the plugin started, by activity: ``thread-cpu``,
    ``thread-noncpu``, ``disk-read``, ``disk-write``, ``transfer``, ``serialize``, ``deserialize``,
    ``compress``, ``decompress``, ``executor``, ``running`` (of tasks that have not ended),
    ``other``, ``failed``, ``cancelled`` (and of runs that Dask rescheduled, as its workers report
    both together), ``lost`` (of tasks whose worker left before they ended) and, once the cluster
    has stopped, ``unsplit`` (of runs that ended after their worker's last heartbeat). The prefix
    ``""`` holds what belongs to none: ``idle`` (no task was assigned to the thread), ``paused``,
    ``transfer`` (its task waited for data) and ``unattributed`` (it waited for anything else, or
    its worker left and had not reported it). All rows together add up to threads times time.
    """

    prefix: Annotated[Name, PartOfKey()]
    seconds: SecondsBy


@dataclass(frozen=True, slots=True)
class Failure:
    """Equal exceptions of one computation.

    ``fingerprint`` is the same for the same failure on every cluster: a hash over ``type``,
    ``function`` and the traceback's frames, versioned by its prefix. ``message`` and ``traceback``
    are those of the first one; None where they were refused, or where Dask has none. Above its own
    traceback stand those of what led to it, as Python writes them. ``retried`` says how many of
    ``count`` Dask ran again.
    """

    computation: Annotated[Id | None, PartOfKey()]
    fingerprint: Annotated[PageId, PartOfKey()]
    type: Words
    function: Words
    message: Quote | None
    traceback: Quote | None
    count: Count
    first_at: Timestamp
    last_at: Timestamp
    worker: Words | None
    retried: Count = 0


@dataclass(frozen=True, slots=True)
class WorkerLoss:
    """A worker that left.

    ``processing`` counts the tasks that it had been given, ``tasks`` the same by prefix;
    ``lifetime`` is in seconds. ``memory_used`` is of its last beat, at ``last_seen_at``;
    ``nanny_memory`` what its nanny saw when it ended it for its memory, and ``peak_memory`` the
    most that its process is known to have had. ``computations`` counts runs that ended with it, by
    the ids of their computations: see ``lost_runs`` there. ``deployment`` says how the worker was
    started, as that of a cluster: the id of its batch job, its pod. ``log`` are its last lines:
    None where they were refused, never came, or so many workers left at once that there was no room
    for them.
    """

    id: Annotated[Name, PartOfKey()]
    address: Words
    name: Name
    at: Timestamp
    reason: Words
    expected: bool
    processing: Count
    memory_used: Count | None
    lifetime: Seconds
    last_seen_at: Timestamp | None = None
    memory_limit: Count | None = None
    nanny_memory: Count | None = None
    tasks: Counts = dataclasses.field(default_factory=dict)
    log: Annotated[tuple[Words, ...], Entries(MAX_ENTRIES), Encrypted()] | None = None
    peak_memory: Count | None = None
    computations: Counts = dataclasses.field(default_factory=dict)
    deployment: Named = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """An allow-listed event.

    ``message`` is JSON text; ``cut`` says that there was more of it: characters, items or levels.
    """

    id: Annotated[Name, PartOfKey()]
    at: Timestamp
    topic: Words
    message: Quote
    cut: bool = False


@dataclass(frozen=True, slots=True)
class ProfileLine:
    """A line of code that was seen running. ``text`` is the line itself, None where refused."""

    file: Words
    function: Words
    line: Count
    text: Text | None


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the workers' threads were, sampled over one interval.

    A tree in columns: node ``i`` is a call of ``lines[line[i]]`` below node ``parent[i]`` (-1: a
    root), seen ``samples[i]`` times, its callees included. A parent stands before its children.
    ``seconds`` estimates the thread-seconds of all samples; ``cut`` says that small nodes were left
    out. ``unsampled`` are the thread-seconds of tasks that no sample was taken of, as while a call
    holds Python's lock (GIL): None where that is not known.
    """

    id: Annotated[Name, PartOfKey()]
    started_at: Timestamp
    stopped_at: Timestamp
    workers: Count
    seconds: Seconds
    lines: Annotated[tuple[ProfileLine, ...], Entries(MAX_ROWS), Encrypted()]
    parent: Annotated[tuple[Annotated[int, Between(-1, MAX_COUNT)], ...], Entries(MAX_ROWS)]
    line: Annotated[tuple[Count, ...], Entries(MAX_ROWS)]
    samples: Annotated[tuple[Count, ...], Entries(MAX_ROWS)]
    cut: bool = False
    unsampled: Seconds | None = None


#: The columns of a :class:`TaskStream`, in their order.
STREAM_COLUMNS = (
    *("worker", "prefix", "outcome", "start", "length"),
    *("count", "seconds", "longest", "transfer", "disk"),
)
#: What ``outcome`` refers to, by index: Dask ran it again where it was ``retried``.
STREAM_OUTCOMES = ("finished", "erred", "retried")
#: The unit of its times, in seconds.
STREAM_UNIT = 1e-4


@dataclass(frozen=True, slots=True)
class TaskStream:
    """The task runs that ended in one interval.

    ``columns`` are those of :data:`STREAM_COLUMNS`, packed by :func:`pack_columns`. An entry with a
    ``count`` of 1 is a run: its ``start`` is that of its computing, in :data:`STREAM_UNIT` after
    the entry before it (the first: after ``started_at``), ``length`` is how long it computed, and
    ``transfer`` and ``disk`` are what its transfers and its reads and writes on disk took; its
    ``seconds`` and ``longest`` are 0, for both are its length. Where there were too many runs,
    an entry is ``count`` runs of one prefix on one worker, merged: it is as long as from the start
    of the first to the end of the last; ``seconds`` are the sum of their compute times, and
    ``longest`` is the longest. The slowest runs, and failed ones, are merged last. ``worker`` and
    ``prefix`` are indices of ``workers`` (addresses; ``""``: several) and ``prefixes``.
    ``outcome`` is an index of :data:`STREAM_OUTCOMES`. ``merged`` says how many of the ``runs`` are
    merged.
    """

    id: Annotated[Name, PartOfKey()]
    started_at: Timestamp
    stopped_at: Timestamp
    runs: Count
    merged: Count
    workers: Annotated[tuple[Words, ...], Entries(MAX_STREAM)]
    prefixes: Annotated[tuple[Name, ...], Entries(MAX_STREAM)]
    columns: Annotated[str, Length(MAX_COLUMNS, "[A-Za-z0-9+/]*={0,2}")]


@dataclass(frozen=True, slots=True)
class Shutdown:
    """A shutdown that was asked for, and where it stands. ``id`` is that of the command.

    ``requested_by`` names who asked: a user, a policy, or ``idle.timeout`` of the settings.
    ``closes_at`` is the end of its grace. ``detail`` says in words why it is in this state.
    """

    id: Annotated[Name, PartOfKey()]
    requested_by: Words
    state: ShutdownState
    at: Timestamp
    closes_at: Timestamp | None
    detail: Text


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One beat: ``POST /api/v1/heartbeats``.

    ``seq`` grows over a cluster's life. ``drops`` counts what the plugin had to leave out, by kind,
    since it started.
    """

    protocol: Annotated[str, Length(40)]
    seq: Count
    phase: Phase
    sent_at: Timestamp
    cluster: Cluster
    status: Status
    computations: Annotated[tuple[Computation, ...], Entries(MAX_ROWS)] = ()
    task_groups: Annotated[tuple[TaskGroup, ...], Entries(MAX_ROWS)] = ()
    failures: Annotated[tuple[Failure, ...], Entries(MAX_ROWS)] = ()
    worker_losses: Annotated[tuple[WorkerLoss, ...], Entries(MAX_ROWS)] = ()
    events: Annotated[tuple[Event, ...], Entries(MAX_ROWS)] = ()
    code: Annotated[tuple[Code, ...], Entries(MAX_ROWS)] = ()
    activities: Annotated[tuple[Activity, ...], Entries(MAX_ROWS)] = ()
    profiles: Annotated[tuple[Profile, ...], Entries(MAX_ROWS)] = ()
    task_streams: Annotated[tuple[TaskStream, ...], Entries(MAX_ENTRIES)] = ()
    shutdowns: Annotated[tuple[Shutdown, ...], Entries(MAX_ROWS)] = ()
    drops: Counts = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Command:
    """Something that the service asks of a cluster. Sent until a :class:`Shutdown` answers its id.

    ``action`` is ``shutdown``, or ``call off`` for the shutdown of that id. ``grace`` is the least
    number of seconds between its announcement and the close; None leaves it to the cluster's own
    settings. Unless ``even_if_busy``, work that arrives meanwhile calls it off.
    """

    id: str
    action: Literal["shutdown", "call off"]
    requested_by: str
    reason: str
    grace: float | None = None
    even_if_busy: bool = False


@dataclass(frozen=True, slots=True)
class Correction:
    """Something of a beat that was not stored as it was sent.

    ``field`` is its place, a JSON path, and ``why`` says what was wrong. It was ``left_out``, with
    its row if it is in one; or the nearest value that is within bounds was stored.
    """

    field: str
    why: str
    left_out: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """The service's answer, sent once the beat is stored for good.

    ``interval`` is the least number of seconds until the next beat that the service wants to see;
    ``code_wanted`` names the code that it lacks; ``url`` is the cluster's page. ``corrections`` are
    the first of those that were made, and ``rows_left_out`` counts all rows that were not stored.
    """

    server_time: float
    interval: float
    code_wanted: tuple[str, ...] = ()
    url: str | None = None
    commands: tuple[Command, ...] = ()
    corrections: tuple[Correction, ...] = ()
    rows_left_out: int = 0


#: Pairs of fields by class: the second is at least the first, where both are there. A receiver
#: takes the first for both, and says so.
IN_ORDER: dict[type, tuple[tuple[str, str], ...]] = {
    Computation: (("started_at", "stopped_at"),),
    TaskGroup: (("shortest", "longest"), ("started_at", "stopped_at")),
    Failure: (("first_at", "last_at"),),
    Profile: (("started_at", "stopped_at"),),
    TaskStream: (("started_at", "stopped_at"),),
}


def is_time(field: str) -> bool:
    """Return whether a field is a time, by its name: in answers of the API it is ISO 8601."""
    return field == "at" or field.endswith("_at")


def key_of(kind: type) -> Callable[[Any], Hashable]:
    """Return a function that returns the key of a row of ``kind``."""
    hints = typing.get_type_hints(kind, include_extras=True)
    notes = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return attrgetter(*(name for name in notes if PartOfKey() in notes[name]))
