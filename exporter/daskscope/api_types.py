"""The types of the answers of the service's HTTP API: the contract with its clients.

The service builds its answers and its OpenAPI document from these types, and
``daskscope.list_clusters`` and the other functions return them. Standard library only.

In JSON a time is text, ISO 8601 in UTC; in Python it is an aware datetime. Fields with times are
called ``at`` or ``…_at``; no other fields are. Durations are in seconds, sizes in bytes. None means
that a value was not measured, or not sent. New fields may be added: ignore those that you do not
know. Objects that are stored as a cluster sent them, such as its environment, may lack some fields.
A text that is encrypted with a key that the service lacks is None; ``unreadable`` names the field.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar

from daskscope import api_rows
from daskscope.api_rows import CodeFrame as CodeFrame
from daskscope.api_rows import Environment as Environment
from daskscope.api_rows import Gpu as Gpu
from daskscope.api_rows import Mismatch as Mismatch
from daskscope.api_rows import Prices as Prices
from daskscope.api_rows import ProfileLine as ProfileLine
from daskscope.api_rows import SchedulerLoad as SchedulerLoad
from daskscope.protocol import ComputationStatus

Item = TypeVar("Item")


class Page(TypedDict, Generic[Item]):
    """One page of a list. ``next`` is the ``cursor`` for the next page; None on the last page."""

    items: list[Item]
    next: str | None


#: Which prices were used: those of the cluster's settings, those of its workspace, those of the
#: machines by the operator's price list or by OpenCost, or list prices, which apply if there are no
#: others.
PriceSource = Literal["cluster", "workspace", "instances", "opencost", "list"]


class WorkspacePrices(TypedDict):
    """Prices per hour for clusters that set none themselves.

    ``source`` is list for list prices, which apply until someone sets others, and none if the
    workspace chose to show no costs. ``currency`` is None if such clusters have no costs.
    """

    source: Literal["workspace", "list", "none"]
    currency: str | None
    per_hour: dict[str, float]
    changed_at: datetime | None
    changed_by: str | None


class Threshold(TypedDict):
    """The value above or below which a rule reports a finding.

    A workspace may set a ``value`` from ``least`` to ``most`` instead of the ``default``.
    """

    name: str
    value: float
    default: float
    least: float
    most: float
    unit: str
    source: str


class Cluster(api_rows.Cluster, api_rows.Status):
    """A cluster with its status and its counts of computations and failures.

    ``status`` is lost if the cluster stopped reporting without a stop message, and ended if it did
    so while it was idle in its client's process; ``sentence`` describes the status in full.
    ``first_seen_at`` and ``last_seen_at`` are by the service's clock, all other times by the
    scheduler's. ``status_at`` is the time of the counts of workers, tasks and so on.
    ``worker_seconds`` is by state: busy, idle, paused. ``idle_seconds`` is None while the cluster
    works. ``held_by`` counts, by kind, what a shutdown would lose or interrupt. ``busy_by``
    describes the work because of which neither the cluster's ``idle_timeout`` nor a policy closes
    it: empty while it is idle, None from an older plugin, which does not detect all of it.
    ``idle_timeout`` is the cluster's setting, after which it closes itself; None without one.
    ``drops`` counts, by kind, items that the plugin left out because of a limit.
    ``failures`` counts exceptions; beyond 2⁵³, only its first fifteen digits are exact.
    ``cause`` is the most important finding, None if there is none. ``url`` is the cluster's page.
    Costs are estimates by ``prices``: the cluster's, else its workspace's, else list prices;
    ``price_source`` names which. ``gib_seconds`` and ``gpu_seconds`` are None from an older
    plugin: then an estimate covers threads only.
    ``settings`` are those that decide what the cluster reports; empty from an older plugin.
    """

    status: Literal["running", "stopped", "lost", "ended"]
    sentence: str
    duration: float
    computations: int
    failures: int
    cause: Cause | None
    price_source: PriceSource | None
    first_seen_at: datetime
    last_seen_at: datetime
    status_at: datetime
    drops: dict[str, int]
    url: str


class _Encrypted(TypedDict, total=False):
    # Missing where everything could be read: by field, why it could not, to follow "it is".
    unreadable: dict[str, str]


class WorkerLoss(api_rows.WorkerLoss, _Encrypted):
    """A worker that left its cluster.

    ``processing`` counts the tasks that were assigned to it, ``tasks`` the same by prefix.
    ``memory_used`` is the worker's memory at its last heartbeat; ``nanny_memory`` is the memory
    that its nanny measured when it ended the worker for using too much. ``log`` contains the
    worker's last log lines.
    """

    cluster: str


class Shutdown(api_rows.Shutdown):
    """A shutdown that a cluster announced, with its progress.

    ``closes_at`` is the end of the grace period.
    """

    cluster: str


class ShutdownCommand(TypedDict):
    """A shutdown that a user requested. ``sentence`` describes its ``status`` in full.

    ``answered_at`` and ``closes_at`` are by the cluster's clock, all other times by the service's.
    ``open`` is true while the shutdown can still be called off. ``grace`` is None if the cluster's
    settings decide the grace period. ``detail`` is the cluster's answer.
    """

    id: str
    cluster: str
    cluster_name: str
    status: Literal[
        "requested",
        "delivered",
        "announced",
        "closing",
        "done",
        "called off",
        "failed",
        "expired",
    ]
    sentence: str
    open: bool
    requested_by: str
    requested_at: datetime
    reason: str
    grace: float | None
    even_if_busy: bool
    expires_at: datetime
    delivered_at: datetime | None
    answered_at: datetime | None
    closes_at: datetime | None
    detail: str | None
    called_off_by: str | None
    called_off_at: datetime | None
    called_off_reason: str | None


class Activity(api_rows.Activity):
    """Thread-seconds by activity, for the tasks of one prefix; ``""`` is time without a task."""


class Measure(TypedDict):
    """A number that supports a finding. ``link`` is the part of the page that shows it, if any.

    ``text`` is the number with its unit, rounded for people: "286 MiB".
    """

    name: str
    value: float
    unit: str
    link: str | None
    text: str


class Action(TypedDict):
    """What to do about a finding; ``value`` is the number or the setting to use."""

    text: str
    value: str | None


class SavedMoney(TypedDict):
    """The money that an action saves: an estimate by the finding's prices."""

    low: float
    high: float
    currency: str
    formula: str


