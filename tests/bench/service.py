"""What the service can do: heartbeats, metric points and questions, on two stocks of data.

The load generator runs on the same processors as the service, and as the database. What is compared
takes turns: SQLite and PostgreSQL, one process and two.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from tests.bench import bodies, questions
from tests.bench.load import Answers, drive, post
from tests.bench.page_addresses import pages, prepare
from tests.bench.stock import Stock
from tests.bench.stock_fill import fill
from tests.postgresql import PostgresServer, find_binaries
from tests.service_process import ServiceProcess

SQLITE, POSTGRESQL, TWO = "SQLite", "PostgreSQL", "PostgreSQL, two processes"

#: Requests on their way at a time: enough that the service never waits for the next one.
_CONNECTIONS = 16
_BEATS = 4_000
_WORKSPACE = "bench"
_CODE_KEY = "01" * 32

Tell = Callable[[str], None]
#: What was measured, by what it is, for each kind of service.
Measured = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Target:
    """Services on one database; ``server`` is the process of its server, if it has one."""

    services: tuple[ServiceProcess, ...]
    token: str
    server: int | None = None

    @property
    def ports(self) -> list[int]:
        return [service.port for service in self.services]

    def cpu(self) -> tuple[float, float]:
        """Return the seconds of processor time of the services, and of the server."""
        services = sum(_cpu(service.pid) for service in self.services)
        return services, 0.0 if self.server is None else _cpu(self.server)


def measure(clusters: int, *, rounds: int, seconds: float, asks: int, tell: Tell) -> Measured:
    """Measure on a stock of ``clusters`` clusters.

    ``rounds`` of ``seconds`` each for heartbeats and for points; each page and list is asked
    ``asks`` times before that.
    """
    stock = Stock(_WORKSPACE, clusters, int(time.time()))
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as parts:
        targets = _targets(Path(folder), parts, tell)
        measured: Measured = {kind: {} for kind in targets}
        alone = {kind: target for kind, target in targets.items() if kind != TWO}
        for kind, target in alone.items():
            tell(
                f"{kind}: {stock.clusters:,} clusters, {stock.computations:,} computations, "
                f"{stock.points:,} points …"
            )
            fill(target.services[0], stock, lambda line: tell(f"  {line}"))
        for kind, target in alone.items():
            tell(f"{kind}: pages and lists …")
            service = target.services[0]
            questions.make_owner(service, _WORKSPACE)
            asked = pages(stock, prepare(service, _WORKSPACE)) | questions.lists(stock)
            measured[kind]["asked"] = questions.ask(service, target.token, asked, asks)
        _measure_beats(targets, stock, rounds, seconds, measured, tell)
        _measure_points(alone, stock, rounds, seconds, measured, tell)
    return measured


def _targets(folder: Path, parts: ExitStack, tell: Tell) -> dict[str, _Target]:
    def start(name: str, url: str = "") -> ServiceProcess:
        # Busy services leave the line for each request out; those of one database share a key.
        options: dict[str, Any] = {"log_level": "warning", "code_keys": (_CODE_KEY,)}
        options["retention_interval"] = 0  # nothing goes by its age
        return parts.enter_context(ServiceProcess(folder / name, database_url=url, **options))

    one = start("sqlite")
    targets = {SQLITE: _Target((one,), one.token(workspace=_WORKSPACE))}
    binaries = find_binaries()
    if binaries is None:
        tell("no PostgreSQL server is installed (Debian's package postgresql): SQLite alone")
        return targets
    server = parts.enter_context(PostgresServer(binaries, durable=True))
    url = server.url(server.create())
    first, second = start("first", url), start("second", url)
    token = first.token(workspace=_WORKSPACE)
    targets[POSTGRESQL] = _Target((first,), token, server.pid)
    targets[TWO] = _Target((first, second), token, server.pid)
    return targets


def _measure_beats(
    targets: dict[str, _Target],
    stock: Stock,
    rounds: int,
    seconds: float,
    measured: Measured,
    tell: Tell,
) -> None:
    plain = bodies.beats(stock, _BEATS)
    requests = {
        kind: itertools.cycle(_requests(plain, target, "/api/v1/heartbeats", "application/json"))
        for kind, target in targets.items()
    }
    for number in range(-1, rounds):  # one to warm up
        for kind in list(targets)[:: 1 if number % 2 else -1]:
            target = targets[kind]
            before = target.cpu()
            answers = drive(target.ports, requests[kind], connections=_CONNECTIONS, seconds=seconds)
            if number >= 0:
                _note(measured[kind], "beats", answers, 1, before, target.cpu())
        if number >= 0:
            tell(f"heartbeats, round {number + 1} of {rounds}: " + _rates(measured, "beats"))


def _measure_points(
    targets: dict[str, _Target],
    stock: Stock,
    rounds: int,
    seconds: float,
    measured: Measured,
    tell: Tell,
) -> None:
    plain = bodies.metrics(stock)
    for target in targets.values():
        # The series are made first: that happens once in a cluster's life.
        drive(target.ports, _metrics(plain, target, bodies.SENDERS), connections=4, seconds=600)
    for number in range(rounds):
        for kind, target in targets.items():
            most = list(_metrics(plain, target, round(seconds * _MOST_REQUESTS)))
            size, before = _bytes_of_points(target), target.cpu()
            answers = drive(target.ports, iter(most), connections=_CONNECTIONS, seconds=seconds)
            _note(measured[kind], "points", answers, bodies.SERIES, before, target.cpu())
            grown = _bytes_of_points(target) - size
            stored = answers.statuses[200] * bodies.SERIES
            measured[kind].setdefault("bytes", []).append(grown / stored)
        tell(f"points, round {number + 1} of {rounds}: " + _rates(measured, "points"))


#: Requests with points that are made for each second: more than can be stored.
_MOST_REQUESTS = 400


def _requests(
    plain: Iterable[bytes], target: _Target, path: str, content_type: str
) -> Iterator[bytes]:
    port = target.ports[0]
    return (post(port, path, target.token, content_type, body) for body in plain)


def _metrics(plain: Iterator[bytes], target: _Target, number: int) -> Iterator[bytes]:
    some = itertools.islice(plain, number)
    return _requests(some, target, "/v1/metrics", "application/x-protobuf")


def _note(
    found: dict[str, Any],
    what: str,
    answers: Answers,
    each: int,
    before: tuple[float, float],
    after: tuple[float, float],
) -> None:
    number = answers.statuses[200] * each
    found.setdefault(what, []).append(answers.per_second * each)
    for who, began, ended in zip(("service", "database"), before, after, strict=True):
        found.setdefault(f"{what}, {who}", []).append((ended - began) / number)


def _rates(measured: Measured, what: str) -> str:
    return ", ".join(
        f"{kind} {found[what][-1]:,.0f}/s" for kind, found in measured.items() if what in found
    )


def _bytes_of_points(target: _Target) -> int:
    """Return how large the points are on the disk; on SQLite, all of the database."""
    connection = target.services[0].engine.raw_connection()
    cursor = connection.cursor()
    if target.server is None:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cursor.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
    else:
        cursor.execute("SELECT pg_total_relation_size('point')")
    size: int = cursor.fetchone()[0]  # type: ignore[index]
    connection.close()
    return size


def _cpu(pid: int) -> float:
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))
