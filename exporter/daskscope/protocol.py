"""Heartbeat and reply: the contract between the plugin and the service.

These dataclasses are the only definition of the wire format. The plugin sends them as JSON
(:func:`encode`), the service validates a body against the same classes. Standard library only.

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
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

#: ``major.minor``. A service answers a beat of another major number with a 4xx that says so.
PROTOCOL = "1.0"

#: The largest heartbeat that a service accepts, in bytes, after decompression.
MAX_BEAT_BYTES = 4 * 1024 * 1024

#: The most characters that a name may have on the wire: of a task group, a topic, a tag, a worker.
MAX_NAME = 300

#: The most characters that one text (message, traceback, code, event) may have on the wire.
MAX_TEXT = 20_000

Phase = Literal["start", "beat", "stop"]

#: What became of a computation. ``lost`` is not among them: only the service can tell, by silence.
ComputationStatus = Literal["running", "finished", "erred", "cancelled"]

#: Where a shutdown stands: told to whoever watches, given up because work came, closing, or failed.
ShutdownState = Literal["announced", "called off", "closing", "failed"]


@dataclass(frozen=True, slots=True)
class Environment:
    """What the scheduler runs on. ``packages`` maps a package's name to its version."""

    python: str
    python_path: str
    operating_system: str
    architecture: str
    packages: dict[str, str]


@dataclass(frozen=True, slots=True)
class Prices:
    """What an hour costs, in ``currency`` (ISO 4217).

    ``per_hour`` maps what is paid for (``cluster``, ``worker``, ``thread``, ``gpu``, ``gib`` of
    worker memory) to the price of one of it for an hour.
    """

    currency: str
    per_hour: dict[str, float]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A package of which not all have the same version. Key: ``package``, or ``python``.

    ``scheduler`` is the version there, ``workers`` and ``clients`` count those that have each
    version; one that lacks the package has the version ``none``.
    """

    package: str
    scheduler: str
    workers: dict[str, int]
    clients: dict[str, int]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Who and what: all that does not change by the minute. Key: ``id``.

    ``kind`` says how it was started, for example ``LocalCluster`` or ``dask scheduler``.
    ``user`` is who registered it first or, with a preload, who runs the scheduler; ``host`` is the
    scheduler's, whoever registered.
    ``deployment`` says what the environment tells of where it runs: names such as ``slurm.job.id``,
    ``k8s.pod.name``, ``gateway.cluster.name``. ``prices`` are None where none are set.
    ``idle_timeout`` is the user's own setting, after which the cluster closes itself. ``settings``
    are those that decide what is told of the cluster, and how often, as texts.
    """

    id: str
    name: str
    kind: str
    user: str
    host: str
    started_at: float
    interval: float
    environment: Environment
    tags: dict[str, str]
    workspace: str | None = None
    deployment: dict[str, str] = dataclasses.field(default_factory=dict)
    prices: Prices | None = None
    idle_timeout: float | None = None
    settings: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SchedulerLoad:
    """What the scheduler's process uses. ``cpu`` in cores, ``memory`` in bytes.

    ``lag`` is the longest that its event loop kept anyone waiting since the last beat, in seconds.
    """

    cpu: float
    memory: int
    lag: float


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPUs of the ``workers`` that report one: Dask reads each worker's first.

    ``utilization`` is the mean, from 0 to 1.
    """

    workers: int
    utilization: float
    memory_used: int
    memory_limit: int | None


@dataclass(frozen=True, slots=True)
class Status:
    """The cluster as it is at ``at``.

    ``worker_seconds`` are thread-seconds by state (``busy``, ``idle``, ``paused``) since the plugin
    started. ``tasks`` counts the tasks that the scheduler holds, by Dask's state; a state that is
    left out was not counted, as it takes too long where Dask tells thousands of prefixes apart.
    ``idle_seconds`` is None while the cluster is at work. The peaks are the highest values seen at
    any beat. ``stopped_at`` is set once the scheduler has closed.

    ``held_by`` counts what there is to keep a cluster for, by kind; what there is none of is left
    out. Dask's own idleness counts only ``tasks`` (``processing``, ``queued``, ``unrunnable``), not
    ``calls`` of clients that run on the scheduler or by way of it (``client.run``), ``clients``,
    ``results`` in memory, ``actors`` and ``workers starting``. Where tasks in memory were not
    counted, each worker's share of the ``results`` is, so that copies count too.

    ``cost`` and ``idle_cost`` are what the cluster cost since the plugin started, and how much of
    it while idle, by its prices; None without prices. ``gpu`` is None where no worker reports one.
    ``mismatches`` are packages of which the scheduler, workers and clients that are connected now
    do not all have the same version.
    """

    at: float
    workers: int
    threads: int
    memory_used: int
    memory_limit: int
    worker_seconds: dict[str, float]
    tasks: dict[str, int]
    clients: int
    idle_seconds: float | None
    peak_workers: int
    peak_threads: int
    peak_memory_used: int
    stopped_at: float | None = None
    held_by: dict[str, int] = dataclasses.field(default_factory=dict)
    scheduler: SchedulerLoad | None = None
    gpu: Gpu | None = None
    cost: float | None = None
    idle_cost: float | None = None
    mismatches: tuple[Mismatch, ...] = ()


@dataclass(frozen=True, slots=True)
class CodeFrame:
    """One frame of the user's call stack. ``line`` is the calling line's number in the file.

    ``code`` is the key of a :class:`Code`, or None where its lines are not kept any more.
    """

    file: str
    line: int
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of a user's code around a call. Key: ``hash``, made by :func:`code_hash`.

    ``first_line`` is the number in the file of the first line of ``text``; ``cut`` says that the
    source has more lines than were kept.
    """

    hash: str
    file: str
    text: str
    first_line: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Computation:
    """What one call to compute, persist or submit set going. Key: ``id``.

    ``states`` counts its tasks by Dask's state, ``seconds`` sums what its tasks spent by action
    (``compute``, ``transfer``, ``disk-read``, ``disk-write``). ``completed`` and ``erred`` count
    task runs that ended so: how many tasks are done is :func:`tasks_done`, for one whose result was
    lost runs again. ``retried`` counts runs that were repeated after they failed. ``frames`` is
    the user's call stack, outermost first: None where it was refused, empty where none is known.
    ``trace_id`` is the W3C id (32 hex digits) of its trace. ``user`` is whose client sent it,
    ``unknown`` where nobody said (:class:`daskscope.observe.users.Users`).

    ``cancelled`` counts tasks that were given up before they had run. ``annotations`` are those
    that the whole graph carries, as short texts: made around the call, not where a collection was
    built. ``graph_bytes`` is the size of the graphs as they came over the wire, None where it is
    not known.

    One without ``tasks`` is a graph that Dask made no task of: erred, as it could not be loaded on
    the scheduler (its failure has ``(graph)`` for a function), or cancelled, as it needs what is
    gone.
    """

    id: str
    status: ComputationStatus
    user: str
    started_at: float
    stopped_at: float | None
    tasks: int
    completed: int
    erred: int
    retried: int
    states: dict[str, int]
    seconds: dict[str, float]
    frames: tuple[CodeFrame, ...] | None
    spans: tuple[str, ...]
    trace_id: str | None = None
    cancelled: int = 0
    annotations: dict[str, str] = dataclasses.field(default_factory=dict)
    graph_bytes: int | None = None

    @property
    def done(self) -> int:
        """How many of its tasks are done."""
        return tasks_done(
            tasks=self.tasks,
            completed=self.completed,
            erred=self.erred,
            cancelled=self.cancelled,
            states=self.states,
            running=self.status == "running",
        )


