"""Rows as services keep them, made from the little that a test wants to say. See tests.seed."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, Table, insert

from daskscope import names
from daskscope.codec import code_hash, pack_columns
from daskscope.protocol import STREAM_UNIT
from daskscope_service.db import schema
from daskscope_service.db.engine import make_workspace, writing
from tests.seed_groups import span_of, task_groups

GIB = 2**30
Rows = list[dict[str, Any]]

SETTINGS = {
    "otlp.enabled": "true",
    "computation.code.transmit": "true",
    "computation.exceptions.transmit": "true",
    "profile.transmit": "true",
    "profile.interval": "60s",
    "stream.transmit": "true",
    "logs.transmit": "true",
    "logs.level": "WARNING",
    "traces.transmit": "true",
    "traces.tasks-per-group": "10",
    "events.allow": "invalid-worker-transition, invalid-worker-task-state, worker-fail-hard",
    "idle.grace": "30s",
}


class SeedWriter:
    """Collects rows; :meth:`write` puts them into the tables. Times are seconds from ``now``."""

    def __init__(self, workspace: str, now: float) -> None:
        self._workspace = workspace
        self.now = now
        self._rows: dict[Table, Rows] = {}
        self._clusters: dict[str, dict[str, Any]] = {}
        self.chance = random.Random(7)

    def write(self, engine: Engine) -> None:
        with writing(engine) as connection:
            make_workspace(connection, self._workspace)
            for table, rows in self._rows.items():
                connection.execute(insert(table), rows)

    def add(self, table: Table, **values: Any) -> None:
        """Add a row of the workspace."""
        self._rows.setdefault(table, []).append({"workspace": self._workspace, **values})

    def rows(self, table: Table, **values: Any) -> Rows:
        """Return the rows that were added with these values."""
        return [
            row
            for row in self._rows.get(table, [])
            if all(row[name] == value for name, value in values.items())
        ]

    def cluster(
        self,
        id: str,
        *,
        name: str,
        user: str,
        started: float,
        workers: int,
        stopped: float | None = None,
        heard: float | None = None,
        idle: float | None = None,
        kind: str = "LocalCluster",
        host: str = "dask-01.internal",
        tags: dict[str, str] | None = None,
        mismatches: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        last = stopped if stopped is not None else heard if heard is not None else -3.0
        self._clusters[id] = {"user": user}
        self.add(
            schema.cluster,
            id=id,
            seq=100,
            name=name,
            kind=kind,
            user=user,
            host=host,
            started_at=self.now + started,
            stopped_at=None if stopped is None else self.now + stopped,
            interval=10.0,
            environment={
                "python": "3.12.7",
                "python_path": "/opt/conda/envs/features-2026.11/bin/python",
                "operating_system": "Linux",
                "architecture": "x86_64",
                "packages": {
                    "dask": "2026.8.0",
                    "distributed": "2026.8.0",
                    "numpy": "2.3.4",
                    "pandas": "2.3.3",
                    "pyarrow": "21.0.0",
                    "msgpack": "1.1.2",
                    "tornado": "6.5.2",
                    "cloudpickle": "3.1.2",
                },
            },
            tags=tags or {},
            first_seen_at=self.now + started + 1,
            # What runs keeps running for as long as a slow walk through all pages takes.
            last_seen_at=self.now + (3600 if stopped is None and heard is None else last),
            status_at=self.now + last,
            workers=0 if stopped is not None else workers,
            threads=0 if stopped is not None else workers * 4,
            memory_used=0 if stopped is not None else int(workers * 9.3 * GIB),
            memory_limit=workers * 16 * GIB,
            worker_seconds={"busy": 82_000.0, "idle": 41_000.0, "paused": 12.0},
            tasks={"memory": 412, "processing": 96, "waiting": 2210},
            clients=1,
            idle_seconds=idle,
            peak_workers=workers,
            peak_threads=workers * 4,
            peak_memory_used=int(workers * 13.9 * GIB),
            peak_memory_limit=workers * 16 * GIB,
            drops={"event": 12, "task group": 3} if name == "features-nightly" else {},
            deployment={"slurm.job.id": "918273"} if kind == "LocalCluster" else {},
            prices={"currency": "USD", "per_hour": {"thread": 0.06}} if tags else None,
            held_by={"clients": 1, "results": 412} if idle else {"running": 96, "processing": 96},
            scheduler={"cpu": 0.31, "memory": 402_653_184, "lag": 0.004},
            gpu=None,
            cost=2.05 if tags else None,
            idle_cost=0.68 if tags else None,
            settings=SETTINGS,
            mismatches=mismatches,
            busy_by=[] if idle else ["tasks are running"],
        )
        return id

    def code(self, file: str, first_line: int, text: str, cut: bool = False) -> tuple[str, str]:
        hash = code_hash(file, first_line, cut, text)
        self.add(schema.code, hash=hash, file=file, text=text, first_line=first_line, cut=cut)
        return file, hash

    def computation(
        self,
        cluster: str,
        id: str,
        status: str,
        started: float,
        stopped: float | None,
        code: tuple[str, str] | tuple[()] | None,
        call: int,
    ) -> tuple[str, str]:
        """``code`` is a file and its hash, () for no frame at all, None for code not sent."""
        tasks = 4_812 if status != "finished" else 1_204
        share = {"running": 0.62, "finished": 1.0, "erred": 0.81, "cancelled": 0.23}[status]
        frames: Rows | None = None if code is None else []
        if code:
            file, hash = code
            entry = "/opt/conda/envs/features-2026.11/lib/python3.12/site-packages/luigi/worker.py"
            frames = [
                {"file": entry, "line": 203, "code": None},
                {"file": file, "line": call, "code": hash},
            ]
        groups, totals = task_groups(id, status, tasks, share)
        for group in groups:
            ran = group["completed"] > 0
            until = min(-started, 280.0) if stopped is None else stopped - started
            begun, ended = span_of(groups.index(group))
            started_at = self.now + started + begun * until
            self.add(
                schema.task_group,
                cluster=cluster,
                computation=id,
                seq=100,
                **group,
                started_at=started_at if ran else None,
                stopped_at=None
                if stopped is None or not ran
                else self.now + started + ended * until,
            )
        self.add(
            schema.computation,
            cluster=cluster,
            id=id,
            seq=100,
            status=status,
            user=self._clusters[cluster]["user"],
            started_at=self.now + started,
            stopped_at=None if stopped is None else self.now + stopped,
            **totals,
            retried=4 if status == "running" else 0,
            frames=frames,
            spans=["nightly", "features"],
            trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
            cancelled=0 if status != "cancelled" else 3_705,
            annotations={"priority": "10", "team": "features"},
            graph_bytes=1_843_200,
        )
        return cluster, id

    def failure(
        self,
        where: tuple[str, str],
        fingerprint: str,
        type: str,
        function: str,
        message: str | None,
        traceback: str | None,
        count: int,
        last: float,
    ) -> None:
        self.add(
            schema.failure,
            cluster=where[0],
            computation=where[1],
            fingerprint=fingerprint,
            seq=100,
            type=type,
            function=function,
            message=message,
            traceback=traceback,
            count=count,
            first_at=self.now + last - 40,
            last_at=self.now + last,
            worker="tcp://10.4.12.7:41023",
            retried=0,
            user=self._clusters[where[0]]["user"],
        )

    def loss(
        self,
        cluster: str,
        id: str,
        name: str,
        reason: str,
        expected: bool,
        at: float,
        processing: int,
        memory: float | None,
    ) -> None:
        self.add(
            schema.worker_loss,
            cluster=cluster,
            id=id,
            seq=100,
            address="tcp://10.4.12.7:41023",
            name=name,
            at=self.now + at,
            reason=reason,
            expected=expected,
            processing=processing,
            memory_used=None if memory is None else int(memory),
            lifetime=3104.0,
            last_seen_at=self.now + at - 0.6,
            memory_limit=16 * GIB,
            nanny_memory=None if expected else int(15.4 * GIB),
            tasks={"read-parquet": processing} if processing else {},
            log=None
            if expected
            else ["distributed.worker.memory - WARNING - Unmanaged memory use is high"],
        )

    def shutdown(self, cluster: str, id: str, state: str, at: float, detail: str) -> None:
        self.add(
            schema.shutdown,
            cluster=cluster,
            id=id,
            seq=100,
            requested_by="idle.timeout",
            state=state,
            at=self.now + at,
            closes_at=self.now + at + 30,
            detail=detail,
        )

    def activity(self, cluster: str, prefix: str, **seconds: float) -> None:
        named = {name.replace("_", "-"): value for name, value in seconds.items()}
        self.add(schema.activity, cluster=cluster, prefix=prefix, seq=100, seconds=named)

    def profile(
        self,
        cluster: str,
        id: str,
        at: float,
        tree: dict[str, Any] | None = None,
        *,
        seconds: float = 812.5,
        unsampled: float = 47.5,
    ) -> None:
        tree = tree or {
            "lines": [
                {"file": "build.py", "function": "build", "line": 41, "text": "    load(path)"},
                {"file": "build.py", "function": "load", "line": 12, "text": None},
            ],
            "parent": [-1, 0],
            "line": [0, 1],
            "samples": [62_500, 40_100],
        }
        self.add(
            schema.profile,
            cluster=cluster,
            id=id,
            seq=100,
            started_at=self.now + at,
            stopped_at=self.now + at + 60,
            workers=24,
            seconds=seconds,
            cut=False,
            unsampled=unsampled,
            user=self._clusters[cluster]["user"],
            **tree,
        )

    def stream(
        self,
        cluster: str,
        id: str,
        at: float,
        workers: Sequence[str],
        prefixes: Sequence[str],
        entries: Sequence[Sequence[float]],
    ) -> None:
        """Add an interval of a task stream.

        An entry has the columns of protocol.STREAM_COLUMNS: indices, and seconds from ``at``.
        """
        rows = sorted(entries, key=lambda entry: entry[3])
        starts = [round(row[3] / STREAM_UNIT) for row in rows]
        columns = [[int(row[place]) for row in rows] for place in range(3)]
        columns.append([one - before for before, one in zip([0, *starts], starts, strict=False)])
        for place in range(4, 10):
            unit = 1 if place == 5 else STREAM_UNIT
            columns.append([round(row[place] / unit) for row in rows])
        counts = columns[5]
        self.add(
            schema.task_stream,
            cluster=cluster,
            id=id,
            seq=100,
            started_at=self.now + at,
            stopped_at=self.now + at + max(row[3] + row[4] for row in rows),
            runs=sum(counts),
            merged=sum(count for count in counts if count > 1),
            workers=list(workers),
            prefixes=list(prefixes),
            columns=pack_columns(columns),
        )

    def event(self, cluster: str, id: str, topic: str, message: Any, at: float) -> None:
        self.add(
            schema.event,
            cluster=cluster,
            id=id,
            seq=100,
            at=self.now + at,
            topic=topic,
            message=json.dumps(message),
            cut=False,
            user=self._clusters[cluster]["user"],
        )

    def series(
        self,
        cluster: str,
        metric: names.Metric,
        value: str | None,
        points: list[tuple[float, float]],
    ) -> None:
        """Add a line of ``metric``; ``value`` is that of its attribute, if it has one."""
        attributes = {metric.attributes[-1]: value} if value is not None else {}
        # Far above what the service hands out by itself, and apart for each workspace.
        apart = 1 + zlib.crc32(self._workspace.encode()) % 10**6
        number = apart * 10**9 + self.chance.randrange(10**9)
        self.add(
            schema.series,
            id=number,
            cluster=cluster,
            metric=metric.name,
            field="value",
            kind="counter" if metric.instrument == "counter" else "gauge",
            unit=metric.unit,
            attributes=json.dumps(attributes, sort_keys=True),
        )
        self._rows.setdefault(schema.point, []).extend(
            {"series": number, "time": round((self.now + at) * 1000), "value": value}
            for at, value in points
        )