class Saving(TypedDict):
    """What an action saves, from ``low`` to ``high``, in ``unit``: seconds or money.

    ``money`` is the same in money; None without prices. ``text`` says it for people, with the
    formula.
    """

    low: float
    high: float
    unit: str
    formula: str
    money: SavedMoney | None
    text: str


class Mute(TypedDict):
    """A mute: a user hid a finding until ``until_at``, for a ``reason``.

    ``by`` is that user. Nobody is notified of a muted finding.
    """

    id: str
    reason: str
    until_at: datetime
    at: datetime
    by: str


class MuteInForce(Mute):
    """An active mute, and the findings that it hides: those of ``rule`` of one computation.

    If ``computation`` is None, the mute covers the cluster and all computations on it or, if
    ``cluster`` is None too, all runs of the ``job``. Else ``job`` is None.
    """

    rule: str
    cluster: str | None
    computation: str | None
    job: str | None


class Finding(TypedDict):
    """A cause that the service found, with its evidence.

    ``subject`` says whether the finding is about a computation or a cluster; ``at`` is when that
    began. ``severity`` is notice for a cause that cost too little for an alarm. ``seconds`` are
    lost thread-seconds, ``share`` is their share of the computation's thread-seconds, and ``cost``
    is an estimate of their cost, by prices of ``price_source``. All three are None if they are not
    known, or if the finding is not about time.
    ``suppressed_by`` is the rule whose finding explains this one, ``muted`` the active mute; None
    without one. ``version`` is the version of the rule.
    """

    rule: str
    version: int
    subject: Literal["computation", "cluster"]
    cluster: str
    computation: str | None
    user: str
    at: datetime
    severity: Literal["critical", "warning", "notice"]
    sentence: str
    evidence: list[Measure]
    actions: list[Action]
    seconds: float | None
    share: float | None
    cost: float | None
    currency: str | None
    price_source: PriceSource | None
    saving: Saving | None
    confidence: Literal["high", "medium"]
    suppressed_by: str | None
    muted: Mute | None


class Cause(TypedDict):
    """The most important finding of a computation or a cluster.

    In lists it is the stored one, which is up to a minute old while its subject runs.
    """

    rule: str
    severity: Literal["critical", "warning", "notice"]
    sentence: str


class ListedFinding(Finding):
    """A stored finding. The service computed it at ``found_at``; ``url`` is its page."""

    cluster_name: str
    found_at: datetime
    url: str


