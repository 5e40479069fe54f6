"""What the service has not acknowledged yet.

Rows are absolute and have keys, so that a later one takes an earlier one's place: however long the
service is away, what waits is bounded by what there is, not by how often it was told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Generic, TypeVar

from daskscope import protocol
from daskscope.privacy import Cleared

Row = TypeVar("Row")


class _Rows(Generic[Row]):
    """Rows of one kind by key: at most ``limit`` wait, at most ``per_beat`` go at once."""

    def __init__(
        self, what: str, key: Callable[[Row], Hashable], limit: int, per_beat: int
    ) -> None:
        self._what = what
        self._key = key
        self._limit = limit
        self._per_beat = per_beat
        self._rows: dict[Hashable, Row] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def put(self, rows: Iterable[Row], drops: Counter[str]) -> None:
        for row in rows:
            self._rows[self._key(row)] = row
            if len(self._rows) > self._limit:
                del self._rows[next(iter(self._rows))]
                drops[self._what] += 1

    def next(self, share: float) -> tuple[Row, ...]:
        return tuple(islice(self._rows.values(), max(int(self._per_beat * share), 1)))

    def acknowledge(self, rows: Iterable[Row]) -> None:
        for row in rows:
            key = self._key(row)
            # It may have changed while it was under way.
            if self._rows.get(key) is row:
                del self._rows[key]


class Pending:
    """Collects snapshots, and makes beats of what is not acknowledged."""

    def __init__(self, first_seq: int, drops: Counter[str]) -> None:
        self._seq = first_seq
        self._drops = drops
        self._last: Cleared | None = None
        self._computations = _Rows[protocol.Computation](
            "unsent computation", lambda row: row.id, 10_000, 200
        )
        self._task_groups = _Rows[protocol.TaskGroup](
            "unsent task group", lambda row: (row.computation, row.name), 50_000, 1_000
        )
        self._failures = _Rows[protocol.Failure](
            "unsent failure", lambda row: (row.computation, row.fingerprint), 2_000, 40
        )
        self._losses = _Rows[protocol.WorkerLoss](
            "unsent worker loss", lambda row: row.id, 2_000, 500
        )
        self._events = _Rows[protocol.Event]("unsent event", lambda row: row.id, 5_000, 500)
        # Code stays here until it is asked for; most is known to the service already.
        self._code: dict[str, protocol.Code] = {}
        self._wanted = _Rows[protocol.Code]("unsent code", lambda row: row.hash, 1_000, 40)

    def add(self, snapshot: Cleared) -> None:
        """Take in what a snapshot tells."""
        self._last = snapshot
        self._computations.put(snapshot.computations, self._drops)
        self._task_groups.put(snapshot.task_groups, self._drops)
        self._failures.put(snapshot.failures, self._drops)
        self._losses.put(snapshot.worker_losses, self._drops)
        self._events.put(snapshot.events, self._drops)
        for code in snapshot.code:
            self._code[code.hash] = code
            if len(self._code) > 1_000:
                del self._code[next(iter(self._code))]

    def rows_wait(self) -> bool:
        """Return whether there is more to send than the cluster's status."""
        return any(
            (
                self._computations,
                self._task_groups,
                self._failures,
                self._losses,
                self._events,
                self._wanted,
            )
        )

    def beat(self, now: float, share: float = 1.0) -> protocol.Heartbeat:
        """Return the next beat: the cluster's status and as many rows as one beat takes.

        ``share`` (0 to 1) of the usual number of rows, for a service that finds them too large.
        """
        assert self._last is not None, "nothing was added"
        self._seq += 1
        return protocol.Heartbeat(
            protocol=protocol.PROTOCOL,
            seq=self._seq,
            phase=self._last.phase,
            sent_at=now,
            cluster=self._last.cluster,
            status=self._last.status,
            computations=self._computations.next(share),
            task_groups=self._task_groups.next(share),
            failures=self._failures.next(share),
            worker_losses=self._losses.next(share),
            events=self._events.next(share),
            code=self._wanted.next(share),
            drops=dict(self._drops),
        )

    def acknowledge(self, beat: protocol.Heartbeat, code_wanted: Iterable[str] = ()) -> None:
        """The service has kept ``beat`` and would like to have some code."""
        self._computations.acknowledge(beat.computations)
        self._task_groups.acknowledge(beat.task_groups)
        self._failures.acknowledge(beat.failures)
        self._losses.acknowledge(beat.worker_losses)
        self._events.acknowledge(beat.events)
        self._wanted.acknowledge(beat.code)
        self._wanted.put([self._code[key] for key in code_wanted if key in self._code], self._drops)

    def refuse(self, beat: protocol.Heartbeat) -> None:
        """The service will never take ``beat``: let its rows go, and count them."""
        for rows in (
            beat.computations,
            beat.task_groups,
            beat.failures,
            beat.worker_losses,
            beat.events,
            beat.code,
        ):
            self._drops["refused row"] += len(rows)
        self.acknowledge(beat)
