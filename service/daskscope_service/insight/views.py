"""The immutable rows that pages, the API and CSV files show.

They have the fields of stored rows, and those that :mod:`daskscope_service.queries` adds.
"""

from __future__ import annotations

from collections.abc import Mapping

from daskscope_service.db.readable import Item
from daskscope_service.db.row_types import ClusterRow, ComputationRow, ListedClusterRow
from daskscope_service.db.row_values import Row


class JudgedCluster(ListedClusterRow, frozen=True):
    """A cluster with its verdict, and with its own prices or else those of its workspace."""

    status: str
    sentence: str
    duration: float
    price_source: str | None


class ClusterInQuestion(JudgedCluster, frozen=True):
    """A running or silent cluster, with how many workers it lost in the last day."""

    losses: int


class ListedCluster(JudgedCluster, frozen=True):
    """A cluster in a list, with its numbers of computations and failures, and its first finding."""

    computations: int
    failures: int
    cause: Item | None

    @property
    def idle_share(self) -> float | None:
        """The share of the threads' time, 0 to 1, in which they were idle."""
        return idle_share(self.worker_seconds)


class ClusterView(ClusterRow, frozen=True):
    """A cluster with all its columns, its verdict, counts, and first finding."""

    status: str
    sentence: str
    duration: float
    computations: int
    failures: int
    cause: Item | None
    price_source: str | None


class ComputationView(ComputationRow, frozen=True):
    """A computation with its verdict, its title, its code, and its first finding (``cause``).

    ``status`` is ``lost`` if its cluster went away while it ran. ``call`` is the statement that
    started it, None if that is not known. ``title`` is a name by which people recognise it, "" if
    nothing is known of it. ``waits`` says how many tasks wait for a worker, "" for none.
    """

    cluster_name: str
    done: int
    sentence: str
    duration: float
    silence: float
    waits: str
    call: str | None
    title: str
    cause: Item | None


class ComputationDetail(ComputationView, frozen=True):
    """A computation with its task groups, its failures, and the code in its ``frames``.

    Each frame has ``text``, ``first_line`` and ``cut`` of its code, None if the code was not sent,
    and ``unreadable`` if it cannot be decrypted. ``more_task_groups`` and ``more_failures`` say
    whether some were left out because there are very many.
    """

    task_groups: list[Item]
    more_task_groups: bool
    failures: list[Item]
    more_failures: bool


class JobRun(Row, frozen=True):
    """A computation as a run of its job.

    ``thread_seconds`` are those of all workers while it ran, ``task_seconds`` those that its tasks
    took. ``cost`` is in ``currency``, at the prices of ``price_source``. ``frames``, and ``on``,
    which is the row of its cluster, are there only for comparisons; else both are None.
    """

    cluster: str
    id: str
    user: str
    status: str
    started_at: float
    stopped_at: float | None
    ended_at: float | None
    began_at: float | None
    tasks: int
    completed: int
    erred: int
    retried: int
    cancelled: int
    states: dict[str, int]
    seconds: dict[str, float]
    worker_seconds: dict[str, float]
    workers: int | None
    largest_output: int | None
    spilled_bytes: int | None
    unspilled_bytes: int | None
    transferred_bytes: int | None
    host_load: float | None
    job: str | None
    frames: list[Item] | None
    cluster_name: str
    duration: float
    thread_seconds: float | None
    task_seconds: float
    cost: float | None
    currency: str | None
    price_source: str | None
    on: Item | None


class JobView(Row, frozen=True):
    """A job as it was last summarised, with the title, the user and the status of its newest run.

    ``given_name`` is the name that a user gave it in the service, None without one. ``call`` is
    that run's title, which tells jobs of one name apart. ``user`` and ``status`` are None if that
    run was removed a moment ago.
    """

    id: str
    level: str
    name: str
    first_at: float
    last_at: float
    last_cluster: str
    last_computation: str
    runs: int
    duration: float | None
    spread: float | None
    task_seconds: float | None
    cost: float | None
    currency: str | None
    price_source: str | None
    change: Item | None
    saves_most: Item | None
    title: str
    given_name: str | None
    call: str
    user: str | None
    status: str | None


class JobDetail(JobView, frozen=True):
    """A job with its newest runs, the oldest of them first. Its summary is made from these runs."""

    passed: int
    sentence: str
    changes: list[Item]
    run_list: list[Item]
    users: list[Item]
    findings: list[Item]
    receipt: Item | None
    corrections: list[Item]
    sizing: Item


