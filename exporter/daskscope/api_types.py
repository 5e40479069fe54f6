"""What the service's HTTP API answers: the contract with its clients.

The service makes its answers, and its OpenAPI document, of these types; ``daskscope.list_clusters``
and the others return them. Standard library only.

On the wire a time is text, ISO 8601 in UTC; in Python it is an aware datetime. The fields that are
times are called ``at`` or ``…_at``, and no others are. Durations are seconds, sizes bytes. None
says that something was not measured, or not sent. Fields may be added: ignore those that you do not
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
    """Some of a list. ``next`` is the ``cursor`` of the request for more; None at its end."""

    items: list[Item]
    next: str | None


#: Whose prices they are: those of the cluster's own settings, of its workspace's, or list prices,
#: which hold where nobody has set any.
PriceSource = Literal["cluster", "workspace", "list"]


class WorkspacePrices(TypedDict):
    """What an hour costs, for clusters whose own settings say nothing; no ``currency``: nothing.

    ``source`` is list for list prices, which hold until someone sets others, and none where such
    clusters are to have no costs.
    """

    source: Literal["workspace", "list", "none"]
    currency: str | None
    per_hour: dict[str, float]
    changed_at: datetime | None
    changed_by: str | None


class Threshold(TypedDict):
    """From which number on a rule finds something.

    A workspace may set a ``value`` from ``least`` to ``most`` in place of the ``default``.
    """

    name: str
    value: float
    default: float
    least: float
    most: float
    unit: str
    source: str


class Cluster(api_rows.Cluster, api_rows.Status):
    """A cluster, with what became of it and counts of what happened on it.

    ``status`` is lost for one that fell silent without saying that it stopped, and ended where that
    one lived in the process of its client and had no work to do; ``sentence`` says it in full.
    ``first_seen_at`` and ``last_seen_at`` are by the service's clock, all other times by the
    scheduler's; ``status_at`` is when it had these workers, tasks and so on. ``worker_seconds`` is
    by state: busy, idle, paused. ``idle_seconds`` is None while it works, ``held_by`` counts what
    there is to keep it for. ``busy_by`` says in words what work keeps it from being
    closed by its ``idle_timeout`` or a policy: empty while it is idle, None from an older plugin,
    which does not look for all of it. ``drops`` counts what the plugin had to leave out, by kind.
    ``failures`` counts exceptions; beyond 2⁵³, its first fifteen digits are right.
    ``cause`` is the finding that is named first, None where nothing
    stands out. ``url`` is its page.
    ``idle_timeout`` is its own setting, after which it closes itself; None where there is none.
    Costs are estimates by ``prices``: its own, or where it has none, its workspace's, or else list
    prices; ``price_source`` says which. ``gib_seconds`` and ``gpu_seconds`` are None from an older
    plugin: then an estimate is of its threads alone.
    ``settings`` are those that decide what it reports; empty from an older plugin.
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
    """A worker that left.

    ``processing`` counts the tasks that it had been given, ``tasks`` the same by prefix.
    ``memory_used`` is of its last beat, ``nanny_memory`` what its nanny saw when it ended it for
    its memory. ``log`` are its last lines.
    """

    cluster: str


class Shutdown(api_rows.Shutdown):
    """A shutdown that a cluster announced, and where it stands. ``closes_at`` ends its grace."""

    cluster: str


class ShutdownCommand(TypedDict):
    """A shutdown that someone asked for, and where it stands; ``sentence`` says that in full.

    ``requested_at`` and the other times but ``answered_at`` and ``closes_at`` are by the service's
    clock. ``open`` says that it can still be called off. ``grace`` is None where the cluster's
    settings say it. ``detail`` is what the cluster answered.
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
    """Thread-seconds by activity of the tasks of one prefix; ``""`` is what belongs to no task."""


class Measure(TypedDict):
    """A number that proves a finding. ``link`` is the place on the page that shows it, if any."""

    name: str
    value: float
    unit: str
    link: str | None


class Action(TypedDict):
    """What to do about a finding; ``value`` is the number or the setting that it comes to."""

    text: str
    value: str | None


class SavedMoney(TypedDict):
    """What an action saves in money: an estimate by the prices of the finding."""

    low: float
    high: float
    currency: str
    formula: str


class Saving(TypedDict):
    """What an action saves, from ``low`` to ``high``: seconds, or money, by ``unit``.

    ``money`` says it in money in either case; None without prices.
    """

    low: float
    high: float
    unit: str
    formula: str
    money: SavedMoney | None


class Mute(TypedDict):
    """``by`` muted a finding until ``until_at``, for a ``reason``: nobody is notified of it."""

    id: str
    reason: str
    until_at: datetime
    at: datetime
    by: str


class MuteInForce(Mute):
    """A mute, and of what: findings of ``rule`` of a computation.

    A ``computation`` of None says that it holds for the cluster and all computations on it.
    """

    rule: str
    cluster: str
    computation: str | None


class Finding(TypedDict):
    """A cause that the service found, with what proves it.

    ``subject`` says whether it is about a computation or a cluster, which began ``at``.
    ``severity`` is notice for a cause that cost too little for an alarm. ``seconds`` are the
    thread-seconds that were lost, ``share`` what they are of the computation's, and ``cost`` an
    estimate of what they cost, by prices of ``price_source``; None where that is not known, or the
    finding is not about time.
    ``suppressed_by`` is the rule whose finding explains this one, and ``muted`` the mute that is in
    force, None for none. ``version`` is the rule's.
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
    """The cause that is named first for a computation or a cluster: the rule of a finding.

    In lists it is as of when the service stored it, so up to a minute old while they run.
    """

    rule: str
    severity: Literal["critical", "warning", "notice"]
    sentence: str


