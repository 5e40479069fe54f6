"""Questions to the service, what the pages show, as lists of plain dicts; and what it can do.

Times are timezone-aware datetimes, durations seconds, sizes bytes, so that
``pandas.DataFrame(list_clusters())`` is ready to use. What was not measured is None.

Over 400 lines: half of them are the docstrings that users read, of questions that are all asked in
one way.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, cast
from urllib.parse import quote

import requests
from dask.utils import parse_timedelta

from daskscope.api_types import (
    Cluster,
    Computation,
    Event,
    ExceptionGroup,
    Explanation,
    ListedFinding,
    ShutdownCommand,
)
from daskscope.config import settings
from daskscope.containment import contain
from daskscope.delivery import http_errors
from daskscope.delivery.http import Session, proxy_in_clear, watched
from daskscope.errors import (
    AccessDenied,
    ConfigurationError,
    NotFound,
    ServiceError,
    ServiceTooOld,
    ServiceUnreachable,
)
from daskscope.version import __version__

#: How far back: "7 days", a timedelta, a datetime or a date (as text too), or None for all that is
#: kept. A time without a zone is local, and a date its midnight. Those of pandas and NumPy will do.
Since = str | timedelta | datetime | date | None

#: Seconds: to connect, and to wait for an answer.
TIMEOUT = (5.0, 60.0)
#: Seconds after which an answer that arrives too slowly is given up.
OVERDUE = 300.0
#: The longest answer that is read, in bytes: a report of a cluster may be large.
MAX_ANSWER = 256 << 20

#: Rows asked for at once.
PAGE = 500

#: What a problem document has as its reason where the service does not know what we ask.
_NOT_KNOWN = ("no such address", "unknown parameter")


def list_clusters(
    since: Since = "7 days",
    user: str | None = None,
    *,
    finding: str | None = None,
    limit: int | None = None,
) -> list[Cluster]:
    """Return the clusters of the workspace that started since then, newest first.

    Each has ``id``, ``name``, ``kind``, ``user``, ``host``, ``status`` (running, stopped, lost or
    ended), ``started_at``, ``stopped_at``, ``workers``, ``threads``, ``memory_used``,
    ``memory_limit``, ``worker_seconds`` by state, ``url`` and more:
    :class:`daskscope.api_types.Cluster` has them all.
    ``finding`` is the rule of a finding that they have: one of those in docs/findings.md.
    ``limit`` is the most that are returned; None returns all.

    Raises
    ------
    ConfigurationError
        There is no token, or an argument is invalid.
    AccessDenied
        The token is wrong, expired or revoked, or not of scope ``read``.
    ServiceTooOld
        The service's version is too old to answer this.
    ServiceUnreachable, ServiceError
        The service gave no answer, or failed.
    """
    return cast(list[Cluster], _items("clusters", limit, since=since, user=user, finding=finding))


def list_computations(
    cluster_id: str | None = None,
    since: Since = "7 days",
    user: str | None = None,
    *,
    finding: str | None = None,
    limit: int | None = None,
) -> list[Computation]:
    """Return the computations of one cluster, or of all, that started since then, newest first.

    Each has ``id``, ``cluster``, ``user``, ``status`` (running, finished, erred, cancelled, lost),
    ``started_at``, ``stopped_at``, ``duration``, ``tasks``, ``states``, ``seconds`` by action and
    more: :class:`daskscope.api_types.Computation` has them all. ``finding`` is the rule of a
    finding that they have. Raises as :func:`list_clusters`, and NotFound for a cluster that is not
    there.
    """
    path = "computations"
    if cluster_id is not None:
        _check_text("cluster_id", cluster_id)
        if "/" in cluster_id or not cluster_id.strip("."):  # it would lead to something else
            raise NotFound(f"no cluster has the id {cluster_id!r}", 404)
        path = f"clusters/{quote(cluster_id, safe='')}/computations"
    return cast(list[Computation], _items(path, limit, since=since, user=user, finding=finding))


def list_exceptions(
    since: Since = "7 days",
    user: str | None = None,
    cluster_id: str | None = None,
    *,
    limit: int | None = None,
) -> list[ExceptionGroup]:
    """Return the exceptions seen since then, grouped if equal, latest first.

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


def list_findings(
    since: Since = "7 days",
    user: str | None = None,
    cluster_id: str | None = None,
    *,
    rule: str | None = None,
    severity: str | None = None,
    limit: int | None = None,
) -> list[ListedFinding]:
    """Return the causes that the service found, of work that began since then, newest first.

    Each has ``rule``, ``severity`` (critical, warning, notice), ``sentence``, ``evidence``,
    ``actions``, ``saving``, ``cluster``, ``computation`` (None: of the cluster) and ``url``:
    :class:`daskscope.api_types.ListedFinding` has them all. One with ``suppressed_by`` is an effect
    of another. Raises as :func:`list_clusters`.
    """
    filters = {"user": user, "cluster": cluster_id, "rule": rule, "severity": severity}
    return cast(list[ListedFinding], _items("findings", limit, since=since, **filters))


