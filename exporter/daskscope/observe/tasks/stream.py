"""The task stream: when, where and how long each run of a task computed.

Runs are noted where they are counted, in the thread that counts. What is sent of them is made of
the notes in the thread that clears snapshots. The number of runs that are sent one by one is
bounded; the rest are merged by worker, prefix and time. Tasks' keys are never noted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from heapq import heappush, heapreplace
from itertools import chain
from math import inf
from operator import sub
from typing import Any

from distributed.metrics import time

from daskscope import codec, protocol
from daskscope.names import OTHER
from daskscope.observe.tasks.runs import Action, Outcome
from daskscope.protocol import STREAM_OUTCOMES, STREAM_UNIT

#: Runs that are noted before they are merged: some two milliseconds' work, often on the event loop.
MAX_NOTED = 500
#: The most entries of one interval, each some ten bytes: if it has no more runs, these are sent one
#: by one.
MAX_ENTRIES = 4_000
#: Entries that a cluster may send at first, and then for each further run. So a million runs take
#: some two megabytes, however fast they are. An interval may always have some.
AT_FIRST, PER_RUN, MIN_ENTRIES = 100_000, 0.125, 40
#: Where an interval has too many runs: the shares of its entries that are failed runs, the slowest
#: of the others, and merged runs.
FAILED, SLOWEST, MERGED = 0.25, 0.25, 0.5

#: The seconds for which runs are merged; the next ones where that makes too many entries. After the
#: last, those of all prefixes are merged, then those of all workers.
_SLOTS = (0.5, 2.0, 8.0, 32.0, inf)
_LEVELS = len(_SLOTS) + 2

# A run in the flat list of notes: worker, prefix, outcome, start and stop of computing, seconds of
# transfers and of disk.
_OF_RUN = 7

#: A run as it was noted and, as in :class:`.protocol.TaskStream` but in seconds, its count, seconds
#: and longest. A list, because what is added to it changes.
_Entry = list[Any]


class _Merged:
    """Runs that are sent one by one, and the others, merged: ``most`` entries in all.

    ``runs`` is how many were added. To add one takes some two microseconds, however many there are,
    so that few at a time hold nobody up.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.runs = 0
        # A flat list. Once any are merged: of the failed ones.
        self._whole: list[Any] = []
        # Those that took longest: a heap, by the seconds.
        self._slowest: list[tuple[float, tuple[Any, ...]]] = []
        self._entries: dict[Any, _Entry] = {}
        self._level = 0
        self._merges = False

    def copy(self) -> _Merged:
        other = _Merged(self.most)
        other.runs, other._level, other._merges = self.runs, self._level, self._merges
        other._whole, other._slowest = self._whole.copy(), self._slowest.copy()
        other._entries = {key: entry.copy() for key, entry in self._entries.items()}
        return other

    def add(self, noted: list[Any]) -> None:
        """Add runs from a flat list."""
        self.runs += len(noted) // _OF_RUN
        if not self._merges:
            if self.runs <= self.most:
                self._whole += noted
                return
            noted, self._whole, self._merges = self._whole + noted, [], True
        failed, slowest, most = (int(self.most * part) for part in (FAILED, SLOWEST, MERGED))
        whole, slow, entries = self._whole, self._slowest, self._entries
        slots = _SLOTS[min(self._level, len(_SLOTS) - 1)]
        for run in zip(*[iter(noted)] * _OF_RUN, strict=True):
            worker, prefix, outcome, start, stop, transfer, disk = run
            seconds = stop - start
            if outcome != "finished":
                if len(whole) < failed * _OF_RUN:
                    whole += run
                    continue
            elif len(slow) < slowest:
                heappush(slow, (seconds, run))
                continue
            elif seconds > slow[0][0]:
                seconds, run = heapreplace(slow, (seconds, run))
                worker, prefix, outcome, start, stop, transfer, disk = run
            # As in _put: a call for each run would take as long as all else here.
            key = (worker, prefix, outcome, start // slots)
            entry = entries.get(key) if self._level < len(_SLOTS) else None
            if entry is None:
                self._put([*run, 1, seconds, seconds])
                if len(entries) > most:
                    entries = self._coarser(most)
                    slots = _SLOTS[min(self._level, len(_SLOTS) - 1)]
                continue
            if start < entry[3]:
                entry[3] = start
            if stop > entry[4]:
                entry[4] = stop
            entry[5] += transfer
            entry[6] += disk
            entry[7] += 1
            entry[8] += seconds
            if seconds > entry[9]:
                entry[9] = seconds

    def whole(self) -> list[Any]:
        """Return the runs that are sent one by one, in a flat list."""
        return [*self._whole, *chain.from_iterable(run for _, run in self._slowest)]

    def count(self) -> int:
        """Return how many runs are sent one by one."""
        return len(self._whole) // _OF_RUN + len(self._slowest)

    def entries(self) -> list[_Entry]:
        """Return the merged runs."""
        return [*self._entries.values()]

    def _put(self, entry: _Entry) -> None:
        if self._level >= len(_SLOTS):
            entry[1] = OTHER
        if self._level > len(_SLOTS):
            entry[0] = ""
        key = (*entry[:3], entry[3] // _SLOTS[min(self._level, len(_SLOTS) - 1)])
        one = self._entries.setdefault(key, entry)
        if one is not entry:
            one[3], one[4] = min(one[3], entry[3]), max(one[4], entry[4])
            for place in range(5, 9):
                one[place] += entry[place]
            one[9] = max(one[9], entry[9])

    def _coarser(self, most: int) -> dict[Any, _Entry]:
        """Merge more, until there are at most ``most`` entries, and return them."""
        while len(self._entries) > most and self._level + 1 < _LEVELS:
            self._level += 1
            before, self._entries = self._entries, {}
            for entry in before.values():
                self._put(entry)
        return self._entries


@dataclass(frozen=True, slots=True)
class RawStream:
    """The runs of one interval, as they were noted."""

    id: str
    _noted: list[Any]
    _merged: _Merged

    def noted(self) -> int:
        """Return how many runs it holds, merged ones aside."""
        return len(self._noted) // _OF_RUN + self._merged.count()

    def row(self) -> protocol.TaskStream:
        """Return the row to send. It takes a while: not for the event loop."""
        merged = self._merged.copy()
        merged.add(self._noted)
        runs, entries = merged.whole(), merged.entries()
        # In columns, which takes half the time that it takes run by run.
        places = range(_OF_RUN)
        noted = [runs[at::_OF_RUN] + [entry[at] for entry in entries] for at in places]
        begins, ends, transfers, disks = (_units(noted[at]) for at in (3, 4, 5, 6))
        base = min(begins)
        order = sorted(range(len(begins)), key=begins.__getitem__)
        starts = [begin - base for begin in map(begins.__getitem__, order)]
        workers, prefixes, outcomes = (
            {name: at for at, name in enumerate(dict.fromkeys(names))} for names in noted[:3]
        )
        one_by_one = len(begins) - len(entries)
        counts = [1] * one_by_one + [entry[7] for entry in entries]
        seconds, longest = (
            [0] * one_by_one + _units([entry[at] if entry[7] > 1 else 0.0 for entry in entries])
            for at in (8, 9)
        )
        known = {outcome: STREAM_OUTCOMES.index(outcome) for outcome in outcomes}
        columns = (
            list(map(workers.__getitem__, noted[0])),
            list(map(prefixes.__getitem__, noted[1])),
            list(map(known.__getitem__, noted[2])),
            list(map(sub, ends, begins)),
            counts,
            seconds,
            longest,
            transfers,
            disks,
        )
        ordered = [list(map(column.__getitem__, order)) for column in columns]
        ordered.insert(3, [0, *map(sub, starts[1:], starts)])
        return protocol.TaskStream(
            id=self.id,
            started_at=base * STREAM_UNIT,
            stopped_at=max(ends) * STREAM_UNIT,
            runs=sum(counts),
            merged=sum(count for count in counts if count > 1),
            workers=tuple(workers),
            prefixes=tuple(prefixes),
            columns=codec.pack_columns(ordered),
        )


class Stream:
    """Notes runs until they are taken. Not thread-safe."""

    def __init__(self, drops: Counter[str]) -> None:
        self._drops = drops
        self._noted: list[Any] = []
        self._may_send = float(AT_FIRST)
        self._merged = _Merged(MAX_ENTRIES)
        self._latest = time() + protocol.MAX_AHEAD / 2

    def ran(self, worker: str | None, prefix: str, actions: list[Action], outcome: Outcome) -> None:
        """Note a run, if it computed."""
        transfer = disk = 0.0
        if len(actions) == 1:  # most runs
            [computed] = actions
        else:
            computed = ("", 0.0, 0.0)
            for action in actions:
                name, start, stop = action
                if name == "compute":
                    computed = action
                elif name == "transfer":
                    transfer += stop - start
                elif name in ("disk-read", "disk-write"):
                    disk += stop - start
        name, start, stop = computed
        if name != "compute":
            return
        most = protocol.MAX_AMOUNT
        valid = protocol.EARLIEST <= start <= stop <= self._latest
        if not valid or not (0 <= transfer <= most and 0 <= disk <= most):
            self._drops["run without valid times"] += 1
            return
        noted = self._noted
        noted += (worker or "", prefix, outcome, start, stop, transfer, disk)
        if len(noted) >= MAX_NOTED * _OF_RUN:
            self._merged.add(noted)
            noted.clear()

    def take(self) -> tuple[RawStream, ...]:
        """Return the runs since the last call. On the event loop, in a moment."""
        noted, merged, now = self._noted, self._merged, time()
        self._latest = now + protocol.MAX_AHEAD / 2
        if not noted and not merged.runs:
            return ()
        self._noted = []
        runs = merged.runs + len(noted) // _OF_RUN
        left = self._may_send + runs * PER_RUN - min(runs, merged.most)
        self._may_send = min(max(left, 0.0), AT_FIRST)
        self._merged = _Merged(min(max(int(self._may_send), MIN_ENTRIES), MAX_ENTRIES))
        return (RawStream(f"{now:.6f}", noted, merged),)


def _units(seconds: list[float]) -> list[int]:
    return [round(one / STREAM_UNIT) if one else 0 for one in seconds]
