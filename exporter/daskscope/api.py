"""Questions to the service, what the pages show, as lists of plain dicts; and what it can do.

Times are timezone-aware datetimes, durations seconds, sizes bytes, so that
``pandas.DataFrame(list_clusters())`` is ready to use. What was not measured is None.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import quote

import requests
from dask.utils import parse_timedelta

from daskscope.answers import Cluster, Computation, Event, ExceptionGroup, ShutdownCommand
from daskscope.config import Settings, settings
from daskscope.errors import (
    AccessDenied,
    ConfigurationError,
    NotFound,
    ServiceError,
    ServiceTooOld,
    ServiceUnreachable,
)

#: How far back: "7 days", a timedelta, a datetime (as text too), or None for all that is kept.
Since = str | timedelta | datetime | None

#: Seconds: to connect, and to wait for an answer.
TIMEOUT = (5.0, 60.0)

#: Rows asked for at once.
PAGE = 500

#: What a problem document has as its reason where the service does not know what we ask.
_NOT_KNOWN = ("no such address", "unknown parameter")


def list_clusters(
    since: Since = "7 days", user: str | None = None, *, limit: int | None = None
) -> list[Cluster]:
    """Return the clusters of the workspace that started since then, newest first.

    Each has ``id``, ``name``, ``kind``, ``user``, ``host``, ``status`` (running, stopped or lost),
    ``started_at``, ``stopped_at``, ``workers``, ``threads``, ``memory_used``, ``memory_limit``,
    ``worker_seconds`` by state, ``url`` and more: :class:`daskscope.answers.Cluster` has them all.
    ``limit`` is how many there are at most; None for all.

    Raises
    ------
    ConfigurationError
        There is no token, or ``since`` is not understood.
    AccessDenied
        The token is wrong, expired or revoked, or not of scope ``read``.
    ServiceTooOld
        The service is of a version that cannot answer this.
    ServiceUnreachable, ServiceError
        The service gave no answer, or failed.
    """
    return cast(list[Cluster], _items("clusters", limit, since=since, user=user))


def list_computations(
    cluster_id: str | None = None,
    since: Since = "7 days",
    user: str | None = None,
    *,
    limit: int | None = None,
) -> list[Computation]:
    """Return the computations of one cluster, or of all, that started since then, newest first.

    Each has ``id``, ``cluster``, ``user``, ``status`` (running, finished, erred, cancelled, lost),
    ``started_at``, ``stopped_at``, ``duration``, ``tasks``, ``states``, ``seconds`` by action and
    more: :class:`daskscope.answers.Computation` has them all. Raises as :func:`list_clusters`, and
    NotFound for a cluster that is not there.
    """
    path = "computations"
    if cluster_id is not None:
        if "/" in cluster_id or not cluster_id.strip("."):  # it would lead to something else
            raise NotFound(f"no cluster has the id {cluster_id!r}", 404)
        path = f"clusters/{quote(cluster_id, safe='')}/computations"
    return cast(list[Computation], _items(path, limit, since=since, user=user))


def list_exceptions(
    since: Since = "7 days",
    user: str | None = None,
    cluster_id: str | None = None,
    *,
    limit: int | None = None,
) -> list[ExceptionGroup]:
    """Return the exceptions seen since then, grouped by what they have in common, latest first.

    Each has ``fingerprint``, ``type``, ``function``, ``message``, ``traceback``, ``count``,
    ``clusters``, ``users``, ``first_at`` and ``last_at``. Raises as :func:`list_clusters`.
    """
    found = _items("exceptions", limit, since=since, user=user, cluster=cluster_id)
    return cast(list[ExceptionGroup], found)


def list_events(
    cluster_id: str | None = None, since: Since = "7 days", *, limit: int | None = None
) -> list[Event]:
    """Return the allow-listed events since then, latest first.

    Each has ``id``, ``cluster``, ``at``, ``topic`` and ``message``, JSON text. Raises as
    :func:`list_clusters`.
    """
    return cast(list[Event], _items("events", limit, since=since, cluster=cluster_id))


def close(cluster_id: str, *, reason: str = "", even_if_busy: bool = False) -> ShutdownCommand:
    """Ask the service to have a cluster closed politely; return what was asked for.

    The cluster is told with the answer to its next beat. It announces that it closes, waits for its
    ``idle.grace``, and closes unless work arrives; with ``even_if_busy``, whatever runs on it. What
    is returned has ``id``, ``status``, ``sentence``, ``requested_by`` and more; ``status`` is
    ``requested`` at first. The cluster's page shows what becomes of it.

    Raises
    ------
    ConfigurationError
        There is no token.
    AccessDenied
        The token is not of scope ``admin``, or its user is no member of the workspace.
    NotFound
        The workspace has no such cluster.
    ServiceUnreachable, ServiceError
        There was no answer; or the cluster has stopped, or another shutdown of it is under way.
    """
    chosen = _chosen()
    body = {"cluster": cluster_id, "reason": reason, "even_if_busy": even_if_busy}
    with requests.Session() as session:
        url = f"{chosen.endpoint}/api/v1/commands"
        found = _answer(session, "POST", url, "id", auth=_Bearer(chosen), json=body)
    return cast(ShutdownCommand, _with_datetimes(found))


def make_report(cluster_id: str, computation_id: str | None = None, *, code: bool = False) -> str:
    """Return the page of a cluster, or of a computation, as one HTML file to send to someone.

    Users' code, and tracebacks and log lines that may quote it, are in it with ``code`` alone. The
    service's audit log says that it was made. Raises as :func:`list_computations`.
    """
    chosen = _chosen()
    path = "/".join(
        f"{kind}/{quote(id, safe='')}"
        for kind, id in (("clusters", cluster_id), ("computations", computation_id))
        if id is not None
    )
    with requests.Session() as session:
        return _asked(
            session,
            "GET",
            f"{chosen.endpoint}/api/v1/{path}/report",
            auth=_Bearer(chosen),
            params={"code": "true" if code else "false"},
        ).text


def _chosen() -> Settings:
    chosen = settings()
    if chosen.token is None:
        raise ConfigurationError(
            "no token: set daskscope.token in Dask's configuration, or DASK_DASKSCOPE__TOKEN; "
            "`daskscope token create` makes one"
        )
    return chosen


class _Bearer(requests.auth.AuthBase):
    """The token. Said this way, requests puts no password of ``~/.netrc`` in its place."""

    def __init__(self, chosen: Settings) -> None:
        self._token = chosen.token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _items(
    path: str, limit: int | None, *, since: Since, **filters: str | None
) -> list[dict[str, Any]]:
    chosen = _chosen()
    url = f"{chosen.endpoint}/api/v1/{path}"
    if limit is not None and limit < 1:
        raise ConfigurationError(f"limit is {limit}; it must be at least 1, or None for all")
    moment = _moment(since)
    parameters = {name: value for name, value in filters.items() if value is not None}
    if moment is not None:
        parameters["since"] = moment.isoformat()
    found: list[dict[str, Any]] = []
    with requests.Session() as session:
        while True:
            wanted = PAGE if limit is None else min(PAGE, limit - len(found))
            parameters["limit"] = str(wanted)
            page = _answer(session, "GET", url, "items", auth=_Bearer(chosen), params=parameters)
            found += map(_with_datetimes, page["items"])
            if not page.get("next") or len(found) == limit:
                return found
            parameters["cursor"] = page["next"]


def _answer(
    session: requests.Session, method: str, url: str, expected: str, **sent: Any
) -> dict[str, Any]:
    """Return an answer that has the field ``expected``."""
    response = _asked(session, method, url, **sent)
    answer = _document(response)
    if expected not in answer:
        raise ServiceError(f"{url} answers, but is not a daskscope service", response.status_code)
    return answer


def _asked(session: requests.Session, method: str, url: str, **sent: Any) -> requests.Response:
    """Return an answer that says that all is well."""
    try:
        response = session.request(method, url, timeout=TIMEOUT, **sent)
    except requests.RequestException as error:
        raise ServiceUnreachable(
            f"no answer from {url}: {error.__class__.__name__}; does the service run, and is "
            "daskscope.endpoint right?"
        ) from error
    if response.ok:
        return response
    problem = _document(response)
    detail = problem.get("detail") or problem.get("title") or response.reason or "no reason given"
    if problem.get("reason") in _NOT_KNOWN:
        raise ServiceTooOld(
            f"the service does not know {url}, or a parameter of it: it is of an older version "
            f"than daskscope here; upgrade it ({detail})",
            response.status_code,
        )
    kinds: dict[int, type[ServiceError]] = {401: AccessDenied, 403: AccessDenied, 404: NotFound}
    kind = kinds.get(response.status_code, ServiceError)
    if kind is NotFound and not problem:
        raise ServiceError(f"{url} is not there: is daskscope.endpoint right?", 404)
    raise kind(f"{detail} (HTTP {response.status_code} from {url})", response.status_code)


def _document(response: requests.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError:
        answer = None
    return answer if isinstance(answer, dict) else {}


def _moment(since: Since) -> datetime | None:
    if since is None:
        return None
    if isinstance(since, str):
        since = _read(since)
    if isinstance(since, timedelta):
        try:
            return datetime.now(UTC) - since
        except OverflowError:  # before all calendars
            return None
    return since if since.tzinfo is not None else since.astimezone()


def _read(text: str) -> timedelta | datetime:
    readings: tuple[Callable[[str], timedelta | datetime], ...] = (
        lambda text: timedelta(seconds=float(parse_timedelta(text))),
        datetime.fromisoformat,
    )
    for read in readings:
        try:
            return read(text)
        except (ValueError, LookupError, TypeError, OverflowError):
            continue
    raise ConfigurationError(
        f'since is {text!r}; it must be a duration such as "7 days", a timedelta, or a datetime, '
        'such as "2026-01-31 12:00"'
    )


def _with_datetimes(item: dict[str, Any]) -> dict[str, Any]:
    # Its own fields alone: a tag may be called so too.
    return {
        name: datetime.fromisoformat(value)
        if isinstance(value, str) and (name == "at" or name.endswith("_at"))
        else value
        for name, value in item.items()
    }
