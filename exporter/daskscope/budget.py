"""``assert_budget()``: holds a computation to a time, a cost and an amount of memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast
from urllib.parse import quote

from dask.utils import format_bytes, parse_bytes, parse_timedelta

from daskscope.api_types import Run
from daskscope.durations import say_seconds
from daskscope.errors import BudgetExceeded, ConfigurationError, NotFound, NotMeasured
from daskscope.one_line import one_line, printable
from daskscope.service_client import ServiceClient, service_client

#: Seconds between two requests for a run that has not arrived: the first pause, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
#: The most characters of a title in a message.
_MOST_TITLE = 100


def assert_budget(
    id: str,
    *,
    max_seconds: float | str | timedelta | None = None,
    max_cost: float | None = None,
    max_memory: int | str | None = None,
    slower_than_usual: float | None = None,
    timeout: float | str | timedelta = 60.0,
) -> Run:
    """Raise :class:`BudgetExceeded` if a computation exceeded a limit.

    Return the run: :class:`daskscope.api_types.Run` has its fields. If a value with a limit was not
    measured, raise NotMeasured.

    Parameters
    ----------
    id
        The id of a computation, or of a job: then its newest run that has ended is checked.
    max_seconds
        The longest time from its start to its end: seconds, a timedelta, or a text, "2 minutes".
    max_cost
        The most that all threads of its cluster may cost while it runs, in its prices' currency.
    max_memory
        The highest peak memory of any worker's process of its cluster: bytes, or "4 GiB".
    slower_than_usual
        How much longer than usual it may take: 0.2 for 20 %. The usual time is the median of the
        job's earlier runs that passed since the last change, if there are at least five.
    timeout
        How long to wait for the run to arrive and to end: seconds, a timedelta, or a text.

    Raises
    ------
    BudgetExceeded
        It exceeded a limit. The message contains the value, the limit, and the address of the run's
        page. A run that has taken more than ``max_seconds`` is not waited for.
    NotMeasured
        A value with a limit is not known: the run failed or still runs, its cluster has no prices,
        or too few earlier runs passed.
    ConfigurationError
        There is no token, no limit, or an invalid limit.
    NotFound
        The workspace has no computation and no job with this id, even after the ``timeout``.
    AccessDenied, ServiceTooOld, ServiceUnreachable, ServiceError
        As :func:`daskscope.list_clusters`.

    Examples
    --------
    >>> computation = daskscope.list_computations(limit=1)[0]
    >>> daskscope.assert_budget(computation["id"], max_seconds=60, slower_than_usual=0.2)
    """
    _check_id(id)
    budget = Budget(
        seconds=seconds_of("max_seconds", max_seconds),
        cost=_number("max_cost", max_cost),
        memory=bytes_of("max_memory", max_memory),
        slower=_number("slower_than_usual", slower_than_usual),
    )
    if budget == Budget():
        raise ConfigurationError(
            "there is no limit: set max_seconds, max_cost, max_memory or slower_than_usual"
        )
    wait = seconds_of("timeout", timeout, least=0.0) or 0.0
    with service_client() as service:
        run = _arrived(service, id, budget, wait)
    budget.hold(run)
    return run


def get_run(id: str) -> Run:
    """Return a computation, by its id, beside the usual run of its job.

    ``usual`` is what runs before it took; ``expected`` says of one that goes on when it should end,
    when it will, and what it will cost: :class:`daskscope.api_types.Run` has all fields. With the
    id of a job it is the newest of its runs that has ended. Raises as
    :func:`daskscope.list_clusters`, and NotFound where there is no such id.
    """
    _check_id(id)
    with service_client() as service:
        return _run(service, id)


def _check_id(id: Any) -> None:
    if not isinstance(id, str) or not id:
        raise ConfigurationError(f"id is {id!r}; it must be the id of a computation or of a job")


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a run; None means no limit. ``slower`` is a share of the usual time."""

    seconds: float | None = None
    cost: float | None = None
    memory: int | None = None
    slower: float | None = None

    def hold(self, run: Run) -> None:
        """Raise an error if ``run`` exceeds a limit, or if that is not known."""
        if over := [*self._beyond(run)]:
            # First, because an exceeded limit is certain, whatever was not measured.
            said = f"{_named(run)} is over its budget: {'; '.join(over)}{_see(run)}"
            raise BudgetExceeded(printable(said))
        if unknown := [*self._unknown(run)]:
            said = (
                f"it is not known whether {_named(run)} is within its budget: "
                f"{'; '.join(unknown)}{_see(run)}"
            )
            raise NotMeasured(printable(said))

    def _beyond(self, run: Run) -> Iterator[str]:
        took, usual = run["duration"], run["usual"]
        # A run that goes on or has failed takes at least the time until now.
        ran = "it has run" if run["status"] == "running" else "it took"
        if self.seconds is not None and took > self.seconds:
            yield f"{ran} {say_seconds(took)} (limit: {say_seconds(self.seconds)})"
        if self.slower is not None and usual is not None:
            most = usual["duration"] * (1 + self.slower)
            if took > most:
                yield (
                    f"{ran} {say_seconds(took)}, {took / usual['duration']:.2f} times its usual "
                    f"{say_seconds(usual['duration'])} (the median of {usual['runs']} runs; limit: "
                    f"{1 + self.slower:.2f} times)"
                )
        cost, currency = run["cost"], run["currency"] or ""
        if self.cost is not None and cost is not None and cost > self.cost:
            yield f"it cost {cost:,.4g} {currency} (limit: {self.cost:,.4g})"
        memory = run["peak_worker_memory"]
        if self.memory is not None and memory is not None and memory > self.memory:
            yield (
                f"a worker of its cluster used {format_bytes(memory)} of memory (limit: "
                f"{format_bytes(self.memory)})"
            )

    def _unknown(self, run: Run) -> Iterator[str]:
        if run["status"] == "running":
            yield "it still runs"
            return
        if run["status"] != "finished":
            yield f"it did not finish ({run['status']}), so its values are not comparable"
            return
        if self.slower is not None and run["usual"] is None:
            why = "its job is not known"
            if run["job"] is not None:
                why = f"fewer than five earlier runs of its job {run['job']} passed"
            yield f"{why}, so there is no usual time"
        if self.cost is not None and run["cost"] is None:
            yield "its cluster has no prices, or did not report the time of its threads"
        if self.memory is not None and run["peak_worker_memory"] is None:
            yield "its cluster did not report the memory of its workers"


