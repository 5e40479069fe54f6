"""Queries to the service from Python: lists of dicts, ``why()``, ``close()``, reports.

Times are timezone-aware datetimes, durations seconds, sizes bytes. A value that was not measured is
None. The dicts fit a DataFrame: ``pandas.DataFrame(list_clusters(),
columns=list(api_types.Cluster.__annotations__))`` has its columns even if there is no cluster. In a
console and in a notebook, a list shows as a table; ``dict()`` of an item shows all that is in it.
"""

from __future__ import annotations

import operator
from datetime import timedelta
from typing import Any, cast
from urllib.parse import quote

from daskscope import answers
from daskscope.api_types import (
    Cluster,
    Comparison,
    Computation,
    Event,
    ExceptionGroup,
    Explanation,
    Job,
    JobDetail,
    ListedFinding,
    Repeat,
    ShutdownCommand,
    TaskRuns,
)
from daskscope.errors import ConfigurationError, NotFound
from daskscope.service_client import check_text, service_client
from daskscope.since import Since, moment_of


def list_clusters(
    since: Since = "7 days",
    user: str | None = None,
    *,
    finding: str | None = None,
    limit: int | None = None,
) -> list[Cluster]:
    """Return the clusters of the workspace that started since ``since``, newest first.

    Each has ``id``, ``name``, ``kind``, ``user``, ``host``, ``status`` (running, stopped, lost or
    ended), ``started_at``, ``stopped_at``, ``workers``, ``threads``, ``memory_used``,
    ``memory_limit``, ``worker_seconds`` by state, ``url`` and more:
    :class:`daskscope.api_types.Cluster` has them all. ``finding`` selects clusters with a finding
    of that rule; docs/findings.md lists the rules. ``limit`` is the most clusters to return; None
    returns all.

    Raises
    ------
    ConfigurationError
        There is no token, or an argument is invalid.
    AccessDenied
        The token is wrong, expired or revoked, or lacks the scope ``read``.
    ServiceTooOld
        The service's version is too old to answer this.
    ServiceUnreachable, ServiceError
        The service gave no answer, or failed.
    """
    items = _items("clusters", limit, since=since, user=user, finding=finding)
    return cast(list[Cluster], answers.Answers(map(answers.Answer, items), answers.CLUSTERS))


def list_computations(
    cluster_id: str | None = None,
    since: Since = "7 days",
    user: str | None = None,
    *,
    status: str | None = None,
    finding: str | None = None,
    sort: str | None = None,
    limit: int | None = None,
) -> list[Computation]:
    """Return the computations, of one cluster or of all, that started since then, newest first.

    ``cluster_id`` is a cluster's id, or the name that pages show: this selects all clusters of that
    name.

    Each has ``id``, ``cluster``, ``user``, ``status`` (running, finished, erred, cancelled, lost),
    ``started_at``, ``stopped_at``, ``duration``, ``tasks``, ``states``, ``seconds`` by action and
    more: :class:`daskscope.api_types.Computation` has them all. ``status`` selects computations
    with that status, and ``finding`` those with a finding of that rule. ``sort`` is started or
    status: those that run first, then the lost, erred, cancelled and finished ones. Raises as
    :func:`list_clusters`, and NotFound if there is no such cluster.
    """
    if cluster_id is not None:
        check_text("cluster_id", cluster_id)
    items: list[Any] = []
    if cluster_id != "":
        filters = {
            "user": user,
            "status": status,
            "finding": finding,
            "sort": sort,
            "cluster": cluster_id,
        }
        items = _items("computations", limit, since=since, **filters)
    if not (items or cluster_id is None or _is_known(cluster_id)):
        raise NotFound(f"no cluster has the id or the name {cluster_id!r}", 404)
    shown = answers.Answers(map(answers.Answer, items), answers.COMPUTATIONS)
    return cast(list[Computation], shown)


def _is_known(cluster: str) -> bool:
    return cluster != "" and bool(_items("clusters", 1, since=None, cluster=cluster))


