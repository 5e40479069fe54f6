"""Sends requests to the service's HTTP API, and turns failures into our errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import requests

from daskscope.config import Settings, settings
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
from daskscope.one_line import printable
from daskscope.protocol import is_time
from daskscope.version import __version__

#: Seconds: to connect, and to wait for an answer.
TIMEOUT = (5.0, 60.0)
#: Seconds after which an answer that arrives too slowly is given up.
OVERDUE = 300.0
#: The longest answer that is read, in bytes: a report of a cluster may be large.
MAX_ANSWER = 256 << 20

#: Rows per request.
PAGE = 500

#: Reasons in a problem document if the service does not know the request.
_NOT_KNOWN = ("no such address", "unknown parameter")


@contextmanager
def service_client(chosen: Settings | None = None) -> Iterator[ServiceClient]:
    """Return a client of the service in the ``chosen`` settings, by default this process's.

    Raises
    ------
    ConfigurationError
        There is no token.
    """
    chosen = chosen or settings()
    if chosen.token is None:
        raise ConfigurationError(
            "no token is set: set daskscope.token in Dask's configuration or "
            "DASK_DASKSCOPE__TOKEN; `daskscope token create` makes a token"
        )
    with watched(Session(OVERDUE, MAX_ANSWER)) as session:
        session.headers["Authorization"] = f"Bearer {chosen.token}"
        session.headers["User-Agent"] = f"daskscope/{__version__}"
        yield ServiceClient(session, chosen.endpoint)


class ServiceClient:
    """A client of the service at ``endpoint``, which uses ``session``."""

    def __init__(self, session: Session, endpoint: str) -> None:
        self._session = session
        self._endpoint = endpoint

    def items(
        self, path: str, parameters: dict[str, str], limit: int | None
    ) -> list[dict[str, Any]]:
        """Return the items of a list, page by page."""
        rows: list[dict[str, Any]] = []
        cursors = set()
        while True:
            wanted = PAGE if limit is None else min(PAGE, limit - len(rows))
            page = self.answer("GET", path, params=parameters | {"limit": str(wanted)})
            items, cursor = page.get("items"), page.get("next")
            if not isinstance(items, list) or not isinstance(cursor, str | None):
                raise self.no_service()
            rows += map(self.with_datetimes, items)
            if not cursor or (limit is not None and len(rows) >= limit):
                return rows[:limit]
            if not items or cursor in cursors:
                raise self.no_service()  # an endless loop otherwise
            cursors.add(cursor)
            parameters = parameters | {"cursor": cursor}

    def answer(self, method: str, path: str, **sent: Any) -> dict[str, Any]:
        """Return the JSON object in the answer."""
        return _document(self.ask(method, path, **sent))

    def ask(self, method: str, path: str, **sent: Any) -> requests.Response:
        """Return a successful response, else raise a :class:`.DaskscopeError`."""
        url = f"{self._endpoint}/api/v1/{path}"
        try:
            response = self._session.request(method, url, timeout=TIMEOUT, **sent)
        except Exception as error:  # there is no answer
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
        detail = printable(str(detail or "no reason given")[:1000])
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
        """Return an item with its times as datetimes."""
        if not isinstance(item, dict):
            raise self.no_service()
        try:
            # Only the item's own fields: a tag may have such a name, too.
            return {
                name: datetime.fromisoformat(value)
                if isinstance(value, str) and is_time(name)
                else value
                for name, value in item.items()
            }
        except ValueError as error:
            raise self.no_service() from error

    def no_service(self) -> ServiceError:
        """Return the error for an answer that no daskscope service would give."""
        return ServiceError(
            f"{self._endpoint} answers, but is not a daskscope service; check daskscope.endpoint",
            200,
        )


def check_text(name: str, value: Any) -> None:
    """Raise ConfigurationError unless ``value``, the argument ``name`` of a call, is a string."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} is {value!r}; it must be a string")


def _document(response: requests.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        answer = None
    return answer if isinstance(answer, dict) else {}