class Explanation(TypedDict):
    """The status of a cluster or a computation, and the cause of its problems.

    ``headline`` names both in one sentence; the first of the ``findings`` is the cause that it
    names. ``not_measured`` names, for each rule that could not decide, the measurement that was
    missing. ``url`` is the subject's page.
    """

    subject: Literal["computation", "cluster"]
    cluster: str
    computation: str | None
    status: str
    headline: str
    findings: list[Finding]
    not_measured: dict[str, str]
    url: str


class _Explained(TypedDict):
    headline: str
    findings: list[Finding]
    not_measured: dict[str, str]


class ClusterDetail(Cluster, _Explained):
    """A cluster, with the workers that left it, its shutdowns and the activities of its threads.

    ``headline`` names the cluster's status and the cause of its problems, as its page does. The
    first of the ``findings`` is that cause. ``not_measured`` names, for each rule that could not
    decide, the measurement that was missing.
    """

    worker_losses: list[WorkerLoss]
    shutdowns: list[Shutdown]
    activities: list[Activity]


class CodeFrameDetail(CodeFrame, _Encrypted):
    """A frame of a call stack with the lines of code around it.

    ``first_line`` is the line number of the first line of ``text``; ``cut`` is true if the source
    has more lines. All three are None if the code is not stored.
    """

    text: str | None
    first_line: int | None
    cut: bool | None


class _Computation(api_rows.Computation):
    cluster: str
    cluster_name: str
    status: Literal[ComputationStatus, "lost"]
    sentence: str
    duration: float
    done: int
    call: str | None
    title: str
    cause: Cause | None
    job: str | None
    url: str


class Computation(_Computation):
    """The work that one call to compute, persist or submit started.

    ``sentence`` describes its status in full. ``done`` counts tasks that ended in memory and have
    nothing left to do. ``completed``, ``erred`` and ``retried`` count task runs: those that ended
    in memory, failed, or were repeated after a failure. A task whose result was lost with a worker,
    or was released and is needed after all, runs again: ``completed`` minus ``done`` counts this.
    The counts, ``seconds`` and task groups are those of the computation until its end. Of tasks
    that run again after that, ``completed_later`` counts the runs that ended in memory, and
    ``seconds_later`` is the time of all of these runs.
    ``cancelled`` counts tasks that were given up. ``states`` counts tasks by Dask's state;
    ``seconds`` is the tasks' time by action: what Dask calls ``disk-read`` and ``disk-write`` is
    ``other`` if the workers read or wrote nothing on disk meanwhile, as when a task takes thousands
    of results from memory. ``worker_seconds``, ``spilled_bytes``, ``unspilled_bytes``,
    ``transferred_bytes``, ``loop_interval``, ``heartbeat_age`` and ``host_load`` are those of all
    workers of the cluster from its start to its end, also of what else ran then: workers do not
    report them by computation. ``frames`` is the user's call stack, outermost frame first; None if
    settings forbid sending it. ``call`` is the statement that started the computation. ``title`` is
    the same; without code, it is the file and line of the call, or the prefixes of the tasks.
    ``cause`` is the most important finding, None if there is none. ``job`` is the job that the
    computation is a run of, None while that is not known. ``url`` is its page.
    """

    frames: list[CodeFrame] | None


class JobChange(TypedDict):
    """A change of a job: from this run on, runs take ``after`` seconds instead of ``before``.

    Both are medians, of ``runs_before`` and ``runs_after`` passed runs. ``chance`` is the
    probability of such a difference by chance; None with too few runs for a test: then every run
    since the change differs from every run before. ``run_before`` is the computation of the last
    passed run before the change.
    """

    at: datetime
    cluster: str
    computation: str
    run_before: str
    before: float
    after: float
    runs_before: int
    runs_after: int
    chance: float | None


class CostOfCause(TypedDict):
    """What a cause (the ``rule`` of ``findings``, their number) cost the runs of a job.

    ``seconds`` are of threads. ``cost`` is an estimate by currency, by prices of ``sources``; empty
    without prices. A job with many runs is estimated by its newest ones.
    """

    rule: str
    findings: int
    seconds: float
    cost: dict[str, float]
    sources: list[PriceSource]