def list_exceptions(
    since: Since = "7 days",
    user: str | None = None,
    cluster_id: str | None = None,
    *,
    limit: int | None = None,
) -> list[ExceptionGroup]:
    """Return the exceptions seen since ``since``, equal ones grouped, latest first.

    Each has ``fingerprint``, ``type``, ``function``, ``message``, ``traceback``, ``count``,
    ``clusters``, ``users``, ``first_at`` and ``last_at``. Raises as :func:`list_clusters`.
    """
    items = _items("exceptions", limit, since=since, user=user, cluster=cluster_id)
    shown = answers.Answers(map(answers.Answer, items), answers.EXCEPTIONS)
    return cast(list[ExceptionGroup], shown)


def list_events(
    cluster_id: str | None = None, since: Since = "7 days", *, limit: int | None = None
) -> list[Event]:
    """Return the allow-listed events since ``since``, latest first.

    Each has ``id``, ``cluster``, ``at``, ``topic`` and ``message``, JSON text. Raises as
    :func:`list_clusters`.
    """
    items = _items("events", limit, since=since, cluster=cluster_id)
    return cast(list[Event], answers.Answers(map(answers.Answer, items), answers.EVENTS))


def task_stream(cluster_id: str, since: Since = None, *, limit: int | None = None) -> TaskRuns:
    """Return the runs of a cluster's tasks since ``since``, in columns, earliest interval first.

    ``cluster_id`` is the cluster's id, or its name, if only one has it.
    ``pandas.DataFrame(daskscope.task_stream(id))`` has a row for each run: ``worker``, ``prefix``,
    ``outcome``, ``started_at``, ``stopped_at``, ``count``, ``seconds``, ``longest``, ``transfer``
    and ``disk``. Where a cluster had too many runs, a row is ``count`` runs, merged:
    :class:`daskscope.api_types.TaskRuns` describes the columns. ``limit`` is the most intervals,
    of 10 seconds by default, to return: the latest. Raises as :func:`list_clusters`, and NotFound
    if there is no such cluster.
    """
    check_text("cluster_id", cluster_id)
    path = f"clusters/{quote(cluster_id, safe='')}/stream"
    columns: dict[str, list[Any]] = {name: [] for name in TaskRuns.__annotations__}
    for one in reversed(_items(path, limit, since=since)):
        began = one["started_at"]
        starts, lengths = one["start"], one["length"]
        columns["worker"] += map(one["workers"].__getitem__, one["worker"])
        columns["prefix"] += map(one["prefixes"].__getitem__, one["prefix"])
        columns["started_at"] += (began + timedelta(seconds=start) for start in starts)
        columns["stopped_at"] += (
            began + timedelta(seconds=start + length)
            for start, length in zip(starts, lengths, strict=True)
        )
        for name in ("outcome", "count", "seconds", "longest", "transfer", "disk"):
            columns[name] += one[name]
    return cast(TaskRuns, columns)


def list_findings(
    since: Since = "7 days",
    user: str | None = None,
    cluster_id: str | None = None,
    *,
    rule: str | None = None,
    severity: str | None = None,
    effects: bool = True,
    limit: int | None = None,
) -> list[ListedFinding]:
    """Return the findings about work that began since ``since``, newest first.

    Each has ``rule``, ``severity`` (critical, warning, notice), ``sentence``, ``evidence``,
    ``actions``, ``saving``, ``cluster``, ``computation`` (None if it is about the cluster) and
    ``url``: :class:`daskscope.api_types.ListedFinding` has them all. A finding with
    ``suppressed_by`` is an effect of another finding, which has that rule; without ``effects``,
    these are left out. One with ``muted`` was muted by a user. Raises as :func:`list_clusters`.
    """
    filters = {"user": user, "cluster": cluster_id, "rule": rule, "severity": severity}
    if not effects:
        filters["effects"] = "false"
    items = _items("findings", limit, since=since, **filters)
    has_effects = any(one.get("suppressed_by") for one in items)
    columns = answers.FINDINGS_AND_EFFECTS if has_effects else answers.FINDINGS
    shown = answers.Answers(map(answers.FindingAnswer, items), columns)
    return cast(list[ListedFinding], shown)


