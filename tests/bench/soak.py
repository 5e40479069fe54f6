"""A long run on one cluster, with the service gone for half of it: is memory flat, is all kept?

The work comes in pieces: collections and futures, exceptions and events, each piece with a known
number of each. At the end what the service has stored is held against what was done. A second
cluster without plugin does the same work beside it, for Dask's own memory grows as well.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from distributed import Client, wait
from sqlalchemy import Column, String, cast, func, select

import daskscope
from daskscope_service.db import schema
from tests.bench.clusters import cluster, run_tasks
from tests.bench.inside import count_signals, signals_and_drops
from tests.bench.inside import rss as rss_of
from tests.bench.results import Figure, record
from tests.service_process import ServiceProcess

#: Tasks of one piece of work, of which there are four at least; and how many raise an exception.
PIECE, FAILING = 2_000, 5
MIB = 2**20

Tell = Callable[[str], None]


@dataclass(slots=True)
class Books:
    """What was done, or what of it is stored: task runs as three tables count them, and events."""

    completed: int = 0
    erred: int = 0
    completed_by_group: int = 0
    erred_by_group: int = 0
    failures: int = 0
    events: int = 0


def measure(tasks: int, tell: Tell) -> tuple[list[Figure], dict[str, Any]]:
    """Run ``tasks`` tasks. Return the figures and all that was measured.

    ``tell`` is called with a line for a person who waits.
    """
    size = min(PIECE, max(tasks // 4, FAILING))
    pieces = max(tasks // size, 4)
    gone, back = pieces // 4, 3 * pieces // 4
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, ExitStack() as parts:
        service = parts.enter_context(ServiceProcess(Path(folder, "service")))
        ours = parts.enter_context(cluster(Path(folder, "ours")))
        other = parts.enter_context(cluster(Path(folder, "other")))
        beside = parts.enter_context(ThreadPoolExecutor(1))
        ours.run_on_scheduler(count_signals)
        registration = daskscope.register(
            ours, endpoint=service.url, token=service.token(), interval="1s", events__allow=["soak"]
        )
        if registration.problem is not None:
            raise RuntimeError(registration.problem)
        done = Books()
        rss: list[float] = []
        control: list[float] = []
        for number in range(pieces):
            if number == gone:
                tell("the service goes away")
                service.stop("KILL")
            if number == back:
                tell("the service comes back")
                service.start()
            same = beside.submit(_piece, other, number, size, Books())
            _piece(ours, number, size, done)
            rss.append(ours.run_on_scheduler(rss_of) / MIB)
            same.result()
            control.append(other.run_on_scheduler(rss_of) / MIB)
            if number % max(pieces // 50, 1) == 0:
                tell(
                    f"piece {number + 1} of {pieces}: the scheduler holds {rss[-1]:.0f} MiB, "
                    f"the one without plugin {control[-1]:.0f}"
                )
        cluster_id = registration.cluster_id or ""
        stored, drops = _settled(service, cluster_id, done, tell)
        signals, signals_missed = _signals(ours, service, cluster_id)
        streamed, stream_bytes = _stream(service, cluster_id)
    more = [one - without for one, without in zip(rss, control, strict=True)]
    tail = rss[back:]
    figures = [
        Figure.of_values("memory, more than without: at the end", more[-10:], "MiB", 30.0),
        # Each at its highest: what one process was given it keeps.
        Figure.of_values("… the highest of both", [max(rss) - max(control)], "MiB", 30.0),
        Figure.of_values("… before the service goes away", more[:gone][-10:], "MiB"),
        Figure.of_values("… before it comes back", more[:back][-10:], "MiB"),
        Figure.of_values(
            "growth over the last quarter", [tail[-1] - min(tail[: len(tail) // 4 + 1])], "MiB"
        ),
        Figure.of_values("task runs done, not stored", [_task_runs_missed(done, stored)], "", 0),
        Figure.of_values(
            "events not accounted for",
            [abs(done.events - stored.events - _dropped(drops))],
            "",
            0,
        ),
        Figure.of_values("spans and log records not accounted for", [signals_missed], "", 0),
        Figure.of_values("task stream, per million runs", [stream_bytes / streamed], "MB", 2.0),
        Figure.of_values(
            "task runs done, not in the task stream",
            [abs(done.completed + done.erred - streamed)],
            "",
            0,
        ),
    ]
    return figures, record(
        figures,
        tasks=pieces * size,
        done=asdict(done),
        stored=asdict(stored),
        drops=drops,
        signals=signals,
        mebibytes=rss,
        mebibytes_without=control,
    )


def _task_runs_missed(done: Books, stored: Books) -> int:
    counted = {name: count for name, count in asdict(done).items() if name != "events"}
    return sum(abs(count - getattr(stored, name)) for name, count in counted.items())


def _piece(client: Client, number: int, size: int, books: Books) -> None:
    run_tasks(client, size - FAILING, first=number * size)
    with client.as_current():
        wait(client.map(_fail, range(FAILING), pure=False))
    client.log_event("soak", {"piece": number})
    books.completed += size - FAILING
    books.completed_by_group += size - FAILING
    books.erred += FAILING
    books.erred_by_group += FAILING
    books.failures += FAILING
    books.events += 1


def _fail(number: int) -> None:
    raise ValueError("as it should")


def _settled(
    service: ServiceProcess, cluster_id: str, done: Books, tell: Tell, patience: float = 180.0
) -> tuple[Books, dict[str, int]]:
    """Wait until all is stored, or no more will come; return what is, and the drops."""
    tell("waiting for what is still to be delivered …")
    deadline = time.monotonic() + patience
    while True:
        stored, drops = _stored(service, cluster_id)
        if stored == done or time.monotonic() > deadline:
            return stored, drops
        time.sleep(0.5)


def _stored(service: ServiceProcess, cluster_id: str) -> tuple[Books, dict[str, int]]:
    def total(column: Column[int]) -> Any:
        return select(func.sum(column)).where(column.table.c.cluster == cluster_id)

    sums = (
        total(schema.computation.c.completed),
        total(schema.computation.c.erred),
        total(schema.task_group.c.completed),
        total(schema.task_group.c.erred),
        total(schema.failure.c.count),
        select(func.count()).where(schema.event.c.cluster == cluster_id),
    )
    row = schema.cluster
    with service.engine.connect() as connection:
        stored = Books(*(connection.execute(query).scalar() or 0 for query in sums))
        drops = connection.execute(select(row.c.drops).where(row.c.id == cluster_id)).scalar()
    return stored, dict(drops or {})


def _stream(service: ServiceProcess, cluster_id: str) -> tuple[int, int]:
    """Return how many runs the stored task stream has, and its bytes, without the index."""
    row = schema.task_stream.c
    texts = (row.columns, cast(row.workers, String), cast(row.prefixes, String), row.id)
    size = reduce(add, map(func.length, texts))
    query = select(func.sum(row.runs), func.sum(size)).where(row.cluster == cluster_id)
    with service.engine.connect() as connection:
        runs, stored = connection.execute(query).one()
    return runs or 1, stored or 0


def _signals(
    client: Client, service: ServiceProcess, cluster_id: str, patience: float = 60.0
) -> tuple[dict[str, dict[str, int]], int]:
    """Return how many spans and log records were made, dropped and stored; and how many of them
    are neither stored nor dropped, or both. First wait until it is none, or no more will come.
    """
    tables = {"unsent span": schema.span, "unsent log record": schema.log_record}
    deadline = time.monotonic() + patience
    while True:
        made, drops = client.run_on_scheduler(signals_and_drops)
        signals = {}
        with service.engine.connect() as connection:
            for what, table in tables.items():
                query = select(func.count()).where(table.c.cluster == cluster_id)
                signals[what] = {
                    "made": made.get(what, 0),
                    "dropped": drops.get(what, 0),
                    "stored": connection.execute(query).scalar() or 0,
                }
        missed = sum(abs(one["made"] - one["dropped"] - one["stored"]) for one in signals.values())
        if not missed or time.monotonic() > deadline:
            return signals, missed
        time.sleep(0.5)


def _dropped(drops: dict[str, int]) -> int:
    return drops.get("event", 0) + drops.get("unsent event", 0)