class RepeatView(Row, frozen=True):
    """Work that ran more than once on the same inputs: task groups of the same computations.

    ``name`` is that of the first group, ``steps`` are the prefixes of all. ``seconds_again`` and
    ``cost_again`` leave the first run out. ``advice`` says what would have run it once.
    """

    name: str
    title: str
    steps: list[str]
    runs: int
    users: list[str]
    people: int
    clusters: int
    seconds_again: float
    cost_again: float | None
    currency: str | None
    first_at: float
    last_at: float
    last_cluster: str
    last_computation: str
    output_bytes: int
    instead: str
    advice: str
    sentence: str


class ShutdownView(Row, frozen=True):
    """A shutdown with its status. Fields of a request are None if the cluster decided by itself.

    ``detail`` is the cluster's answer, sent at ``answered_at``. ``open`` says whether the request
    can still be called off.
    """

    id: str
    cluster: str
    requested_by: str | None
    requested_at: float
    reason: str | None
    grace: float | None
    even_if_busy: bool
    expires_at: float | None
    delivered_at: float | None
    called_off_by: str | None
    called_off_at: float | None
    called_off_reason: str | None
    closes_at: float | None
    detail: str | None
    cluster_name: str
    open: bool
    answered_at: float | None
    status: str
    sentence: str


class ExceptionGroup(Row, frozen=True):
    """Equal failures of all clusters, with the texts of the last one.

    If a column cannot be decrypted, it is None, and ``unreadable`` holds the reason.
    """

    fingerprint: str
    count: int
    clusters: int
    first_at: float
    last_at: float
    type: str
    function: str
    message: str | None
    traceback: str | None
    unreadable: dict[str, str]
    users: list[str]


class RecentGroup(ExceptionGroup, frozen=True):
    """A group on the overview. It is ``new`` if it was never seen before the period shown."""

    new: bool


class ExceptionDetail(Row, frozen=True):
    """Equal failures of all clusters, and the newest of them as ``samples``."""

    fingerprint: str
    type: str
    function: str
    message: str | None
    count: int
    clusters: int
    first_at: float
    last_at: float
    samples: list[Item]
    unreadable: dict[str, str]
    users: list[str]


class UsageOfUser(Row, frozen=True):
    """The usage and cost of a user's clusters that have the same prices, in one period.

    ``period`` is the number of the period. ``thread_seconds`` is the time of all threads, and
    ``idle_seconds`` that of threads without a task. ``gib_seconds`` of memory and ``gpu_seconds``
    are None if the plugins were too old to report them. Costs are in the currency of ``prices``;
    ``price_source`` says who set these: "cluster", "workspace" or "list". Prices, costs and
    ``price_source`` are None if there are no prices.
    """

    gib_seconds: float | None
    gpu_seconds: float | None
    period: int
    user: str
    prices: Item | None
    clusters: int
    up_seconds: float
    thread_seconds: float
    idle_seconds: float
    cost: float | None
    idle_cost: float | None
    price_source: str | None


class ListedFinding(Row, frozen=True):
    """A stored finding. ``subject`` is cluster or computation; ``muted`` is the mute in force."""

    cluster: str
    id: str
    computation: str | None
    rule: str
    version: int
    position: int
    severity: str
    user: str
    at: float
    found_at: float
    sentence: str
    evidence: list[Item]
    actions: list[Item]
    seconds: float | None
    share: float | None
    cost: float | None
    currency: str | None
    price_source: str | None
    saving: Item | None
    confidence: str
    suppressed_by: str | None
    cluster_name: str
    muted: Item | None
    subject: str


class MuteInForce(Row, frozen=True):
    """A mute of a rule's findings: of a computation, of a whole cluster, or of all runs of a job.

    The other names are None; that of a computation's cluster is there, too.
    """

    id: str
    rule: str
    cluster: str | None
    computation: str | None
    job: str | None
    reason: str
    at: float
    by: str
    until_at: float


def idle_share(worker_seconds: Mapping[str, float]) -> float | None:
    """Return the share of ``idle`` in all threads' time, 0 to 1; None if there was no such time."""
    whole = sum(worker_seconds.values())
    return worker_seconds.get("idle", 0.0) / whole if whole else None