class ListedFinding(Finding):
    """A finding that is stored. The service made it at ``found_at``; ``url`` is its page."""

    cluster_name: str
    found_at: datetime
    url: str


class Explanation(TypedDict):
    """What became of a cluster or a computation, and why.

    ``headline`` says it; ``findings`` come with the cause that it names first. ``not_measured``
    says by rule what it needed and was not measured. ``url`` is the subject's page.
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
    """A cluster, with the workers that left it, its shutdowns and what its threads did.

    ``headline`` says what became of it and why, as its page does. ``findings`` come with the cause
    that it names first. ``not_measured`` says by rule what it needed and was not measured.
    """

    worker_losses: list[WorkerLoss]
    shutdowns: list[Shutdown]
    activities: list[Activity]


class CodeFrameDetail(CodeFrame, _Encrypted):
    """A frame with the lines around it; the first has the number ``first_line`` in the file.

    They are None if they are not stored.
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
    """What one call to compute, persist or submit set going.

    ``sentence`` says in full what became of it. ``done`` counts tasks that ended in memory and have
    nothing to do any more. ``completed``, ``erred`` and ``retried`` count task runs: that ended in
    memory, that erred, and that Dask repeated for they erred. A task whose result was lost with a
    worker, or was released and is needed after all, runs again: ``completed`` less ``done`` is how
    often. ``cancelled`` counts tasks that were given up. ``states`` counts its tasks by Dask's
    state, ``seconds`` what they spent by action. ``frames`` is the user's call stack, outermost
    first: None where it was refused. ``call`` is the statement that set it going, ``title``
    the same or, where no code of the user's is known, its file and line or the prefixes of its
    tasks. ``cause`` is the finding that is named first, None where nothing stands out.
    ``trace_id`` is that of its trace. ``job`` is the job that it is a run of, None while that is
    not known. ``url`` is its page.
    """

    frames: list[CodeFrame] | None


class JobChange(TypedDict):
    """A change of a job: from this run on, runs take ``after`` seconds in place of ``before``.

    Both are medians, of ``runs_before`` and ``runs_after`` passed runs. ``chance`` is how probable
    such a difference is by chance, None where there are too few runs to say: then all of them since
    differ from all before. ``run_before`` is the computation of the last passed run before it.
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


class Job(TypedDict):
    """The same work over time. ``level`` says what its runs have in common.

    That is a name that users gave it, the code of the call, or the shape of the graph. ``name`` is
    "" where they gave none; ``title`` is what pages call it. ``user`` and ``status`` are of the
    newest run, ``last_computation`` on ``last_cluster``, which began ``last_at``; None if that was
    removed just now. ``runs`` are counted up to 10,000. ``duration`` and ``task_seconds`` are of
    the usual run: the medians of those that passed since the last ``change``; ``spread`` is how
    far they are from it, as a share of it; None where none has passed. ``cost`` is an estimate for
    all runs of the last 30 days, by prices of ``price_source``; None without prices.
    """

    id: str
    level: Literal["name", "code", "shape"]
    name: str
    title: str
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
    url: str


class JobRun(TypedDict):
    """A run of a job: a computation. ``passed`` says that it finished and none of its tasks erred.

    ``thread_seconds`` are all workers' threads times time meanwhile, ``task_seconds`` what its
    tasks took. ``differs`` says what its versions and its code are that those of the run before
    were not; ``changed`` that runs take another time since this one.
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


class UserOfJob(TypedDict):
    """Whose runs they are, among those of a job that are shown."""

    user: str
    runs: int


class FindingOfJob(TypedDict):
    """In how many of a job's last runs a cause was found."""

    rule: str
    runs: int


