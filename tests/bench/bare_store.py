"""The least that could keep heartbeats as the service promises: what to hold its speed against.

Figures of two machines, or of two hours of one, do not compare; what share of a bare prototype's
speed the service has, does. It decodes beats, writes those that wait together in one transaction,
and answers once that is on the disk. There is no Flask, token, workspace, log or count, nothing is
checked, and what is kept has no index but its key.
"""

from __future__ import annotations

import os
import queue
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Self

import msgspec
import requests

from daskscope.protocol import Heartbeat, Reply
from tests.ports import free_port

_FILE = "BARE_STORE_FILE"
_THREADS = 16
_START_SECONDS, _STOP_SECONDS = 30.0, 10.0

#: Columns by table; the first ones, as many as told, are the key.
_TABLES = {
    "cluster": (1, "id seq name user host started_at at workers threads memory tasks seconds tags"),
    "computation": (
        2,
        "cluster id seq status user started_at stopped_at tasks completed erred states seconds "
        "frames spans",
    ),
    "task_group": (
        3,
        "cluster computation name seq prefix tasks completed erred states seconds output "
        "started_at stopped_at",
    ),
}
#: Rows that one statement writes.
_ROWS_AT_ONCE = (128, 64, 32, 16, 8, 4, 2, 1)

_decode = msgspec.json.Decoder(Heartbeat).decode
_encode = msgspec.json.Encoder().encode

#: The rows of one beat, table by table, and what is released once they are committed.
_Waiting = tuple[tuple[list[tuple[Any, ...]], ...], threading.Lock]


def make_app() -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """Return the WSGI application, on the database that the environment names."""
    waiting: queue.SimpleQueue[_Waiting] = queue.SimpleQueue()
    threading.Thread(target=_write, args=(os.environ[_FILE], waiting), daemon=True).start()

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "GET":
            start("200 OK", [("Content-Length", "0")])
            return []
        beat = _decode(zlib.decompress(environ["wsgi.input"].read(), 16 + zlib.MAX_WBITS))
        done = threading.Lock()
        done.acquire()
        waiting.put((_rows(beat), done))
        done.acquire()
        body = _encode(Reply(server_time=time.time(), interval=beat.cluster.interval))
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return app


def _rows(beat: Heartbeat) -> tuple[list[tuple[Any, ...]], ...]:
    c, s = beat.cluster, beat.status
    clusters = [
        (
            c.id, beat.seq, c.name, c.user, c.host, c.started_at, s.at, s.workers, s.threads,
            s.memory_used, _json(s.tasks), _json(s.worker_seconds), _json(c.tags),
        )
    ]  # fmt: skip
    computations = [
        (
            c.id, one.id, beat.seq, one.status, one.user, one.started_at, one.stopped_at, one.tasks,
            one.completed, one.erred, _json(one.states), _json(one.seconds), _json(one.frames),
            _json(one.spans),
        )
        for one in beat.computations
    ]  # fmt: skip
    groups = [
        (
            c.id, g.computation, g.name, beat.seq, g.prefix, g.tasks, g.completed, g.erred,
            _json(g.states), _json(g.seconds), g.output_bytes, g.started_at, g.stopped_at,
        )
        for g in beat.task_groups
    ]  # fmt: skip
    return clusters, computations, groups


def _json(value: Any) -> str:
    return _encode(value).decode()


def _write(file: str, waiting: queue.SimpleQueue[_Waiting]) -> None:
    database = sqlite3.connect(file, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    upserts = []
    for table, (key, text) in _TABLES.items():
        columns = text.split()
        keys = ", ".join(columns[:key])
        database.execute(
            f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({keys})) WITHOUT ROWID"
        )
        row = f"({', '.join('?' * len(columns))})"
        new = ", ".join(f"{name} = excluded.{name}" for name in columns[key:])
        upserts.append(
            [
                (
                    number,
                    f"INSERT INTO {table} VALUES {', '.join([row] * number)} "
                    f"ON CONFLICT DO UPDATE SET {new} WHERE excluded.seq >= {table}.seq",
                )
                for number in _ROWS_AT_ONCE
            ]
        )
    while True:
        group = [waiting.get()]
        while not waiting.empty():
            group.append(waiting.get())
        database.execute("BEGIN IMMEDIATE")
        for place, sizes in enumerate(upserts):
            rows = list(chain.from_iterable(batch[place] for batch, _ in group))
            written = 0
            for number, sql in sizes:
                while len(rows) - written >= number:
                    some = rows[written : written + number]
                    database.execute(sql, tuple(chain.from_iterable(some)))
                    written += number
        database.execute("COMMIT")
        for _, done in group:
            done.release()


class BareStore:
    """The application in a process of its own, on the server that the service has, until closed."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        folder.mkdir()
        command = [sys.executable, "-m", "granian", f"{__name__}:make_app", "--factory"]
        command += ["--interface", "wsgi", "--port", str(self.port), "--log-level", "error"]
        command += ["--workers", "1", "--blocking-threads", str(_THREADS)]
        self._process = subprocess.Popen(
            command, env=os.environ | {_FILE: str(folder / "bare.db")}, stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError("the bare prototype did not start")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        """The process that was started; the one that serves is its child."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        finally:
            self._process.kill()

    def _answers(self) -> bool:
        try:
            return requests.get(f"http://127.0.0.1:{self.port}/", timeout=5).ok
        except requests.ConnectionError:
            return False