def tasks_done(
    *,
    tasks: int,
    completed: int,
    erred: int,
    states: Mapping[str, int],
    running: bool,
    cancelled: int = 0,
) -> int:
    """Return how many tasks of a computation, or of a group of one, are done.

    A task is done when it has ended in memory and has nothing to do any more; whether Dask has
    released or forgotten it since is all the same. One whose result is lost with a worker, or was
    released and is needed after all, is not done until it has run again.

    All that are in ``memory`` are done. Of others there are at most as many as

    - further runs ended in memory (``completed``);
    - tasks are ``released`` or ``forgotten`` now, but for those that erred and were cancelled. Once
      a computation has ended it is all but those: what Dask has run then was done before, and its
      result was lost as the cluster closed.

    The fewer of these is the number, unless two things come together: some tasks ran again, and
    others never will, for what they need erred and Dask has forgotten them. Those cannot be told
    from released ones. Of groups nobody tells what was cancelled, so it is the same with that.
    """
    memory, erred_now = states.get("memory", 0), states.get("erred", 0)
    if running:
        gone = states.get("released", 0) + states.get("forgotten", 0)
    else:
        gone = tasks - memory - erred_now
    # Of those that erred, Dask has forgotten some.
    gone -= max(erred - erred_now, 0) + cancelled
    # Some may be in memory without a run: a client sent their data.
    return min(memory + max(min(completed - memory, gone), 0), tasks)


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """The tasks of one computation that do the same thing. Key: ``computation``, ``name``.

    Tasks with keys of their own (``submit``, ``delayed``) are joined by prefix, so ``name`` is the
    prefix there; elsewhere it is the prefix and a hash, for a key never leaves the cluster.
    ``dependencies`` are names of groups. ``types`` counts results by the name of their type.
    ``durations`` is the histogram of the tasks' compute seconds, one count per bucket of
    :data:`daskscope.names.DURATION_BOUNDS` and one for what lies above the last. Groups beyond the
    plugin's bound are joined as ``other``.
    """

    computation: str
    name: str
    prefix: str
    tasks: int
    completed: int
    erred: int
    states: dict[str, int]
    seconds: dict[str, float]
    output_bytes: int
    dependencies: tuple[str, ...]
    durations: tuple[int, ...]
    shortest: float | None
    longest: float | None
    started_at: float | None
    stopped_at: float | None
    types: dict[str, int] = dataclasses.field(default_factory=dict)
    retried: int = 0


