"""Every page and every list of the API, asked at random places of a stock, one after the other."""

from __future__ import annotations

import http.client
import random
import ssl
import time
from collections.abc import Callable
from email.message import Message
from typing import Self
from urllib.parse import urlencode

from daskscope import names
from daskscope_service.accounts import users
from tests.bench.stock import (
    BUGS,
    COMPUTATIONS,
    EVERY,
    FAILED,
    FEW,
    GROUPED,
    PROFILES,
    USERS,
    Stock,
    cluster_id,
)
from tests.service_process import ServiceProcess

Addresses = dict[str, Callable[[], str]]

_OWNER, _PASSWORD = "owner@example.org", "not to be guessed"


class Places:
    """What is at random places of ``stock``: other ones each time."""

    def __init__(self, stock: Stock) -> None:
        self.stock = stock
        self._chance = random.Random(3)

    def short(self) -> int:
        """Return the number of a cluster that has stopped."""
        while self.stock.goes_on(number := self._chance.randrange(1, self.stock.clusters)):
            pass
        return number

    def standing(self) -> int:
        """Return the number of a cluster that goes on, and not the first."""
        return self._chance.randrange(1, self.stock.clusters, self.stock.standing)

    def user(self) -> str:
        """Return one of those who have most clusters."""
        return f"user-{self._chance.randrange(FEW)}"

    def rare_user(self) -> str:
        """Return one of the others."""
        return f"user-{self._chance.randrange(FEW, USERS)}"

    def instant(self) -> int:
        """Return a time."""
        return self.stock.now - self._chance.randrange(self.stock.long_life)

    def computation(self) -> str:
        """Return the path of a computation that has groups, a failure and a trace."""
        which = self.short()
        return f"{cluster_id(which)}/computations/c{self._first(which, FAILED)}"

    def profile(self) -> str:
        """Return the path of a profile."""
        which = self.short()
        return f"{cluster_id(which)}/profiles/p{self._first(which, PROFILES)}"

    def of_long_life(self) -> str:
        """Return the path of a computation of the first cluster."""
        first = self._first(self.stock.clusters, GROUPED)
        number = self._chance.randrange(first, self.stock.computations - GROUPED, GROUPED)
        return f"{cluster_id(0)}/computations/c{number}"

    def bug(self) -> str:
        """Return the fingerprint of failures that never go away."""
        return f"1:bug{self._chance.randrange(min(BUGS, self._failures // 2))}"

    def rare(self) -> str:
        """Return the fingerprint of failures that were seen four times."""
        return f"1:rare{(2 * self._chance.randrange(self._failures // 2) + 1) // 8}"

    def series(self, cluster: int, seconds: int) -> str:
        """Return the address of the last ``seconds`` of a cluster's series."""
        until = self.stock.now - (0 if self.stock.goes_on(cluster) else cluster * EVERY)
        return "/api/v1/series?" + urlencode(
            {
                "cluster": cluster_id(cluster),
                "metric": names.TASK_COUNT.name,
                "since": until - seconds,
                "until": until,
            }
        )

    @property
    def _failures(self) -> int:
        return self.stock.computations // FAILED

    @staticmethod
    def _first(which: int, step: int) -> int:
        """Return the first of a cluster's computations whose number ``step`` divides."""
        return -(-(which - 1) * COMPUTATIONS // step) * step


def lists(stock: Stock) -> Addresses:
    """Return what is asked of the API, by what is told of it."""
    at = Places(stock)
    short, user, instant, long = at.short, at.user, at.instant, cluster_id(0)

    def api(path: str, **parameters: object) -> str:
        return f"/api/v1/{path}" + (f"?{urlencode(parameters)}" if parameters else "")

    found: Addresses = {
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
        "API computation": lambda: api(f"clusters/{at.computation()}"),
        "API exceptions": lambda: api("exceptions"),
        "API exceptions, a day": lambda: api("exceptions", since=stock.now - 86_400),
        "API exceptions of a user": lambda: api("exceptions", user=user()),
        "API exceptions of a cluster": lambda: api("exceptions", cluster=cluster_id(short())),
        "API exception, seen often": lambda: api(f"exceptions/{at.bug()}"),
        "API events": lambda: api("events"),
        "API events, at some time": lambda: api("events", until=instant()),
        "API events of a user": lambda: api("events", user=user()),
        "API logs": lambda: api("logs"),
        "API logs of a cluster": lambda: api("logs", cluster=cluster_id(short())),
        "API repeats": lambda: api("repeats"),
        "API repeats, 30 days": lambda: api("repeats", since=stock.now - 30 * 86_400),
        "API usage": lambda: api("usage"),
        "API events of no one": lambda: api("events", user="nobody"),
        "API events of a cluster": lambda: api("events", cluster=cluster_id(short())),
        "API profiles": lambda: api("profiles"),
        "API profiles of a user": lambda: api("profiles", user=user()),
        "API profiles of no one": lambda: api("profiles", user="nobody"),
        "API profile": lambda: api(f"clusters/{at.profile()}"),
        "API series of a cluster": lambda: at.series(short(), 900),
        "API series, an hour": lambda: at.series(0, 3600),
        "API series, a day": lambda: at.series(0, 86_400),
        "API series, all of a long life": lambda: at.series(0, stock.long_life),
    }
    return found


class Reader:
    """Asks for pages as an owner who is signed in, and the API with a token."""

    def __init__(self, service: ServiceProcess, token: str) -> None:
        self._token = token
        self._connection = _connection(service)
        form = urlencode({"name": _OWNER, "password": _PASSWORD})
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        self._connection.request("POST", "/sign-in", form, headers)
        answer = self._connection.getresponse()
        answer.read()
        self._cookie = str(answer.headers["Set-Cookie"]).partition(";")[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, path: str) -> tuple[float, Message, bytes]:
        """Return the seconds until all was there, the headers, and the body as it was sent.

        Raises RuntimeError for an answer other than 200.
        """
        headers = {"Accept-Encoding": "gzip"}
        if path.startswith("/api/"):
            headers["Authorization"] = f"Bearer {self._token}"
        else:
            headers["Cookie"] = self._cookie
        began = time.perf_counter()
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        body = answer.read()
        seconds = time.perf_counter() - began
        if answer.status != 200:
            raise RuntimeError(f"{path} was answered with {answer.status}: {body[:300]!r}")
        return seconds, answer.headers, body


def _connection(service: ServiceProcess) -> http.client.HTTPConnection:
    if not isinstance(service.verify, str):
        return http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    trusting = ssl.create_default_context(cafile=service.verify)
    return http.client.HTTPSConnection("127.0.0.1", service.port, timeout=120, context=trusting)


def make_owner(service: ServiceProcess, workspace: str) -> None:
    """Make the user whom a :class:`Reader` signs in as."""
    users.create(service.engine, name=_OWNER, password=_PASSWORD, workspace=workspace, role="owner")