class Job(TypedDict):
    """The same work over time. ``level`` is what its runs have in common.

    That is a name that users gave the job, the code of the call, or the shape of the graph.
    ``name`` is "" without such a name; ``given_name`` is the name that a user gave the job in the
    service, None without one; ``title`` is the job's name on pages, and ``call`` the title of its
    newest run: one name may cover several jobs. That run is ``last_computation`` on
    ``last_cluster``; it began at ``last_at`` and has ``user`` and ``status``, which are None if it
    has just been removed. ``runs`` counts up to 10,000.
    ``duration`` and ``task_seconds`` are those of the usual run: the medians of the runs that
    passed since the last ``change``. ``spread`` is how far these runs typically are from the usual
    duration, as a share of it. All three are None if no run has passed. ``cost`` is an estimate for
    all runs of the last 30 days, by prices of ``price_source``; None without prices. ``saves_most``
    is the cause that cost these runs the most of their threads' time; None if nothing does.
    """

    id: str
    level: Literal["name", "code", "shape"]
    name: str
    title: str
    given_name: str | None
    call: str
    user: str | None
    status: Literal["running", "finished", "erred", "cancelled", "lost"] | None
    first_at: datetime
    last_at: datetime
    last_cluster: str
    last_computation: str
    runs: int
    duration: float | None
    spread: float | None
    task_seconds: float | None
    cost: float | None
    currency: str | None
    price_source: PriceSource | None
    change: JobChange | None
    saves_most: CostOfCause | None
    url: str


class JobRun(TypedDict):
    """A run of a job: a computation. ``passed``: it finished and none of its task runs erred.

    ``thread_seconds`` is the time of all threads of the cluster during the run; ``task_seconds`` is
    the time of its tasks. ``spilled_bytes`` and ``transferred_bytes`` are of all workers of the
    cluster during the run, whatever else ran then. ``differs`` lists package versions and code that
    changed since the run before; ``changed`` is true if runs take another time from this run on.
    """

    cluster: str
    cluster_name: str
    computation: str
    user: str
    status: Literal["running", "finished", "erred", "cancelled", "lost"]
    started_at: datetime
    duration: float
    task_seconds: float
    thread_seconds: float | None
    cost: float | None
    currency: str | None
    price_source: PriceSource | None
    tasks: int
    workers: int | None
    spilled_bytes: int | None
    transferred_bytes: int | None
    largest_output: int | None
    passed: bool
    differs: list[str]
    changed: bool


class Repeat(TypedDict):
    """Work that ran more than once on the same inputs, as the names of its task groups say.

    ``steps`` are the prefixes of the groups, the first to start first; ``name`` is the name of the
    first group. They all ran in the same computations, ``runs`` of them (200 at most are counted),
    of ``people`` users; ``users`` names up to five. Counted are the 30 days before the newest run,
    which is ``last_computation`` on ``last_cluster``. ``seconds_again`` is the time of the threads
    after the first run, and ``cost_again`` the share of the computations' cost for it, an estimate;
    None if a run has none, or in several currencies. ``instead`` would have run it once: one
    ``compute`` of all results, a ``persist``, a ``file``; ``advice`` says so in words.
    ``output_bytes`` is the size of what the last step returned.
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
    first_at: datetime
    last_at: datetime
    last_cluster: str
    last_computation: str
    output_bytes: int
    instead: Literal["compute", "persist", "file"]
    advice: str
    sentence: str
    url: str


class UserOfJob(TypedDict):
    """A user, and the number of their runs among the listed runs of a job."""

    user: str
    runs: int


class FindingOfJob(TypedDict):
    """A rule, and the number of a job's last runs in which it found a cause."""

    rule: str
    runs: int


class Receipt(TypedDict):
    """What a repair of a job saves.

    Since the run ``computation``, runs take less time, by ``share`` of the time before. ``rules``
    had findings in most runs before it and have none since. ``saved`` is the money saved per run,
    an estimate; None without prices. The findings predicted savings from ``expected_low`` to
    ``expected_high``, as shares of a run; None without a prediction.
    """

    at: datetime
    cluster: str
    computation: str
    rules: list[str]
    share: float
    saved: float | None
    currency: str | None
    price_source: PriceSource | None
    expected_low: float | None
    expected_high: float | None
    sentence: str


class SizeProposal(TypedDict):
    """Another size for a job's workers: ``wanted`` in place of ``now``.

    ``what`` is the memory of one worker, or the threads of all; ``most`` is the most that the runs
    needed. ``saving`` is money per run, None without prices or if nothing is saved.
    """

    what: Literal["memory", "threads"]
    now: float
    most: float
    wanted: float
    unit: str
    sentence: str
    setting: str
    saving: Saving | None


class Sizing(TypedDict):
    """What the newest passed ``runs`` of a job, at most 20, say of the size of its workers.

    ``missing`` is how many more runs are needed before anything is proposed.
    """

    runs: int
    missing: int
    sentence: str
    proposals: list[SizeProposal]


