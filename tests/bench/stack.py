"""Points per second through the collector into InfluxDB, against the service's own tables.

Both get the same requests in turn, from the same generator on the same processors. A point counts
once it is stored: for the service that is its answer; for the others, when the collector's queue is
empty and InfluxDB has it. The queue waits a second for more: short rounds count that against it.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench import bodies
from tests.bench.load import drive, post
from tests.bench.results import Figure
from tests.bench.stock import Stock
from tests.service_process import ServiceProcess
from tests.stack import build
from tests.stack.collector import Collector, into
from tests.stack.influxdb import InfluxDB

EMBEDDED, STACK = "service, own tables", "collector + InfluxDB 1.8"

#: Our tables are to store 1.2 times as many points in the same time.
_GOAL = 1 / 1.2
_CONNECTIONS = 16
#: Requests that are made for each second: more than can be stored.
_MOST_REQUESTS = 400

Tell = Callable[[str], None]


def is_here() -> bool:
    """Return whether the collector and InfluxDB have been built."""
    return all(map(build.is_built, (build.INFLUXDB1, build.COLLECTOR)))


def measure(rounds: int, seconds: float, tell: Tell) -> tuple[list[Figure], dict[str, Any]]:
    """Measure ``rounds`` of ``seconds`` each; return the figures, and the rounds as plain data.

    Raises CannotBuild if the programs are not here and cannot be built.
    """
    influxd = build.built(build.INFLUXDB1, tell)
    otelcol = build.built(build.COLLECTOR, tell)
    with tempfile.TemporaryDirectory(prefix="bench-") as name, ExitStack() as parts:
        folder = Path(name)
        service = parts.enter_context(ServiceProcess(folder / "service", log_level="warning"))
        database = parts.enter_context(InfluxDB(1, influxd, folder / "influxdb"))
        files = ["base.yaml", into(database)]
        collector = parts.enter_context(
            Collector(otelcol, folder / "collector", files, database.for_collector)
        )
        token = service.token()
        senders = bodies.senders(seconds)
        plain = bodies.metrics(Stock("bench", 1, int(time.time())), senders)
        rates: dict[str, list[float]] = {EMBEDDED: [], STACK: []}
        sent = 0
        for number in range(-1, rounds):  # one to make the series, and to warm up
            for kind, found in list(rates.items())[:: 1 if number % 2 else -1]:
                most = senders if number < 0 else round(seconds * _MOST_REQUESTS)
                port = service.port if kind == EMBEDDED else collector.port
                requests = [
                    post(port, "/v1/metrics", token, "application/x-protobuf", body)
                    for body in itertools.islice(plain, most)
                ]
                began = time.monotonic()
                answers = drive([port], iter(requests), connections=_CONNECTIONS, seconds=seconds)
                assert answers.per_second  # it raises unless they are as they should be
                points = answers.statuses[200] * bodies.SERIES
                if kind == STACK:
                    collector.drain()
                took = time.monotonic() - began
                if kind == STACK:
                    sent += points
                    _check(database, sent)
                if number >= 0:
                    found.append(points / took)
            if number >= 0:
                now = ", ".join(f"{kind} {found[-1]:,.0f}/s" for kind, found in rates.items())
                tell(f"points, round {number + 1} of {rounds}: {now}")
    figures = [Figure.of_values(f"points/s, {kind}", found, "") for kind, found in rates.items()]
    each = {kind: [1 / rate for rate in found] for kind, found in rates.items()}
    figures.append(
        Figure.of_ratios("time per point, own tables to stack", each[EMBEDDED], each[STACK], _GOAL)
    )
    return figures, {"points per second": rates}


def _check(database: InfluxDB, points: int) -> None:
    """Raise RuntimeError unless there are so many points in ``database``."""
    found = database.rows("SELECT count(*) FROM /^dask.bench/")
    there = sum(row.get(f"count_{field}") or 0 for row in found for field in ("gauge", "counter"))
    if there != points:
        raise RuntimeError(f"{points:,} points were sent, and {there:,} are in InfluxDB")