def why(id: str) -> Explanation:
    """Return what became of a cluster or a computation, by its id, and why.

    ``headline`` is the first sentence of its page; ``findings`` have the evidence, what to do and
    what that saves. Raises as :func:`list_clusters`, and NotFound where there is no such id.
    """
    _check_text("id", id)
    with _service() as service:
        answer = service.answer("GET", f"findings/{quote(id, safe='')}")
        if not isinstance(answer.get("findings"), list):
            raise service.no_service()
        findings = [service.with_datetimes(one) for one in answer["findings"]]
        return cast(Explanation, answer | {"findings": findings})


def close(cluster_id: str, *, reason: str = "", even_if_busy: bool = False) -> ShutdownCommand:
    """Request a shutdown of a cluster, and return the request.

    The cluster gets the request with the answer to its next heartbeat. It announces that it will
    close, waits for its ``idle.grace``, and closes unless work arrives; with ``even_if_busy``, it
    closes in any case. The returned dict has ``id``, ``status``, ``sentence``, ``requested_by`` and
    more; ``status`` is ``requested`` at first. The cluster's page shows the result.

    Raises
    ------
    ConfigurationError
        There is no token, or ``cluster_id`` is not a string.
    AccessDenied
        The token is not of scope ``admin``, or its user is not a member of the workspace.
    NotFound
        The workspace has no such cluster.
    ServiceUnreachable, ServiceError
        There was no answer; or the cluster has stopped, or another shutdown of it is under way.
    """
    _check_text("cluster_id", cluster_id)
    _check_text("reason", reason)
    if not isinstance(even_if_busy, bool):
        raise ConfigurationError(f"even_if_busy is {even_if_busy!r}; it must be True or False")
    body = {"cluster": cluster_id, "reason": reason, "even_if_busy": even_if_busy}
    with _service() as service:
        answer = service.answer("POST", "commands", json=body)
        if "id" not in answer:
            raise service.no_service()
        return cast(ShutdownCommand, service.with_datetimes(answer))


def make_report(cluster_id: str, computation_id: str | None = None, *, code: bool = False) -> str:
    """Return the page of a cluster, or of a computation, as one HTML file to send to someone.

    It contains users' code, and tracebacks and log lines that may quote it, only with ``code``. The
    service's audit log records that it was made. Raises as :func:`list_computations`.
    """
    _check_text("cluster_id", cluster_id)
    path = f"clusters/{quote(cluster_id, safe='')}"
    if computation_id is not None:
        _check_text("computation_id", computation_id)
        path += f"/computations/{quote(computation_id, safe='')}"
    with _service() as service:
        parameters = {"code": "true" if code else "false"}
        return service.ask("GET", f"{path}/report", params=parameters).text


@contextmanager
def _service() -> Iterator[_Service]:
    chosen = settings()
    if chosen.token is None:
        raise ConfigurationError(
            "no token is set: set daskscope.token in Dask's configuration or "
            "DASK_DASKSCOPE__TOKEN; `daskscope token create` makes a token"
        )
    with watched(Session(OVERDUE, MAX_ANSWER)) as session:
        session.headers["Authorization"] = f"Bearer {chosen.token}"
        session.headers["User-Agent"] = f"daskscope/{__version__}"
        yield _Service(session, chosen.endpoint)