class JobCorrection(TypedDict):
    """A merge, a split or a name of a job: ``by`` made it ``at`` that time.

    ``job`` is the id of the job. ``value`` is the id of the job that it was merged into, what it
    was split by (code or shape), or its name.
    """

    id: str
    job: str
    kind: Literal["merge", "split", "name"]
    value: str
    at: datetime
    by: str


class JobCorrectionPreview(TypedDict):
    """What a correction of a job would do, in words."""

    sentence: str


class JobDetail(Job):
    """A job with its newest runs, oldest first, at most 200.

    ``sentence`` summarises them. ``passed`` counts the runs that passed; ``changes`` are oldest
    first. ``findings`` are those of the last 50 runs. ``receipt`` is None without a repair.
    ``corrections`` are its name, the merges into it and the splits that it is a part of, newest
    first.
    """

    sentence: str
    passed: int
    changes: list[JobChange]
    run_list: list[JobRun]
    users: list[UserOfJob]
    findings: list[FindingOfJob]
    receipt: Receipt | None
    corrections: list[JobCorrection]
    sizing: Sizing


class ComparedRun(TypedDict):
    """One of the two compared runs: a computation. ``job`` is the id of its job, None without one.

    ``cost`` is an estimate for all threads of the cluster while it ran; ``task_seconds`` is the
    time of its tasks.
    """

    cluster: str
    cluster_name: str
    computation: str
    title: str
    user: str
    status: Literal["running", "finished", "erred", "cancelled", "lost"]
    started_at: datetime
    duration: float
    task_seconds: float
    thread_seconds: float | None
    cost: float | None
    currency: str | None
    price_source: PriceSource | None
    tasks: int
    workers: int | None
    job: str | None


class UsualRun(TypedDict):
    """The usual run of a job: medians of the ``runs`` that passed since the last change.

    ``spread`` is how far these runs typically are from ``duration``, as a share of it. ``cost`` is
    an estimate, None if one of these runs has no cost.
    """

    runs: int
    duration: float
    spread: float
    cost: float | None
    currency: str | None
    price_source: PriceSource | None


class ExpectedRun(TypedDict):
    """A forecast for a computation that still runs, from the usual run of its job.

    With the usual duration it ends at ``usual_end_at``. ``ends_at`` is the forecast: by the pace so
    far if enough is known, else the usual end; None if that has passed. ``done`` is the share of
    its work that is done, estimated from the times of the tasks in the last run; None if the tasks
    differ too much. ``times_usual`` is its duration divided by the usual one at this point; None
    below 1.5. ``cost`` is an estimate for the whole run.
    """

    usual_end_at: datetime
    ends_at: datetime | None
    done: float | None
    times_usual: float | None
    cost: float | None
    currency: str | None
    price_source: PriceSource | None
    sentence: str


class Run(ComparedRun):
    """A computation, and the ``usual`` run of its job, computed from earlier runs.

    ``usual`` is None while the job is not known, and if fewer than five earlier runs passed.
    ``peak_worker_memory`` is the highest memory in bytes of any worker's process of the cluster,
    during this computation or at any other time. ``expected`` is None if the computation has ended,
    or if ``usual`` is None. ``url`` is the computation's page.
    """

    peak_worker_memory: int | None
    usual: UsualRun | None
    expected: ExpectedRun | None
    url: str


class WaterfallPart(TypedDict):
    """One part of the difference in duration between two runs.

    ``seconds`` is how much longer the second run took because of this part; negative if it took
    less long. ``prefix`` is set for a part that concerns the tasks of one prefix; ``change`` is the
    value before and after.
    """

    kind: Literal[
        "start",
        "tasks",
        "repeated",
        "each",
        "computing",
        "transfer",
        "disk",
        "waiting",
        "idle",
        "paused",
        "threads",
        "rest",
    ]
    seconds: float
    words: str
    change: str
    prefix: str | None


class Candidate(TypedDict):
    """Something else that differs between two runs, such as a package version.

    It is a possible cause of the difference in time; nothing proves that it is the cause.
    ``before`` or ``after`` is None if that run does not have it.
    """

    kind: Literal["version", "code", "workers", "data", "setting", "place", "load", "shape"]
    what: str
    before: str | None
    after: str | None
    words: str


class CodeDifference(TypedDict):
    """A unified diff of the code around a call; ``cut``: the diff was longer and is shortened."""

    file: str
    diff: str
    cut: bool


