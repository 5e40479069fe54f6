"""Every page and every list of the API, asked at random places of a stock, one after the other."""

from __future__ import annotations

import http.client
import random
import time
from collections.abc import Callable
from urllib.parse import urlencode

from daskscope import names
from tests.bench.stock import (
    BUGS,
    COMPUTATIONS,
    EVERY,
    FAILED,
    GROUPED,
    PROFILES,
    USERS,
    Stock,
    cluster_id,
)
from tests.service_process import ServiceProcess

Addresses = dict[str, Callable[[], str]]


def addresses(stock: Stock) -> Addresses:
    """Return what is asked, by what is told of it: functions that return another one each time."""
    chance = random.Random(3)

    def short() -> int:
        return chance.randrange(1, stock.clusters)

    def user() -> str:
        return f"user-{chance.randrange(USERS)}"

    def instant() -> int:
        return stock.now - chance.randrange(stock.clusters * EVERY)

    def first_of(which: int, step: int) -> int:
        """Return the first of a cluster's computations whose number ``step`` divides."""
        return -(-(which - 1) * COMPUTATIONS // step) * step

    def computation() -> str:
        which = short()
        return f"{cluster_id(which)}/computations/c{first_of(which, GROUPED)}"

    def profile() -> str:
        which = short()
        return f"{cluster_id(which)}/profiles/p{first_of(which, PROFILES)}"

    def of_long_life() -> str:
        first = first_of(stock.clusters, GROUPED)
        number = chance.randrange(first, stock.computations - GROUPED, GROUPED)
        return f"{cluster_id(0)}/computations/c{number}"

    def bug() -> str:
        return f"1:bug{chance.randrange(min(BUGS, stock.computations // FAILED // 2))}"

    def rare() -> str:
        return f"1:rare{(2 * chance.randrange(stock.computations // FAILED // 2) + 1) // 8}"

    def series(cluster: int, seconds: int, metric: names.Metric = names.TASK_COUNT) -> str:
        until = stock.now - cluster * EVERY
        return "/api/v1/series?" + urlencode(
            {
                "cluster": cluster_id(cluster),
                "metric": metric.name,
                "since": until - seconds,
                "until": until,
            }
        )

    def api(path: str, **parameters: object) -> str:
        return f"/api/v1/{path}" + (f"?{urlencode(parameters)}" if parameters else "")

    long = cluster_id(0)
    found: Addresses = {
        "clusters": lambda: "/",
        "clusters, at some time": lambda: f"/?until={instant()}",
        "clusters of a user": lambda: f"/?user={user()}",
        "cluster": lambda: f"/clusters/{cluster_id(short())}",
        "cluster, long-lived": lambda: f"/clusters/{long}",
        "cluster, long-lived, a day": lambda: f"/clusters/{long}?span=day",
        "cluster, long-lived, all its life": lambda: f"/clusters/{long}?span=life",
        "computations of a cluster": lambda: f"/clusters/{cluster_id(short())}/computations",
        "computations of a long-lived one": lambda: (
            f"/clusters/{long}/computations?until={instant()}"
        ),
        "computation": lambda: f"/clusters/{computation()}",
        "computation of a long-lived one": lambda: f"/clusters/{of_long_life()}",
        "exceptions": lambda: "/exceptions",
        "exceptions, at some time": lambda: f"/exceptions?until={instant()}",
        "exceptions of a user": lambda: f"/exceptions?user={user()}",
        "exception, seen often": lambda: f"/exceptions/{bug()}",
        "exception, seen seldom": lambda: f"/exceptions/{rare()}",
        "API clusters": lambda: api("clusters"),
        "API clusters, at some time": lambda: api("clusters", until=instant()),
        "API clusters of a user": lambda: api("clusters", user=user()),
        "API cluster": lambda: api(f"clusters/{cluster_id(short())}"),
        "API cluster, long-lived": lambda: api(f"clusters/{long}"),
        "API computations": lambda: api("computations"),
        "API computations, at some time": lambda: api("computations", until=instant()),
        "API computations of a user": lambda: api("computations", user=user(), until=instant()),
        "API computations of a cluster": lambda: api("computations", cluster=cluster_id(short())),
        "API computations of a long-lived one": lambda: api(
            f"clusters/{long}/computations", until=instant()
        ),
        "API computations of no one": lambda: api("computations", user="nobody"),
        "API computation": lambda: api(f"clusters/{computation()}"),
        "API exceptions": lambda: api("exceptions"),
        "API exceptions, a day": lambda: api("exceptions", since=stock.now - 86_400),
        "API exceptions of a user": lambda: api("exceptions", user=user()),
        "API exceptions of a cluster": lambda: api("exceptions", cluster=cluster_id(short())),
        "API exception, seen often": lambda: api(f"exceptions/{bug()}"),
        "API events": lambda: api("events"),
        "API events, at some time": lambda: api("events", until=instant()),
        "API events of a user": lambda: api("events", user=user()),
        "API events of no one": lambda: api("events", user="nobody"),
        "API events of a cluster": lambda: api("events", cluster=cluster_id(short())),
        "API profiles": lambda: api("profiles"),
        "API profiles of a user": lambda: api("profiles", user=user()),
        "API profiles of no one": lambda: api("profiles", user="nobody"),
        "API profile": lambda: api(f"clusters/{profile()}"),
        "API series of a cluster": lambda: series(short(), 900),
        "API series, an hour": lambda: series(0, 3600),
        "API series, a day": lambda: series(0, 86_400),
        "API series, all of a long life": lambda: series(0, stock.long_life),
    }
    return found


def ask(
    service: ServiceProcess, token: str, asked: Addresses, times: int
) -> dict[str, list[float]]:
    """Ask each ``times``; return the seconds until the whole answer was there.

    Raises RuntimeError for an answer other than 200.
    """
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    cookie = _sign_in(connection, token)
    taken: dict[str, list[float]] = {what: [] for what in asked}
    for _ in range(times):
        for what, address in asked.items():
            path = address()
            headers = (
                {"Authorization": f"Bearer {token}"}
                if path.startswith("/api/")
                else {"Cookie": cookie}
            )
            began = time.perf_counter()
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            taken[what].append(time.perf_counter() - began)
            if answer.status != 200:
                raise RuntimeError(f"{path} was answered with {answer.status}: {body[:300]!r}")
    connection.close()
    return taken


def _sign_in(connection: http.client.HTTPConnection, token: str) -> str:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/sign-in", urlencode({"token": token}), form)
    answer = connection.getresponse()
    answer.read()
    return str(answer.headers["Set-Cookie"]).partition(";")[0]