def list_jobs(
    since: Since = "30 days",
    user: str | None = None,
    *,
    sort: str | None = None,
    limit: int | None = None,
) -> list[Job]:
    """Return the jobs (the same work over time) with a run since ``since``, newest first.

    Each has ``id``, ``title``, ``level`` (what its runs have in common: name, code, shape),
    ``runs``, ``duration`` of the usual run, ``cost`` of the last 30 days, ``change``,
    ``saves_most`` (the cause that cost most in these days) and ``url``:
    :class:`daskscope.api_types.Job` has them all. ``sort`` is last, cost, change or saving. Raises
    as :func:`list_clusters`.
    """
    items = _items("jobs", limit, since=since, user=user, sort=sort)
    return cast(list[Job], answers.Answers(map(answers.Answer, items), answers.JOBS))


def get_job(id: str) -> JobDetail:
    """Return a job, by its id, with its newest runs, its changes and its ``receipt``.

    ``receipt`` says what a repair saves in each run, since when, and what was expected; it is None
    without one. :class:`daskscope.api_types.JobDetail` has all fields. Raises as
    :func:`list_clusters`, and NotFound if there is no such job.
    """
    check_text("id", id)
    with service_client() as service:
        answer = service.answer("GET", f"jobs/{quote(id, safe='')}")
        if not isinstance(answer.get("run_list"), list):
            raise service.no_service()
        job = service.with_datetimes(answer)
        for name in ("run_list", "changes", "corrections"):
            # A service of an earlier version sends no corrections.
            job[name] = [service.with_datetimes(one) for one in answer.get(name, [])]
        for name in ("change", "receipt"):
            if answer[name] is not None:
                job[name] = service.with_datetimes(answer[name])
        return cast(JobDetail, answers.Answer(job))


def list_repeats(since: Since = "30 days", *, limit: int | None = None) -> list[Repeat]:
    """Return work that ran more than once on the same inputs, the most repeated time first.

    It is work whose newest run began since ``since``. Each has ``steps``, ``runs``, ``users``,
    ``seconds_again`` and ``cost_again`` of all runs but the first, ``instead`` (what would have run
    it once: one compute, persist, a file), ``sentence`` and ``url``:
    :class:`daskscope.api_types.Repeat` has them all. Raises as :func:`list_clusters`.
    """
    items = _items("repeats", limit, since=since)
    return cast(list[Repeat], answers.Answers(map(answers.Answer, items), answers.REPEATS))


def compare(a: str, b: str) -> Comparison:
    """Return how the computation ``b`` differs from the computation ``a``, by their ids.

    ``sentence`` is a summary. ``parts`` add up to the difference in time, and ``candidates`` are
    other differences: :class:`daskscope.api_types.Comparison` has all fields. Raises as
    :func:`list_clusters`, and NotFound if there is no such computation.
    """
    check_text("a", a)
    check_text("b", b)
    with service_client() as service:
        answer = service.answer("GET", "comparisons", params={"a": a, "b": b})
        if not isinstance(answer.get("parts"), list):
            raise service.no_service()
        sides = {side: service.with_datetimes(answer[side]) for side in ("a", "b")}
        return cast(Comparison, answers.ComparisonAnswer(answer | sides))


def why(id: str) -> Explanation:
    """Return what happened to a cluster or a computation, and why.

    ``id`` is the id of either, or a cluster's name, if only one has it. ``headline`` is the first
    sentence of its page. ``findings`` contain evidence, what to do and what that saves. Its repr
    shows them as text, and in a notebook with links. Raises as :func:`list_clusters`, NotFound if
    there is none, and ServiceError, which lists their ids, if several clusters have that name.
    """
    check_text("id", id)
    with service_client() as service:
        answer = service.answer("GET", f"findings/{quote(id, safe='')}")
        if not isinstance(answer.get("findings"), list):
            raise service.no_service()
        findings = answers.Answers(
            (answers.FindingAnswer(service.with_datetimes(one)) for one in answer["findings"]),
            answers.FINDINGS_OF_ONE,
        )
        return cast(Explanation, answers.WhyAnswer(answer | {"findings": findings}))