class GroupPair(TypedDict):
    """The task groups of one prefix: each list has the first run's value, then the second's.

    A value is None if that run has no such group. ``runs`` counts task runs; ``mean`` and
    ``longest`` are seconds of one task run, ``seconds`` of all together.
    """

    prefix: str
    runs: list[int | None]
    mean: list[float | None]
    longest: list[float | None]
    seconds: list[float | None]
    output_bytes: list[int | None]


class Comparison(TypedDict):
    """How the run ``b`` differs from the run ``a``.

    ``b`` took ``seconds`` longer; the ``parts`` add up to that, the largest first. ``differs`` is
    true if the difference is larger than the usual variation of runs. ``candidates`` lists
    everything else that differs.
    """

    sentence: str
    a: ComparedRun
    b: ComparedRun
    same_job: bool
    seconds: float
    differs: bool
    parts: list[WaterfallPart]
    candidates: list[Candidate]
    code: list[CodeDifference]
    groups: list[GroupPair]
    url: str


class TaskGroup(api_rows.TaskGroup):
    """The tasks of a computation that do the same thing.

    ``done``, ``completed``, ``erred`` and ``retried`` have the same meaning as for a computation.
    ``durations`` counts task runs by duration, in the buckets of the metric
    ``dask.task.duration``. ``types`` counts results by the name of their type.
    """

    done: int


class Failure(api_rows.Failure, _Encrypted):
    """Equal exceptions of one computation.

    ``fingerprint`` is the same for the same failure on every cluster. ``message`` and ``traceback``
    are those of the first exception. Dask repeated ``retried`` of the ``count`` failed task runs.
    """


class FailureSample(Failure):
    """A failure and its place. ``computation`` is ``""`` if it is not known."""

    cluster: str
    cluster_name: str
    computation: str
    user: str


class ComputationDetail(_Computation, _Explained):
    """A computation, with its task groups, failures and code.

    ``headline``, ``findings`` and ``not_measured`` have the same meaning as for a cluster. The
    answer has at most 1,000 task groups and 500 failures; ``more_task_groups`` and
    ``more_failures`` are true if the service has more.
    """

    frames: list[CodeFrameDetail] | None
    task_groups: list[TaskGroup]
    more_task_groups: bool
    failures: list[Failure]
    more_failures: bool


class Span(_Encrypted):
    """One span. ``status`` is error if the task raised an exception.

    docs/telemetry.md lists the names of ``attributes``.
    """

    span_id: str
    parent_span_id: str | None
    name: str
    started_at: datetime
    stopped_at: datetime
    status: Literal["unset", "ok", "error"]
    attributes: dict[str, Any] | None


class Trace(TypedDict):
    """A computation's spans: its own, then its task groups', then those of some of their tasks.

    Some tasks of each group have a span: some that failed, the slowest, and a few others. The
    group's attribute ``dask.task_group.sampled`` counts them. ``more`` is true if the service has
    more spans. ``trace_id`` is None if the computation has no trace.
    """

    trace_id: str | None
    spans: list[Span]
    more: bool


class _ExceptionGroup(_Encrypted):
    fingerprint: str
    type: str
    function: str
    message: str | None
    count: int
    clusters: int
    users: list[str]
    first_at: datetime
    last_at: datetime
    url: str


class ExceptionGroup(_ExceptionGroup):
    """Equal failures on all clusters. ``clusters`` counts clusters, ``count`` exceptions.

    ``users`` has at most 20 names, the first in alphabetical order. Beyond 2⁵³, only the first
    fifteen digits of ``count`` are exact. All numbers cover the failures that were last seen in the
    requested time. ``message`` and ``traceback`` are those of the last failure. ``url`` is the page
    of the exception.
    """

    traceback: str | None


class ExceptionDetail(_ExceptionGroup):
    """Equal failures on all clusters, and the newest of them."""

    samples: list[FailureSample]


class Event(api_rows.Event, _Encrypted):
    """An event of an allowed topic. ``message`` is JSON text, or "" if it is ``unreadable``.

    ``cut`` is true if the message was longer and is shortened.
    """

    cluster: str
    cluster_name: str


class LogRecord(_Encrypted):
    """A log record as OpenTelemetry defines it. ``body`` and ``attributes`` may be ``unreadable``.

    ``level`` is the name of the number ``severity``; it is "" for 0, which means not given.
    ``cluster`` is "" if the record names no cluster. ``user`` and ``cluster_name`` are those of the
    cluster; None if the service has no heartbeat of it.
    """

    cluster: str
    cluster_name: str | None
    user: str | None
    id: str
    at: datetime
    level: Literal["trace", "debug", "info", "warning", "error", "fatal", ""]
    severity: int
    event_name: str
    body: str | None
    attributes: dict[str, Any] | None
    trace_id: str | None
    span_id: str | None