class Receipt(TypedDict):
    """What a repair of a job saves: since the run ``computation``, runs take less by ``share``.

    ``rules`` are those whose findings most runs before had and none has since. ``saved`` is an
    estimate for one run, None without prices. ``expected_low`` and ``expected_high`` are the shares
    of a run that the findings had said that it saves; None where they did not.
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


class JobDetail(Job):
    """A job with its newest runs, oldest first, at most 200.

    ``sentence`` says what they come to. ``passed`` counts those that passed; ``changes`` are oldest
    first. ``findings`` are of the last 50 runs. ``receipt`` is None where nothing was repaired.
    """

    sentence: str
    passed: int
    changes: list[JobChange]
    run_list: list[JobRun]
    users: list[UserOfJob]
    findings: list[FindingOfJob]
    receipt: Receipt | None


class ComparedRun(TypedDict):
    """One of two runs that are compared: a computation. ``job`` is whose run it is, None for none.

    ``cost`` is an estimate of all threads' while it ran; ``task_seconds`` what its tasks took.
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
    """What runs of a job usually take: medians of the ``runs`` that passed since the last change.

    ``spread`` is how far they are from ``duration``, as a share of it. ``cost`` is an estimate,
    None where some of them have none.
    """

    runs: int
    duration: float
    spread: float
    cost: float | None
    currency: str | None
    price_source: PriceSource | None


class ExpectedRun(TypedDict):
    """What is expected of a run that goes on, by the usual run of its job.

    It should end ``usual_end_at``; ``ends_at`` is when it will, at its pace so far or as usual:
    None where neither says so. ``done`` is how much of its work is done, by what tasks of a kind
    took in the last run: None where its tasks are not as those. ``times_usual`` is how many times
    longer it takes than usual at this point, None where it is not at least 1.5 times. ``cost`` is
    an estimate for all of it.
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
    """A computation beside the ``usual`` run of its job, of the runs before it.

    ``usual`` is None while its job is not known, and where fewer than five runs before it passed.
    ``peak_worker_memory`` is the most memory that the process of any one worker of its cluster ever
    had, in bytes: while this ran, or before or after. ``expected`` is None where it has ended, or
    nothing is usual. ``url`` is its page.
    """

    peak_worker_memory: int | None
    usual: UsualRun | None
    expected: ExpectedRun | None
    url: str


class WaterfallPart(TypedDict):
    """By how many ``seconds`` the second run took longer for this; negative: less long.

    ``prefix`` says whose tasks they are, for what is of one prefix; ``change`` what was and is.
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
    """What differs between two runs beside their time; None of what one of them does not have.

    It changed at the same time: nothing says that it is the cause.
    """

    kind: Literal["version", "code", "workers", "data", "setting", "place", "shape"]
    what: str
    before: str | None
    after: str | None
    words: str


class CodeDifference(TypedDict):
    """A unified diff of the code around a call; ``cut``: it has more lines than were kept."""

    file: str
    diff: str
    cut: bool


class GroupPair(TypedDict):
    """Task groups of one prefix in the first and the second run; None where there are none.

    ``runs`` are task runs, ``mean`` and ``longest`` seconds of one, ``seconds`` of all.
    """

    prefix: str
    runs: list[int | None]
    mean: list[float | None]
    longest: list[float | None]
    seconds: list[float | None]
    output_bytes: list[int | None]


class Comparison(TypedDict):
    """How the run ``b`` differs from the run ``a``.

    ``parts`` add up to ``seconds``, by which ``b`` took longer; the largest come first.
    ``differs`` says whether that is more than runs vary by. ``candidates`` differ as well.
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

    ``done``, ``completed``, ``erred`` and ``retried`` count as those of a computation.
    ``durations`` counts task runs by how long they computed, in buckets whose bounds are those of
    the metric ``dask.task.duration``. ``types`` counts results by the name of their type.
    """

    done: int


class Failure(api_rows.Failure, _Encrypted):
    """Equal exceptions of one computation.

    ``fingerprint`` is the same for the same failure on every cluster. ``message`` and ``traceback``
    are those of the first one. ``retried`` says how many of ``count`` Dask ran again.
    """


class FailureSample(Failure):
    """A failure and where it was. ``computation`` is ``""`` where none is known."""

    cluster: str
    cluster_name: str
    computation: str
    user: str


class ComputationDetail(_Computation, _Explained):
    """A computation, with its task groups, failures and code.

    ``headline``, ``findings`` and ``not_measured`` are as those of a cluster. There are 1,000 task
    groups and 500 failures at most; ``more_task_groups`` and ``more_failures`` say whether the
    service has more.
    """

    frames: list[CodeFrameDetail] | None
    task_groups: list[TaskGroup]
    more_task_groups: bool
    failures: list[Failure]
    more_failures: bool


