"""What the service can take: heartbeats and metric points, on a stock of data.

The load generator runs on the same processors as the service, and as the database. What is compared
takes turns: SQLite and PostgreSQL, one process and two, and for heartbeats the bare prototype of
:mod:`tests.bench.bare_store`.
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

from tests.bench import bodies
from tests.bench.bare_store import BareStore
from tests.bench.load import Answers, drive, post
from tests.bench.stock import Stock
from tests.bench.stock_fill import fill
from tests.postgresql import PostgresServer, find_binaries
from tests.service_process import ServiceProcess

SQLITE, POSTGRESQL, TWO = "SQLite", "PostgreSQL", "PostgreSQL, two processes"
BARE = "a bare prototype"

#: Requests on their way at a time: enough that the service never waits for the next one.
_CONNECTIONS = 16
#: Beats that are made for each second, before they are sent again.
_BEATS = 800
_WORKSPACE = "bench"
_CODE_KEY = "01" * 32

Tell = Callable[[str], None]
#: What was measured, by what it is, for each kind of service.
Measured = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What is put under load: where it listens, as which processes, and the database server's."""

    ports: tuple[int, ...]
    pids: tuple[int, ...]
    token: str = ""
    server: int | None = None

    def cpu(self) -> tuple[float, float]:
        """Return the seconds of processor time of the processes, and of the server."""
        own = sum(_cpu(pid) for pid in self.pids)
        return own, 0.0 if self.server is None else _cpu(self.server)


@dataclass(frozen=True, slots=True)
class _Target:
    """Services on one database."""

    services: tuple[ServiceProcess, ...]
    loaded: _Loaded


def measure(clusters: int, *, rounds: int, seconds: float, tell: Tell) -> Measured:
    """Measure on a stock of ``clusters`` clusters: ``rounds`` of ``seconds`` each for both."""
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
            token = target.loaded.token
            fill(target.services[0], stock, lambda line: tell(f"  {line}"), token)
        loaded = {kind: target.loaded for kind, target in targets.items()}
        bare = parts.enter_context(BareStore(Path(folder) / "bare"))
        loaded[BARE] = _Loaded((bare.port,), (bare.pid,))
        measured[BARE] = {}
        _measure_beats(loaded, stock, rounds, seconds, measured, tell)
        _measure_points(alone, stock, rounds, seconds, measured, tell)
    return measured


def _targets(folder: Path, parts: ExitStack, tell: Tell) -> dict[str, _Target]:
    def start(name: str, url: str = "") -> ServiceProcess:
        # Busy services leave the line for each request out; those of one database share a key.
        options: dict[str, Any] = {"log_level": "warning", "code_keys": (_CODE_KEY,)}
        options["retention_interval"] = 0  # nothing goes by its age
        return parts.enter_context(ServiceProcess(folder / name, database_url=url, **options))

    one = start("sqlite")
    targets = {SQLITE: _target(one.token(workspace=_WORKSPACE), None, one)}
    binaries = find_binaries()
    if binaries is None:
        tell("no PostgreSQL server is installed (Debian's package postgresql): SQLite alone")
        return targets
    server = parts.enter_context(PostgresServer(binaries, durable=True))
    url = server.url(server.create())
    first, second = start("first", url), start("second", url)
    token = first.token(workspace=_WORKSPACE)
    targets[POSTGRESQL] = _target(token, server.pid, first)
    targets[TWO] = _target(token, server.pid, first, second)
    return targets


def _target(token: str, server: int | None, *services: ServiceProcess) -> _Target:
    ports, pids = zip(*((one.port, one.pid) for one in services), strict=True)
    return _Target(services, _Loaded(ports, pids, token, server))


def _measure_beats(
    targets: dict[str, _Loaded],
    stock: Stock,
    rounds: int,
    seconds: float,
    measured: Measured,
    tell: Tell,
) -> None:
    plain = bodies.beats(stock, max(round(seconds * _BEATS), _CONNECTIONS))
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
    senders = bodies.senders(seconds)
    plain = bodies.metrics(stock, senders)
    for target in targets.values():
        # The series are made first: that happens once in a cluster's life.
        drive(
            target.loaded.ports,
            _metrics(plain, target.loaded, senders),
            connections=4,
            seconds=600,
        )
    for number in range(rounds):
        for kind, target in targets.items():
            most = list(_metrics(plain, target.loaded, round(seconds * _MOST_REQUESTS)))
            size, before = _bytes_of_points(target), target.loaded.cpu()
            answers = drive(
                target.loaded.ports, iter(most), connections=_CONNECTIONS, seconds=seconds
            )
            _note(measured[kind], "points", answers, bodies.SERIES, before, target.loaded.cpu())
            grown = _bytes_of_points(target) - size
            stored = answers.statuses[200] * bodies.SERIES
            measured[kind].setdefault("bytes", []).append(grown / stored)
        tell(f"points, round {number + 1} of {rounds}: " + _rates(measured, "points"))


#: Requests with points that are made for each second: more than can be stored.
_MOST_REQUESTS = 400


def _requests(
    plain: Iterable[bytes], target: _Loaded, path: str, content_type: str
) -> Iterator[bytes]:
    port = target.ports[0]
    return (post(port, path, target.token, content_type, body) for body in plain)


def _metrics(plain: Iterator[bytes], target: _Loaded, number: int) -> Iterator[bytes]:
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
    if target.loaded.server is None:
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