class Profile(api_rows.Profile):
    """When the workers' threads were sampled, and how many thread-seconds the samples represent.

    ``cut`` is true if small nodes were left out. ``unsampled`` are the thread-seconds of tasks
    without any sample; None if that is not known, as from older plugins.
    """

    cluster: str


class Usage(TypedDict):
    """The usage of one user's clusters in one week, from Monday in UTC.

    ``up_seconds`` is how long clusters were up. ``thread_seconds`` is threads times time,
    ``idle_seconds`` the part of it without a task. ``gib_seconds`` is GiB of workers' memory times
    time, ``gpu_seconds`` workers with a GPU times time; None from older plugins. Costs are
    estimates in the currency of ``prices``. A user has a separate item for each set of prices of
    their clusters, and one for clusters without prices. If a week has more than 2,000 items, those
    with the fewest thread-seconds are added up as ``other users``.
    """

    user: str
    week_started_at: datetime
    clusters: int
    up_seconds: float
    thread_seconds: float
    idle_seconds: float
    gib_seconds: float | None
    gpu_seconds: float | None
    prices: Prices | None
    price_source: PriceSource | None
    cost: float | None
    idle_cost: float | None


class ProfileSummary(Profile):
    """A profile without its call tree."""

    cluster_name: str


class ProfileDetail(Profile, _Encrypted):
    """The call tree of the workers' threads, stored in columns.

    Node ``i`` is a call of ``lines[line[i]]`` below node ``parent[i]`` (-1: a root), seen in
    ``samples[i]`` samples, its callees included. A parent comes before its children. If the lines
    are ``unreadable``, all of them are empty.
    """

    lines: list[ProfileLine]
    parent: list[int]
    line: list[int]
    samples: list[int]


class TaskStream(api_rows.TaskStream):
    """Task runs that ended in one interval, in columns: entry ``i`` is the ``i``-th of each.

    An entry with a ``count`` of 1 is a run: it computed from ``start``, in seconds after
    ``started_at``, for ``length`` seconds. ``transfer`` and ``disk`` are the seconds of its
    transfers and of its reads and writes on disk. An entry with a higher ``count`` is so many runs
    of one prefix on one worker, merged because there were too many: ``start`` is that of the first,
    ``length`` goes to the end of the last, ``seconds`` is the sum of their compute times and
    ``longest`` the longest. ``worker`` and ``prefix`` are indices of ``workers`` (addresses; "":
    several) and ``prefixes``. ``merged`` says how many of the ``runs`` are merged.
    """

    cluster: str
    worker: list[int]
    prefix: list[int]
    outcome: list[Literal["finished", "erred", "retried"]]
    start: list[float]
    length: list[float]
    count: list[int]
    seconds: list[float]
    longest: list[float]
    transfer: list[float]
    disk: list[float]


class TaskRuns(TypedDict):
    """Task runs in columns, for a DataFrame: entry ``i`` is the ``i``-th of each.

    Where ``count`` is 1 it is a run, which computed from ``started_at`` to ``stopped_at``.
    Elsewhere it is so many runs of one prefix on one worker, merged because there were too many.
    ``seconds`` is the sum of their compute times, ``longest`` the longest. ``transfer`` and
    ``disk`` are the seconds of transfers and of reads and writes on disk. ``outcome`` is finished,
    erred or, if Dask ran the task again, retried.
    """

    worker: list[str]
    prefix: list[str]
    outcome: list[str]
    started_at: list[datetime]
    stopped_at: list[datetime]
    count: list[int]
    seconds: list[float]
    longest: list[float]
    transfer: list[float]
    disk: list[float]


class Line(TypedDict):
    """One time series. ``values[i]`` is the value at ``times[i]``, in ms since 1970-01-01 UTC.

    ``kind`` is gauge, counter (a running total) or rate (per second). ``field`` is ``value``; for a
    histogram it is ``count``, ``sum``, or the upper bound of a bucket. A gauge's value is the mean
    over a step; if ``sampled`` is true, it is the mean of the step's last 12 points only. A
    counter's value is the last total of a step. A step without measurements has no point.
    """

    attributes: dict[str, str]
    field: str
    kind: Literal["gauge", "counter", "rate"]
    unit: str
    times: list[int]
    values: list[float]
    sampled: bool