class _Service:
    """The service at ``endpoint``, asked through ``session``."""

    def __init__(self, session: Session, endpoint: str) -> None:
        self._session = session
        self._endpoint = endpoint

    def items(
        self, path: str, parameters: dict[str, str], limit: int | None
    ) -> list[dict[str, Any]]:
        """Return the items of a list, page by page."""
        found: list[dict[str, Any]] = []
        cursors = set()
        while True:
            wanted = PAGE if limit is None else min(PAGE, limit - len(found))
            page = self.answer("GET", path, params=parameters | {"limit": str(wanted)})
            items, cursor = page.get("items"), page.get("next")
            if not isinstance(items, list) or not isinstance(cursor, str | None):
                raise self.no_service()
            found += map(self.with_datetimes, items)
            if not cursor or (limit is not None and len(found) >= limit):
                return found[:limit]
            if not items or cursor in cursors:
                raise self.no_service()  # which would go on without end
            cursors.add(cursor)
            parameters = parameters | {"cursor": cursor}

    def answer(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        """Return the JSON object that is answered."""
        return _document(self.ask(method, path, **sent))

    def ask(self, method: str, path: str, **sent: Any) -> requests.Response:
        """Return an answer that says that all is well."""
        url = f"{self._endpoint}/api/v1/{path}"
        try:
            response = self._session.request(method, url, timeout=TIMEOUT, **sent)
        except Exception as error:  # whatever it is, there is no answer
            contain(error)
            kind, why = http_errors.why(error)
            if kind in ("header", "file"):
                raise ConfigurationError(why) from error
            raise ServiceUnreachable(
                f"cannot reach the service at {self._endpoint}: {why}"
            ) from error
        status = response.status_code
        if response.is_redirect:
            raise ServiceError(
                f"{self._endpoint} redirects to another address; set daskscope.endpoint to "
                "the address of the service",
                status,
            )
        if response.ok:
            return response
        problem = _document(response)
        detail = problem.get("detail") or problem.get("title") or response.reason
        detail = str(detail or "no reason given")[:1000]
        if problem.get("reason") in _NOT_KNOWN:
            raise ServiceTooOld(
                f"the service does not know {url} or one of its parameters: its version is "
                f"older than this daskscope; upgrade the service ({detail})",
                status,
            )
        kinds: dict[int, type[ServiceError]] = {401: AccessDenied, 403: AccessDenied, 404: NotFound}
        kind_of_error = kinds.get(status, ServiceError)
        if kind_of_error is NotFound and not problem:
            raise ServiceError(f"{url} does not exist; check daskscope.endpoint", 404)
        proxy = None if problem else proxy_in_clear(url)
        through = "" if proxy is None else f", or the proxy {proxy} in front of it"
        raise kind_of_error(f"{detail} (HTTP {status} from {url}{through})", status)

    def with_datetimes(self, item: Any) -> dict[str, Any]:
        """Return an item with datetimes for texts."""
        if not isinstance(item, dict):
            raise self.no_service()
        try:
            # Its own fields alone: a tag may be called so too.
            return {
                name: datetime.fromisoformat(value)
                if isinstance(value, str) and (name == "at" or name.endswith("_at"))
                else value
                for name, value in item.items()
            }
        except ValueError as error:
            raise self.no_service() from error

    def no_service(self) -> ServiceError:
        """Return what to raise for an answer that none would give."""
        return ServiceError(
            f"{self._endpoint} answers, but is not a daskscope service; check daskscope.endpoint",
            200,
        )


def _items(
    path: str, limit: int | None, *, since: Since, **filters: str | None
) -> list[dict[str, Any]]:
    most = _checked_limit(limit)
    moment = _moment(since)
    parameters = {name: value for name, value in filters.items() if value is not None}
    for name, value in parameters.items():
        _check_text("cluster_id" if name == "cluster" else name, value)
    if moment is not None:
        parameters["since"] = moment.isoformat()
    with _service() as service:
        return service.items(path, parameters, most)


def _document(response: requests.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        answer = None
    return answer if isinstance(answer, dict) else {}


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} is {value!r}; it must be a string")


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


def _moment(since: Any) -> datetime | None:
    """Return a time with its zone, or None for all there is."""
    if since is None:
        return None
    found = _read(since) if isinstance(since, str) else _plain(since)
    if isinstance(found, timedelta) and found >= timedelta(0):
        try:
            return datetime.now(UTC) - found
        except OverflowError:  # before all calendars
            return None
    if not isinstance(found, datetime):
        raise ConfigurationError(
            f'since is {since!r}; it must be a duration such as "7 days", a timedelta, a date, or '
            'a datetime, such as "2026-01-31 12:00"'
        )
    if found.tzinfo is not None:
        return found
    try:
        return found.astimezone()
    except (ValueError, OverflowError):  # at either end of all calendars
        return found.replace(tzinfo=UTC)


def _plain(since: Any) -> timedelta | datetime | None:
    """Return what says when as a type of Python's own, or None where it does not say so.

    Those of pandas are Python's and have finer fields, which the service does not know.
    """
    kind = type(since)
    if kind.__module__ == "numpy" and kind.__name__ in ("datetime64", "timedelta64"):
        if "[" not in str(since.dtype):
            return None  # a number of no unit
        since = since.astype(f"{kind.__name__}[us]").item()
    if isinstance(since, timedelta):
        return timedelta(since.days, since.seconds, since.microseconds)
    if isinstance(since, datetime):
        is_time = since == since  # unlike pandas' NaT
        return datetime.combine(since.date(), since.timetz()) if is_time else None
    return datetime.combine(since, time()) if isinstance(since, date) else None


def _read(text: str) -> timedelta | datetime | None:
    readings: tuple[Callable[[str], timedelta | datetime], ...] = (
        _read_duration,
        datetime.fromisoformat,
    )
    for read in readings:
        try:
            return read(text)
        except (ValueError, LookupError, TypeError, OverflowError):
            continue
    return None


def _read_duration(text: str) -> timedelta:
    try:
        float(text)
    except ValueError:
        return timedelta(seconds=float(parse_timedelta(text)))
    raise ValueError("of no unit: it may be meant as a date")
