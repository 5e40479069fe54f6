"""Questions to the service, what the pages show, as lists of plain dicts; and what it can do.

Times are timezone-aware datetimes, durations seconds, sizes bytes, so that
``pandas.DataFrame(list_clusters())`` is ready to use. What was not measured is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import requests
from dask.utils import parse_timedelta

from daskscope.config import Settings, settings
from daskscope.errors import (
    AccessDenied,
    ConfigurationError,
    NotFound,
    ServiceError,
    ServiceUnreachable,
)

#: How far back: "7 days", a timedelta, or a datetime.
Since = str | timedelta | datetime

#: Seconds: to connect, and to wait for an answer.
TIMEOUT = (5.0, 60.0)

#: Rows asked for at once.
PAGE = 500


def list_clusters(since: Since = "7 days", user: str | None = None) -> list[dict[str, Any]]:
    """Return the clusters of the workspace that started since then, newest first.

    Each has ``id``, ``name``, ``kind``, ``user``, ``host``, ``status`` (running, stopped or lost),
    ``started_at``, ``stopped_at``, ``workers``, ``threads``, ``memory_used``, ``memory_limit``,
    ``worker_seconds`` by state, ``url`` and more.

    Raises
    ------
    ConfigurationError
        There is no token, or ``since`` is not understood.
    AccessDenied, ServiceUnreachable, ServiceError
        The service refused, gave no answer, or failed.
    """
    return list(_items("clusters", since=since, user=user))


def list_computations(
    cluster_id: str | None = None, since: Since = "7 days", user: str | None = None
) -> list[dict[str, Any]]:
    """Return the computations of one cluster, or of all, that started since then, newest first.

    Each has ``id``, ``cluster``, ``user``, ``status`` (running, finished, erred, cancelled, lost),
    ``started_at``, ``stopped_at``, ``duration``, ``tasks``, ``states``, ``seconds`` by action and
    more. Raises as :func:`list_clusters`, and NotFound for a cluster that is not there.
    """
    if cluster_id is not None:
        return list(_items(f"clusters/{cluster_id}/computations", since=since, user=user))
    return list(_items("computations", since=since, user=user))


def list_exceptions(
    since: Since = "7 days", user: str | None = None, cluster_id: str | None = None
) -> list[dict[str, Any]]:
    """Return the exceptions seen since then, grouped by what they have in common, latest first.

    Each has ``fingerprint``, ``type``, ``function``, ``message``, ``traceback``, ``count``,
    ``clusters``, ``users``, ``first_at`` and ``last_at``. Raises as :func:`list_clusters`.
    """
    return list(_items("exceptions", since=since, user=user, cluster=cluster_id))


def list_events(cluster_id: str | None = None, since: Since = "7 days") -> list[dict[str, Any]]:
    """Return the allow-listed events since then, latest first.

    Each has ``id``, ``cluster``, ``at``, ``topic`` and ``message``, JSON text. Raises as
    :func:`list_clusters`.
    """
    return list(_items("events", since=since, cluster=cluster_id))


def close(cluster_id: str, *, reason: str = "", even_if_busy: bool = False) -> dict[str, Any]:
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
        The token is not of scope ``admin``.
    NotFound
        The workspace has no such cluster.
    ServiceUnreachable, ServiceError
        There was no answer; or the cluster has stopped, or another shutdown of it is under way.
    """
    chosen, token = _chosen()
    body = {"cluster": cluster_id, "reason": reason, "even_if_busy": even_if_busy}
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {token}"
        url = f"{chosen.endpoint}/api/v1/commands"
        return dict(_with_datetimes(_answer(session, "POST", url, "id", json=body)))


def _chosen() -> tuple[Settings, str]:
    chosen = settings()
    if chosen.token is None:
        raise ConfigurationError(
            "no token: set daskscope.token in Dask's configuration, or DASK_DASKSCOPE__TOKEN; "
            "`daskscope token create` makes one"
        )
    return chosen, chosen.token


def _items(path: str, *, since: Since, **filters: str | None) -> Iterator[dict[str, Any]]:
    chosen, token = _chosen()
    parameters: dict[str, str] = {"since": _moment(since).isoformat(), "limit": str(PAGE)}
    parameters |= {name: value for name, value in filters.items() if value is not None}
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {token}"
        while True:
            url = f"{chosen.endpoint}/api/v1/{path}"
            page = _answer(session, "GET", url, "items", params=parameters)
            yield from map(_with_datetimes, page["items"])
            if not page.get("next"):
                return
            parameters["cursor"] = page["next"]


def _answer(
    session: requests.Session, method: str, url: str, expected: str, **sent: Any
) -> dict[str, Any]:
    """Return an answer that has the field ``expected``."""
    try:
        response = session.request(method, url, timeout=TIMEOUT, **sent)
    except requests.RequestException as error:
        raise ServiceUnreachable(
            f"no answer from {url}: {error.__class__.__name__}; does the service run, and is "
            "daskscope.endpoint right?"
        ) from error
    if response.ok:
        try:
            answer = response.json()
            if isinstance(answer, dict) and expected in answer:
                return answer
        except ValueError:
            pass
        raise ServiceError(f"{url} answers, but is not a daskscope service", response.status_code)
    try:
        problem = response.json()
        detail = str(problem.get("detail") or problem.get("title"))
    except (ValueError, AttributeError):
        detail = response.reason or "no reason given"
    kinds: dict[int, type[ServiceError]] = {401: AccessDenied, 403: AccessDenied, 404: NotFound}
    kind = kinds.get(response.status_code, ServiceError)
    raise kind(f"{detail} (HTTP {response.status_code} from {url})", response.status_code)


def _moment(since: Since) -> datetime:
    if isinstance(since, datetime):
        return since if since.tzinfo is not None else since.astimezone()
    if isinstance(since, str):
        try:
            since = timedelta(seconds=float(parse_timedelta(since)))
        except (ValueError, KeyError, TypeError):
            raise ConfigurationError(
                f'since is {since!r}; it must be a duration such as "7 days", a timedelta or a '
                "datetime"
            ) from None
    return datetime.now(UTC) - since


def _with_datetimes(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _with_datetimes(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_datetimes(item) for item in value]
    if isinstance(value, str) and (name == "at" or name.endswith("_at")):
        return datetime.fromisoformat(value)
    return value