class Span(_Encrypted):
    """One span. ``status`` is error where a task raised an exception.

    ``attributes`` have the names that docs/telemetry.md lists.
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

    Of each group some tasks have a span: some that failed, the slowest, and a few others.
    ``dask.task_group.sampled`` of the group's attributes counts them. ``more`` says that there are
    further ones. ``trace_id`` is None where the computation has no trace.
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
    """Equal failures on all clusters. ``clusters`` counts those, ``count`` the exceptions.

    ``users`` are 20 at most, the first by name.
    A ``count`` beyond 2⁵³ is right in its first fifteen digits.
    All numbers are about the failures that were last seen in the time asked for. ``message`` and
    ``traceback`` are those of the last failure. ``url`` is its page.
    """

    traceback: str | None


class ExceptionDetail(_ExceptionGroup):
    """Equal failures on all clusters, and the newest of them."""

    samples: list[FailureSample]


class Event(api_rows.Event, _Encrypted):
    """An allow-listed event. ``message`` is JSON text, or "" where it is ``unreadable``.

    ``cut`` says that there was more of it.
    """

    cluster: str
    cluster_name: str


class LogRecord(_Encrypted):
    """A log record, as OpenTelemetry has it. ``body`` and ``attributes`` may be ``unreadable``.

    ``level`` is the name of the number ``severity``, "" for 0: not given. ``user`` and
    ``cluster_name`` are the cluster's, None if no heartbeat reported it; ``cluster`` is "" if the
    record named none.
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
    """When the workers' threads were sampled, and how many thread-seconds that stands for.

    ``cut`` says that small nodes were left out. ``unsampled`` are the thread-seconds of tasks that
    no sample was taken of; None where that is not known, as from older plugins.
    """

    cluster: str


class Usage(TypedDict):
    """What one user's clusters came to in one week, from Monday in UTC.

    ``up_seconds`` is how long clusters were up, ``thread_seconds`` threads times time;
    ``idle_seconds`` is the part of it without a task. ``gib_seconds`` is GiB of workers' memory
    times time, ``gpu_seconds`` workers with a GPU times time; None from older plugins. Costs are
    estimates in the currency of ``prices``. Clusters with other prices, with none, and with the
    workspace's or list prices are separate items.
    Of more than 2,000 in a week, those with the least threads' time are one: ``other users``.
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
    """A profile without what it holds."""

    cluster_name: str


class ProfileDetail(Profile, _Encrypted):
    """Where the workers' threads were: a tree in columns.

    Node ``i`` is a call of ``lines[line[i]]`` below node ``parent[i]`` (-1: a root), seen
    ``samples[i]`` times, its callees included. A parent stands before its children. Where they are
    ``unreadable``, all lines are empty.
    """

    lines: list[ProfileLine]
    parent: list[int]
    line: list[int]
    samples: list[int]


class Line(TypedDict):
    """One time series. ``times`` are milliseconds since 1970-01-01 UTC; ``values`` go with them.

    ``kind`` is gauge, counter (a running total) or rate (per second). ``field`` is ``value``, or of
    histograms ``count``, ``sum``, or a bucket's upper bound. A gauge's value is the mean of its
    step, where it is ``sampled`` of the step's last 12 points alone; a counter's its last total. A
    step in which nothing was measured has no point.
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
    """What is done about clusters that are idle for ``after`` seconds; ``sentence`` says it.

    ``users`` and ``tags`` are patterns of the clusters that it means; ``begins`` and ``ends`` are
    HH:MM in ``time_zone``, None where it works all day.
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
    """What an idle policy did about a cluster, and why; ``command`` is the shutdown's id."""

    id: str
    cluster: str
    policy: str
    policy_name: str
    at: datetime
    outcome: Literal["notice", "shutdown"]
    sentence: str
    command: str | None


class NotificationTarget(TypedDict):
    """A receiver of notifications, by a ``service`` such as ``slack``. Its address is never shown.

    ``failure`` says why the last message was not accepted, None if it was.
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
    """Whether a message was taken; ``failure`` says why not."""

    sent: bool
    failure: str | None


class Budget(TypedDict):
    """What the clusters that start in a month of UTC may cost; None where there is no budget."""

    amount: float | None
    currency: str | None


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
    """For how many ``days`` a kind of data is kept, ``what`` it is; None: for ever.

    ``own`` says that the workspace has set it; else it is as the ``default`` says.
    """

    kind: KeptKind
    days: int | None
    default: int
    own: bool
    what: str


class Retention(TypedDict):
    """For how long the workspace keeps what. ``next_at``: about when older data is removed.

    It is None where the service does not do so by itself.
    """

    kinds: list[KeptFor]
    next_at: datetime | None


TokenScope = Literal["ingest", "read", "admin"]
MemberRole = Literal["owner", "member", "viewer"]


class Token(TypedDict):
    """A token without its secret. ``made_by`` is None where it is not known."""

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
    """A workspace, and the role in it of the user who asks."""

    id: str
    role: MemberRole


class Member(TypedDict):
    """Someone in a workspace. ``user`` is their id; ``active`` says that they may sign in."""

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