class Lines(TypedDict):
    """The lines of one metric of one cluster."""

    items: list[Line]


class IdlePolicy(TypedDict):
    """What the service does with clusters that are idle for ``after`` seconds.

    ``sentence`` describes the policy in full. It applies to clusters that match the patterns
    ``users`` and ``tags``, between ``begins`` and ``ends``: HH:MM in ``time_zone``, None if it
    applies all day.
    """

    id: str
    name: str
    after: float
    action: Literal["notice", "shutdown"]
    users: list[str]
    tags: dict[str, str]
    begins: str | None
    ends: str | None
    time_zone: str
    enabled: bool
    sentence: str
    changed_at: datetime
    changed_by: str


class PolicyDecision(TypedDict):
    """What an idle policy did with a cluster, and why; ``command`` is the shutdown's id."""

    id: str
    cluster: str
    policy: str
    policy_name: str
    at: datetime
    outcome: Literal["notice", "shutdown"]
    sentence: str
    command: str | None


class NotificationTarget(TypedDict):
    """A receiver of notifications, through a ``service`` such as ``slack``.

    Its address is never shown. ``failure`` is the reason why the last message was not accepted;
    None if it was accepted.
    """

    id: str
    name: str
    service: str
    kinds: list[
        Literal[
            "idle",
            "computation failed",
            "worker lost",
            "cluster silent",
            "budget passed",
            "finding",
        ]
    ]
    changed_at: datetime
    changed_by: str
    sent_at: datetime | None
    failed_at: datetime | None
    failure: str | None


class Sent(TypedDict):
    """Whether the receiver accepted a message; ``failure`` is the reason if not."""

    sent: bool
    failure: str | None


class BudgetForecast(TypedDict):
    """How this month goes on if each day costs as much as the last ``days`` did on average.

    ``at_end`` is the cost of the month at its end. ``passes_at`` is when it passes the budget: None
    if that is not in this month, or has happened already.
    """

    per_day: float
    days: float
    at_end: float
    passes_at: datetime | None


class Budget(TypedDict):
    """A budget for the clusters that start in one month (UTC); ``amount`` is None without a budget.

    It is for the clusters of ``user`` or for those with ``tag`` (``name=value``), or for all if
    both are None. ``spent`` is the estimated cost of those that started in this month,
    ``sentence`` says how that stands. ``forecast`` is None with too few days or clusters to
    continue.
    """

    user: str | None
    tag: str | None
    amount: float | None
    currency: str | None
    spent: float | None
    sentence: str | None
    forecast: BudgetForecast | None


KeptKind = Literal[
    "clusters",
    "computations",
    "failures",
    "events",
    "profiles",
    "spans",
    "logs",
    "series-full",
    "series-5min",
    "series",
]


class KeptFor(TypedDict):
    """How many ``days`` a kind of data is kept; None: forever. ``what`` describes the kind.

    ``own`` is true if the workspace set the number; otherwise it is the ``default``.
    """

    kind: KeptKind
    days: int | None
    default: int
    own: bool
    what: str


class Retention(TypedDict):
    """How long the workspace keeps each kind of data.

    ``next_at`` is about when the service removes older data next; None if it does not remove data
    automatically.
    """

    kinds: list[KeptFor]
    next_at: datetime | None


TokenScope = Literal["ingest", "read", "admin"]
MemberRole = Literal["owner", "member", "viewer"]


class Token(TypedDict):
    """A token without its secret. ``made_by`` is None if it is not known."""

    id: str
    label: str
    scopes: list[TokenScope]
    state: Literal["active", "expired", "revoked"]
    made_by: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewToken(Token):
    """A token that was just made. ``token`` is the secret for programs; it is shown only now."""

    token: str


class Revoked(TypedDict):
    """How many tokens were revoked."""

    revoked: int


class Workspace(TypedDict):
    """A workspace, and the role of the requesting user in it."""

    id: str
    role: MemberRole


class Member(TypedDict):
    """A user with a role in a workspace. ``user`` is their id; ``active``: they may sign in."""

    user: str
    name: str
    display_name: str
    role: MemberRole
    active: bool


class Invitation(TypedDict):
    """An open invitation, without its link."""

    id: str
    name: str
    role: MemberRole
    made_by: str
    created_at: datetime
    expires_at: datetime


class NewInvitation(TypedDict):
    """An invitation that was just made. ``url`` is the link to pass on; it is shown only now."""

    id: str
    name: str
    role: MemberRole
    url: str
