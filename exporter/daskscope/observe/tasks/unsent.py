"""A queue of computations that have changed since they were sent, the longest waiting first."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from daskscope import protocol
from daskscope.containment import each_guarded, guarded
from daskscope.observe.tasks.computation import Computation, Traced
from daskscope.observe.tasks.groups import Group

#: Groups that may wait, each some 2 KB. Beyond it the oldest computations that do not run are
#: dropped and counted.
MAX_WAITING = 10_000

#: Rows to send, and data for traces by computation id.
Taken = tuple[list[protocol.Computation], list[protocol.TaskGroup], dict[str, Traced]]


class Unsent:
    """Computations to send, with those of their groups that have changed.

    ``never_began`` is called with a computation that is taken before any of its tasks was active.
    """

    def __init__(self, drops: Counter[str], never_began: Callable[[Computation], None]) -> None:
        self._drops = drops
        self._never_began = never_began
        self._waiting: deque[Computation] = deque()
        self._groups = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, computation: Computation) -> None:
        """Add a computation, even if none of its groups has changed."""
        if self._groups >= MAX_WAITING:
            self._make_room()
        self._waiting.append(computation)

    def note(self, group: Group) -> None:
        """Note that ``group`` has changed."""
        if not group.changed:
            group.changed = True
            computation = group.computation
            if not computation.changed:
                self.add(computation)
            computation.changed.append(group)
            self._groups += 1
            if computation.dropped:
                # Groups that do not change any more have not been sent, either.
                computation.dropped = False
                for other in computation.groups.values():
                    self.note(other)

    def note_any(self, computation: Computation) -> None:
        """Note that ``computation`` itself has changed."""
        self.note(next(iter(computation.groups.values())))

    def take(self, most: int, *, any_row: bool) -> Taken:
        """Return rows to send; see :meth:`.Computations.changed`."""
        computations: list[protocol.Computation] = []
        rows: list[protocol.TaskGroup] = []
        traced: dict[str, Traced] = {}
        cost = 0
        while self._waiting:
            computation = self._waiting[0]
            # The computation's row adds up its groups, which takes a fourth of the work of their
            # rows.
            cost += 1 + len(computation.changed) + len(computation.groups) // 4
            if cost > most and (computations or not any_row):
                break
            rows.extend(each_guarded(self._drops, Group.row, self._take_oldest()))
            row = guarded(self._drops, None, computation.row)
            if row is None:
                continue
            # All transitions are counted now, so the status is final.
            computation.over = computation.over or row.status != "running"
            computations.append(row)
            if computation.trace_id is not None:
                taken = traced[computation.id] = computation.take_traced()
                cost += len(taken.samples)
        return computations, rows, traced

    def _make_room(self) -> None:
        # A running computation stays, because its groups that have ended would never be sent. At
        # most two running ones are skipped per call, which bounds the work.
        running = 0
        while self._groups >= MAX_WAITING and running < 2:
            computation = self._waiting[0]
            if computation.runs:
                self._waiting.rotate(-1)
                running += 1
            else:
                self._take_oldest()
                computation.dropped = True
                self._drops["computation"] += 1

    def _take_oldest(self) -> list[Group]:
        """Remove the computation that waits longest. Return its groups that have changed."""
        computation = self._waiting.popleft()
        if not computation.runs and computation.ended_at is None:
            self._never_began(computation)
        changed, computation.changed = computation.changed, []
        self._groups -= len(changed)
        for group in changed:
            group.changed = False
        return changed