@dataclass(frozen=True, slots=True)
class Activity:
    """What the workers' threads did for the tasks of one prefix. Key: ``prefix``.

    ``seconds`` are thread-seconds since the plugin started, by activity: ``thread-cpu``,
    ``thread-noncpu``, ``disk-read``, ``disk-write``, ``transfer``, ``serialize``, ``deserialize``,
    ``compress``, ``decompress``, ``executor``, ``running`` (of tasks that have not ended),
    ``other``, ``failed`` and ``cancelled``. The prefix ``""`` holds what belongs to none: ``idle``
    (no task was assigned to the thread), ``paused``, ``transfer`` (its task waited for data) and
    ``unattributed`` (it waited for anything else, or its worker was lost before it told). All rows
    together add up to threads times time.
    """

    prefix: str
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Failure:
    """Equal exceptions of one computation. Key: ``computation``, ``fingerprint``.

    ``fingerprint`` is the same for the same failure on every cluster: a hash over ``type``,
    ``function`` and the traceback's frames, versioned by its prefix. ``message`` and ``traceback``
    are those of the first one; None where they were refused, or where Dask has none. Above its own
    traceback stand those of what led to it, as Python writes them. ``retried`` says how many of
    ``count`` Dask ran again.
    """

    computation: str | None
    fingerprint: str
    type: str
    function: str
    message: str | None
    traceback: str | None
    count: int
    first_at: float
    last_at: float
    worker: str | None
    retried: int = 0