def seconds_of(name: str, value: Any, *, least: float | None = None) -> float | None:
    """Return seconds, a timedelta or a text such as "2 minutes" as seconds above ``least``."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    what = 'a number of seconds above 0, a timedelta, or a text such as "2 minutes"'
    return _parsed(name, value, lambda text: parse_timedelta(text, default="seconds"), what, least)


def bytes_of(name: str, value: Any) -> int | None:
    """Return a number of bytes, or a text such as "4 GiB", as bytes."""
    size = _parsed(name, value, parse_bytes, 'bytes above 0, or a text such as "4 GiB"', None)
    return None if size is None else int(size)


def whole_number(name: str, value: Any) -> int | None:
    """Return a whole number of at least 0."""
    number = _parsed(name, value, None, "a whole number of at least 0", 0.0)
    if number is not None and number != int(number):
        raise ConfigurationError(f"{name} is {value!r}; it must be a whole number of at least 0")
    return None if number is None else int(number)


def _number(name: str, value: Any) -> float | None:
    # 0 is allowed: a run may take no longer than usual, and cost nothing.
    return _parsed(name, value, None, "a number of at least 0", 0.0)


def _parsed(
    name: str, value: Any, read: Callable[[str], Any] | None, what: str, least: float | None
) -> float | None:
    if value is None:
        return None
    try:
        if isinstance(value, bool) or (read is None and isinstance(value, str)):
            raise ValueError
        number = float(read(value) if read is not None and isinstance(value, str) else value)
        fits = math.isfinite(number) and (number > 0 if least is None else number >= least)
    except (TypeError, ValueError, KeyError, OverflowError):
        fits = False
    if not fits:
        raise ConfigurationError(f"{name} is {value!r}; it must be {what}")
    return number


def _named(run: Run) -> str:
    title = one_line(run["title"])
    if len(title) > _MOST_TITLE:
        title = f"{title[: _MOST_TITLE - 1]}…"
    return f"{title} ({run['computation']})" if title else run["computation"]


def _see(run: Run) -> str:
    return f". See {run['url']}"


def _arrived(service: ServiceClient, id: str, budget: Budget, timeout: float) -> Run:
    """Return the run once it is complete, or as it is when the timeout is over."""
    until, pause = time.monotonic() + timeout, _FIRST_PAUSE
    while True:
        run, missing = None, None
        try:
            run = _run(service, id)
        except NotFound as error:
            missing = error
        if run is not None and not _awaits(run, budget):
            return run
        left = until - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
    if run is not None:
        return run
    raise NotFound(
        f"no computation and no job of the workspace has the id {id!r}, and none arrived within "
        f"{say_seconds(timeout)}: does its cluster send to this service and workspace?",
        404,
    ) from missing


def _awaits(run: Run, budget: Budget) -> bool:
    """Return whether data may still arrive that decides whether ``run`` is within its budget."""
    if run["status"] == "running":
        return budget.seconds is None or run["duration"] <= budget.seconds
    # The service assigns a run to a job a little after the run's end.
    return run["status"] == "finished" and budget.slower is not None and run["job"] is None


def _run(service: ServiceClient, id: str) -> Run:
    answer = service.answer("GET", f"runs/{quote(id, safe='')}")
    if not isinstance(answer.get("duration"), int | float):
        raise service.no_service()
    if (expected := answer.get("expected")) is not None:
        answer["expected"] = service.with_datetimes(expected)
    return cast(Run, service.with_datetimes(answer))