def close(cluster_id: str, *, reason: str = "", even_if_busy: bool = False) -> ShutdownCommand:
    """Request a shutdown of a cluster, and return the request.

    ``cluster_id`` is the cluster's id or name. Of several with this name, it is the one that runs.
    The cluster gets the request with the answer to its next heartbeat. It announces that it will
    close, waits for its ``idle.grace``, and closes unless work arrives; with ``even_if_busy``, it
    closes in any case. The returned dict has ``id``, ``status``, ``sentence``, ``requested_by`` and
    more; ``status`` is ``requested`` at first. The cluster's page shows the result.

    Raises
    ------
    ConfigurationError
        There is no token, or ``cluster_id`` is not a string.
    AccessDenied
        The token lacks the scope ``admin``, or its user is not a member of the workspace.
    NotFound
        The workspace has no such cluster.
    ServiceUnreachable, ServiceError
        There was no answer; the cluster has stopped or is already being shut down; or several
        clusters of this name run: the message lists their ids.
    """
    check_text("cluster_id", cluster_id)
    check_text("reason", reason)
    if not isinstance(even_if_busy, bool):
        raise ConfigurationError(f"even_if_busy is {even_if_busy!r}; it must be True or False")
    body = {"cluster": cluster_id, "reason": reason, "even_if_busy": even_if_busy}
    with service_client() as service:
        answer = service.answer("POST", "commands", json=body)
        if "id" not in answer:
            raise service.no_service()
        return cast(ShutdownCommand, service.with_datetimes(answer))


def make_report(cluster_id: str, computation_id: str | None = None, *, code: bool = False) -> str:
    """Return the page of a cluster, or of a computation, as one HTML file to send to someone.

    ``cluster_id`` is the cluster's id, or its name, if only one has it.
    Users' code, and tracebacks and log lines that may contain code, are included only with
    ``code``. The service's audit log records the report. Raises as :func:`list_computations`.
    """
    check_text("cluster_id", cluster_id)
    path = f"clusters/{quote(cluster_id, safe='')}"
    if computation_id is not None:
        check_text("computation_id", computation_id)
        path += f"/computations/{quote(computation_id, safe='')}"
    with service_client() as service:
        parameters = {"code": "true" if code else "false"}
        return service.ask("GET", f"{path}/report", params=parameters).text


def make_trace(cluster_id: str, since: Since = None, until: Since = None) -> str:
    """Return a cluster's task stream as trace events, in JSON: a file to open in Perfetto.

    ``cluster_id`` is the cluster's id, or its name, if only one has it. The file has the newest
    100,000 runs, or merged runs: if there are more, ``otherData["more"]`` is true. Raises as
    :func:`task_stream`.
    """
    check_text("cluster_id", cluster_id)
    moments = {"since": moment_of(since), "until": moment_of(until)}
    parameters = {name: at.isoformat() for name, at in moments.items() if at is not None}
    path = f"clusters/{quote(cluster_id, safe='')}/stream/trace"
    with service_client() as service:
        return service.ask("GET", path, params=parameters).text


def _items(
    path: str, limit: int | None, *, since: Since, **filters: str | None
) -> list[dict[str, Any]]:
    most = _checked_limit(limit)
    moment = moment_of(since)
    parameters = {name: value for name, value in filters.items() if value is not None}
    for name, value in parameters.items():
        check_text("cluster_id" if name == "cluster" else name, value)
    if moment is not None:
        parameters["since"] = moment.isoformat()
    with service_client() as service:
        return service.items(path, parameters, most)


def _checked_limit(limit: Any) -> int | None:
    if limit is None:
        return None
    try:
        number = 0 if isinstance(limit, bool) else operator.index(limit)
    except TypeError:
        number = 0
    if number < 1:
        raise ConfigurationError(
            f"limit is {limit!r}; it must be a whole number of at least 1, or None for no limit"
        )
    return number