@dataclass(frozen=True, slots=True)
class WorkerLoss:
    """A worker that left. Key: ``id``.

    ``processing`` counts the tasks that it had been given, ``tasks`` the same by prefix;
    ``lifetime`` is in seconds. ``memory_used`` is of its last beat, at ``last_seen_at``;
    ``nanny_memory`` what its nanny saw when it ended it for its memory. ``log`` are its last lines:
    None where they were refused, never came, or so many workers left at once that there was no room
    for them.
    """

    id: str
    address: str
    name: str
    at: float
    reason: str
    expected: bool
    processing: int
    memory_used: int | None
    lifetime: float
    last_seen_at: float | None = None
    memory_limit: int | None = None
    nanny_memory: int | None = None
    tasks: dict[str, int] = dataclasses.field(default_factory=dict)
    log: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An allow-listed event. Key: ``id``.

    ``message`` is JSON text; ``cut`` says that there was more of it: characters, items or levels.
    """

    id: str
    at: float
    topic: str
    message: str
    cut: bool = False


@dataclass(frozen=True, slots=True)
class ProfileLine:
    """A line of code that was seen running. ``text`` is the line itself, None where refused."""

    file: str
    function: str
    line: int
    text: str | None


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the workers' threads were, sampled over one interval. Key: ``id``.

    A tree in columns: node ``i`` is a call of ``lines[line[i]]`` below node ``parent[i]`` (-1: a
    root), seen ``samples[i]`` times, its callees included. A parent stands before its children.
    ``seconds`` estimates the thread-seconds of all samples; ``cut`` says that small nodes were left
    out.
    """

    id: str
    started_at: float
    stopped_at: float
    workers: int
    seconds: float
    lines: tuple[ProfileLine, ...]
    parent: tuple[int, ...]
    line: tuple[int, ...]
    samples: tuple[int, ...]
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Shutdown:
    """A shutdown that was asked for, and where it stands. Key: ``id``, that of the command.

    ``requested_by`` names who asked: a user, a policy, or ``idle.timeout`` of the settings.
    ``closes_at`` is the end of its grace. ``detail`` says in words why it is in this state.
    """

    id: str
    requested_by: str
    state: ShutdownState
    at: float
    closes_at: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One beat: ``POST /api/v1/heartbeats``.

    ``seq`` grows over a cluster's life. ``drops`` counts what the plugin had to leave out, by kind,
    since it started.
    """

    protocol: str
    seq: int
    phase: Phase
    sent_at: float
    cluster: Cluster
    status: Status
    computations: tuple[Computation, ...] = ()
    task_groups: tuple[TaskGroup, ...] = ()
    failures: tuple[Failure, ...] = ()
    worker_losses: tuple[WorkerLoss, ...] = ()
    events: tuple[Event, ...] = ()
    code: tuple[Code, ...] = ()
    activities: tuple[Activity, ...] = ()
    profiles: tuple[Profile, ...] = ()
    shutdowns: tuple[Shutdown, ...] = ()
    drops: dict[str, int] = dataclasses.field(default_factory=dict)


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
class Reply:
    """The service's answer, sent once the beat is stored for good.

    ``interval`` is the least number of seconds until the next beat that the service wants to see;
    ``code_wanted`` names the code that it lacks; ``url`` is the cluster's page.
    """

    server_time: float
    interval: float
    code_wanted: tuple[str, ...] = ()
    url: str | None = None
    commands: tuple[Command, ...] = ()


def code_hash(file: str, first_line: int, cut: bool, text: str) -> str:
    """Return the key of a :class:`Code`: the SHA-256 of all its other fields, in hex."""
    return hashlib.sha256(_utf8(f"{file}\n{first_line}\n{cut}\n{text}")).hexdigest()


def encode(message: Heartbeat | Reply) -> bytes:
    """Return ``message`` as UTF-8 JSON."""
    return _utf8(json.dumps(message, default=_fields, separators=(",", ":"), ensure_ascii=False))


def decode_reply(body: bytes, drops: Counter[str] | None = None) -> Reply:
    """Return the reply in ``body``. Raises ValueError if it is not one.

    Commands that are not understood are left out, and counted in ``drops``.
    """
    try:
        fields: dict[str, Any] = json.loads(body)
        return Reply(
            server_time=float(fields["server_time"]),
            interval=float(fields["interval"]),
            code_wanted=tuple(map(str, fields.get("code_wanted", ()))),
            url=_address(fields.get("url")),
            commands=_commands(fields.get("commands"), Counter() if drops is None else drops),
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a reply of a daskscope service: {error!r}") from error


def _address(found: Any) -> str | None:
    # It becomes a link in notebooks: anything else than a page's address might be run there.
    is_one = isinstance(found, str) and found.startswith(("https://", "http://"))
    return found if is_one and found.isprintable() else None


def _commands(found: Any, drops: Counter[str]) -> tuple[Command, ...]:
    if found is None:
        return ()  # of a service that has none to give
    commands = [_command(fields) for fields in found] if isinstance(found, list) else [None]
    understood = tuple(command for command in commands if command is not None)
    if len(understood) < len(commands):
        drops["unknown command"] += len(commands) - len(understood)
    return understood


def _command(fields: Any) -> Command | None:
    # To the letter: what it asks for cannot be undone.
    if not isinstance(fields, dict) or fields.get("action") not in ("shutdown", "call off"):
        return None
    texts = [fields.get(name) for name in ("id", "requested_by", "reason")]
    if not all(isinstance(text, str) and len(text) <= MAX_TEXT for text in texts):
        return None
    grace, even_if_busy = fields.get("grace"), fields.get("even_if_busy", False)
    number = isinstance(grace, int | float) and not isinstance(grace, bool)
    # Compared, not converted: a whole number may be beyond what a float holds.
    if grace is not None and not (number and 0 <= grace <= sys.float_info.max):
        return None
    if not isinstance(even_if_busy, bool) or not 0 < len(fields["id"]) <= MAX_NAME:
        return None
    return Command(
        id=fields["id"],
        action=fields["action"],
        requested_by=fields["requested_by"][:MAX_NAME],
        reason=fields["reason"],
        grace=None if grace is None else float(grace),
        even_if_busy=even_if_busy,
    )


def _utf8(text: str) -> bytes:
    # A file name that is no UTF-8 is a lone surrogate in Python: it must not stop all that waits.
    return text.encode(errors="replace")


def _fields(value: Any) -> dict[str, Any]:
    # One level at a time: json calls it again for what lies inside (asdict would copy everything).
    if not dataclasses.is_dataclass(value):
        raise TypeError(f"{type(value).__name__} is not part of the protocol")
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
