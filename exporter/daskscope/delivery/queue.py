"""The queue of rows that the service has not acknowledged yet.

Rows contain totals and have keys, so a later row replaces an earlier one. However long the service
is unreachable, the queue grows with the number of objects, not of reports. It is also bounded by a
number of rows and bytes for each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from daskscope import protocol
from daskscope.privacy import Cleared
from daskscope.protocol import key_of
from daskscope.size import size_of

#: Approximate bytes of rows in one heartbeat: well below what the service accepts, and few enough
#: that encoding one does not enlarge the scheduler's process.
BEAT_BYTES = 512 << 10

#: Pieces of code, and their bytes, that wait until the service asks for them.
MAX_CODE = 1_000
MAX_CODE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class _Kind:
    """Rows of one kind: those in ``field`` of a snapshot and of a heartbeat.

    At most ``limit`` rows and ``limit_bytes`` bytes wait, and at most ``per_beat`` go into one
    heartbeat. Rows that do not ``press`` change with every snapshot, like the status: they are sent
    along with it, and no heartbeat is sent for them alone.
    """

    field: str
    what: str
    key: Callable[[Any], Hashable]
    limit: int
    limit_bytes: int
    per_beat: int
    press: bool = True


_KINDS = (
    _Kind("computations", "computation", key_of(protocol.Computation), 5_000, 8 << 20, 200),
    _Kind("task_groups", "task group", key_of(protocol.TaskGroup), 10_000, 16 << 20, 1_000),
    _Kind("failures", "failure", key_of(protocol.Failure), 1_000, 8 << 20, 40),
    _Kind("worker_losses", "worker loss", key_of(protocol.WorkerLoss), 5_000, 12 << 20, 500),
    _Kind("events", "event", key_of(protocol.Event), 5_000, 4 << 20, 500),
    _Kind("activities", "activity", key_of(protocol.Activity), 1_000, 2 << 20, 1_000, press=False),
    _Kind("shutdowns", "shutdown", key_of(protocol.Shutdown), 100, 1 << 20, 100),
    _Kind("profiles", "profile", key_of(protocol.Profile), 200, 8 << 20, 5),
    _Kind("task_streams", "task stream", key_of(protocol.TaskStream), 1_000, 8 << 20, 20),
)
_CODE = _Kind("code", "code", key_of(protocol.Code), MAX_CODE, MAX_CODE_BYTES, 40)


#: By the field of a snapshot, the function that returns a row's key. A later row replaces an
#: earlier one with the same key.
KEYS = {kind.field: kind.key for kind in (*_KINDS, _CODE)}


class _Rows:
    """Rows of one kind by key, their sizes in bytes, and which of them are not in the spool."""

    def __init__(self, kind: _Kind) -> None:
        self.kind = kind
        self._rows: dict[Hashable, tuple[Any, int]] = {}
        self._bytes = 0
        self._fresh: dict[Hashable, None] = {}
        self._settled: set[Hashable] = set()

    def __len__(self) -> int:
        return len(self._rows)

    def press(self) -> bool:
        return self.kind.press and bool(self._rows)

    def put(self, row: Any) -> None:
        key = self.kind.key(row)
        self._remove(key)
        weight = size_of(row)
        self._rows[key] = row, weight
        self._bytes += weight
        self._fresh[key] = None

    def settle(self, key: Hashable) -> None:
        """Note that dropping that row is no loss."""
        if key in self._rows:
            self._settled.add(key)

    def make_room(self) -> tuple[int, int]:
        """Drop the oldest rows beyond the limits; return how many are lost, how many spooled."""
        lost = spooled = 0
        while len(self._rows) > self.kind.limit or self._bytes > self.kind.limit_bytes:
            oldest = next(iter(self._rows))
            if oldest not in self._settled:
                if oldest in self._fresh:
                    lost += 1
                else:
                    spooled += 1
            self._remove(oldest)
        return lost, spooled

    def next(self, most: int, room: int, *, fresh: bool) -> tuple[tuple[Any, ...], int]:
        """Return the rows that have waited longest, at most ``most``, and their size in bytes.

        With ``fresh``, only rows that are not in the spool. If ``room``, in bytes, is too small for
        one row, return none.
        """
        rows: list[Any] = []
        taken = 0
        for key in self._fresh if fresh else self._rows:
            row, weight = self._rows[key]
            if len(rows) == most or taken + min(weight, BEAT_BYTES // 2) > room:
                break
            rows.append(row)
            taken += weight
        return tuple(rows), taken

    def get(self, key: Hashable) -> Any:
        known = self._rows.get(key)
        return None if known is None else known[0]

    def fresh_ones_press(self) -> int:
        return len(self._fresh) if self.kind.press else 0

    def remove(self, rows: Iterable[Any]) -> int:
        """Remove ``rows``, unless they have changed meanwhile; return how many were removed."""
        latest = [row for row in rows if self._is_latest(row)]
        for row in latest:
            self._remove(self.kind.key(row))
        return len(latest)

    def spooled(self, rows: Iterable[Any]) -> None:
        for row in rows:
            if self._is_latest(row):
                self._fresh.pop(self.kind.key(row), None)

    def spool_is_gone(self) -> None:
        self._fresh = dict.fromkeys(self._rows)

    def _is_latest(self, row: Any) -> bool:
        return self.get(self.kind.key(row)) is row

    def _remove(self, key: Hashable) -> None:
        known = self._rows.pop(key, None)
        if known is not None:
            self._bytes -= known[1]
            self._fresh.pop(key, None)
            self._settled.discard(key)


class DeliveryQueue:
    """Collects rows of snapshots, and makes heartbeats of unacknowledged ones. Not thread-safe."""

    def __init__(self, first_seq: int, drops: Counter[str]) -> None:
        self._seq = first_seq
        self._drops = drops
        self._last: Cleared | None = None
        self._kinds = [_Rows(kind) for kind in _KINDS]
        # Code waits here until the service asks for it; it already has most of it.
        self._code = _Rows(_CODE)
        self._wanted = _Rows(_CODE)
        #: Whether rows were dropped from memory that are only in the spool now.
        self.overflowed = False

    def add(self, snapshot: Cleared) -> None:
        """Add the rows of a snapshot."""
        self._last = snapshot
        for rows in self._kinds:
            for row in getattr(snapshot, rows.kind.field):
                rows.put(row)
            self._make_room(rows)
        for code in snapshot.code:
            self._code.put(code)
        self._make_room(self._code)

    def _make_room(self, rows: _Rows) -> None:
        lost, spooled = rows.make_room()
        if lost:
            self._drops[f"unsent {rows.kind.what}"] += lost
        self.overflowed |= spooled > 0

    def rows_wait(self) -> bool:
        """Return whether there is more to send than the cluster's status."""
        return any(rows.press() for rows in (*self._kinds, self._wanted))

    def __len__(self) -> int:
        return sum(map(len, self._kinds)) + len(self._wanted)

    @property
    def ended(self) -> bool:
        """Whether the last snapshot reported the cluster's end."""
        return self._last is not None and self._last.phase == "stop"

    def beat(self, now: float, share: float = 1.0) -> protocol.Heartbeat:
        """Return the next heartbeat: the cluster's status and as many rows as one heartbeat takes.

        ``share`` (0 to 1) reduces the usual number of rows, if the service refuses larger
        heartbeats.
        """
        return self._beat(now, [*self._kinds, self._wanted], share)

    def beat_to_spool(self, now: float) -> protocol.Heartbeat:
        """Return a heartbeat of rows that are not in the spool yet.

        It contains the code, because a later process that delivers it could not answer a request
        for code.
        """
        return self._beat(now, [*self._kinds, self._code], 1.0, fresh=True)

    def _beat(
        self, now: float, kinds: Iterable[_Rows], share: float, *, fresh: bool = False
    ) -> protocol.Heartbeat:
        assert self._last is not None, "nothing was added"
        self._seq += 1
        room = BEAT_BYTES
        parts: dict[str, tuple[Any, ...]] = {}
        for rows in kinds:
            most = max(int(rows.kind.per_beat * share), 1)
            parts[rows.kind.field], taken = rows.next(most, room, fresh=fresh)
            room -= taken
        return protocol.Heartbeat(
            protocol=protocol.PROTOCOL,
            seq=self._seq,
            phase=self._last.phase,
            sent_at=now,
            cluster=self._last.cluster,
            status=self._last.status,
            # Services and collectors say how much they rejected: any number.
            drops={
                what: min(count, protocol.MAX_COUNT) for what, count in dict(self._drops).items()
            },
            **parts,
        )

    def acknowledge(self, beat: protocol.Heartbeat, code_wanted: Iterable[str] = ()) -> None:
        """Remove the rows of ``beat``, which the service has stored; queue the code it wants."""
        for rows in (*self._kinds, self._wanted):
            rows.remove(getattr(beat, rows.kind.field))
        for computation in beat.computations:
            for frame in computation.frames or ():
                # The service has that code, or asks for it now.
                self._code.settle(frame.code)
        just_sent = {code.hash for code in beat.code}
        for hash in code_wanted:
            if hash in just_sent:
                continue  # it was sent: avoid an endless loop if the service asks again
            code = self._code.get(hash)
            if code is not None:
                self._wanted.put(code)
        self._make_room(self._wanted)

    def refuse(self, beat: protocol.Heartbeat) -> None:
        """Drop and count the rows of ``beat``, which the service will never accept."""
        for rows in (*self._kinds, self._wanted):
            self._drops["refused row"] += rows.remove(getattr(beat, rows.kind.field))

    def spooled(self, beat: protocol.Heartbeat) -> None:
        """Note that ``beat`` is in the spool."""
        for rows in (*self._kinds, self._code):
            rows.spooled(getattr(beat, rows.kind.field))

    def all_spooled(self) -> bool:
        """Return whether every row that waits and presses is in the spool."""
        return not self.unkept()

    def unkept(self) -> int:
        """Return how many rows that press are only in memory."""
        return sum(rows.fresh_ones_press() for rows in self._kinds)

    def spool_is_gone(self) -> None:
        """Note that the data in the spool was delivered or is lost."""
        self.overflowed = False
        for rows in (*self._kinds, self._code):
            rows.spool_is_gone()
