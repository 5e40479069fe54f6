"""Dask's fine performance metrics of the workers, read from the scheduler.

Dask adds up its workers' measurements in ``Scheduler.cumulative_worker_metrics``. Its keys are
``(context, …, label, unit)``. These are read:

- ``("execute", prefix, label, "seconds")``: a task's whole time in one of its worker's threads,
  from before it is unpacked until its result is stored. Within a task the labels do not overlap.
- ``("gather-dep", label, "seconds")``: fetching data that tasks need. It happens outside the
  threads, several at once.
- ``(context, "disk-read" or "disk-write", "bytes")``: data read back from disk, and data spilled.
- ``("get-data", "memory-read" or "disk-read", "bytes")``: data that other workers and clients
  fetched.

These are not read: ``get-data`` and ``memory-monitor`` seconds, which are spent outside the
threads; ``p2p``, whose ``foreground`` counts ``execute`` twice; and keys that are plain strings,
whose meaning is unknown.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any, NamedTuple

from daskscope.names import OTHER
from daskscope.observe.naming import Naming
from daskscope.protocol import MAX_NAME

#: Keys that are read. The time of further keys stays unattributed, and the keys are counted.
MAX_KEYS = 10_000
#: New keys per snapshot, to keep it short; the others are read in the next.
MAX_NEW_KEYS = 500
#: Keys of bytes that are added up between two snapshots; further keys are read only in snapshots.
MAX_BYTE_KEYS = 500

# The activity of each label. Users and shuffles add labels of their own.
_ACTIVITIES = {
    "thread-cpu": "thread-cpu",
    "thread-noncpu": "thread-noncpu",
    "disk-read": "disk-read",
    "disk-write": "disk-write",
    "network": "transfer",
    "serialize": "serialize",
    "deserialize": "deserialize",
    "compress": "compress",
    "decompress": "decompress",
    "executor": "executor",
    "failed": "failed",
    "cancelled": "cancelled",
    "p2p-shard-partition-cpu": "thread-cpu",
    "p2p-shard-partition-noncpu": "thread-noncpu",
    "p2p-get-output-cpu": "thread-cpu",
    "p2p-get-output-noncpu": "thread-noncpu",
    "p2p-disk-read": "disk-read",
}

# Labels of what happens between a task's start and its stop, as do those that users add. Dask calls
# what is left of its whole time "other".
_COMPUTING = frozenset({"thread-cpu", "thread-noncpu", "failed"})
_LEFT = "other"


class _Target(NamedTuple):
    """The target of a key's value: a prefix and an activity, or one of those below.

    ``computing`` is whether it is of the time between a task's start and its stop.
    """

    name: str
    activity: str = ""
    computing: bool = False


_GATHERED = _Target("gathered")
_SPILLED = _Target("spilled")
_UNSPILLED = _Target("unspilled")
_SERVED = _Target("served")
_SERVED_FROM_DISK = _Target("served from disk")


@dataclass(frozen=True, slots=True)
class Measured:
    """The workers' measurements since the plugin started.

    ``seconds`` are thread-seconds of tasks that have ended, by prefix and activity; ``gathered``
    are seconds of fetching, not of threads. ``computing`` is the part of ``seconds``, by prefix,
    between the tasks' start and stop as Dask's transitions have them. The rest is in bytes: spilled
    to disk, read back, and served to workers and clients; None if no worker measures it.
    """

    seconds: dict[str, dict[str, float]]
    computing: dict[str, float]
    gathered: float
    spilled: float | None
    unspilled: float | None
    served: float | None


class WorkerMetrics:
    """Reads ``metrics``, a mapping that only grows, and interprets each key only once."""

    def __init__(self, metrics: Mapping[Any, float], naming: Naming, drops: Counter[str]) -> None:
        self._metrics = metrics
        self._naming = naming
        self._drops = drops
        # The values before the plugin started.
        self._before = dict(islice(metrics.items(), MAX_KEYS))
        # For each known key, in their order: whether it is read.
        self._read = bytearray()
        # For each key that is read: the slot of its value, what is subtracted from it, and what it
        # was at the last look.
        self._slot_of: list[int] = []
        self._base: list[float] = []
        self._latest: list[float] = []
        self._slots: dict[_Target, int] = {}
        # For each slot: what keys had added that have moved to another slot since.
        self._moved: list[float] = []
        # For each slot: its total at the last look, and the part that is not sent.
        self._last: list[float] = []
        self._untold: list[float] = []
        # By prefix: seconds from before the plugin started, to subtract from those reported next.
        self._too_many: dict[str, float] = {}
        # By Dask's prefix, the keys that are read: index among the keys read, and target.
        self._keys_of: dict[str, list[tuple[int, _Target]]] = {}
        self._beyond = 0

    def read(self, took_before: Mapping[str, float]) -> Measured:
        """Return the current totals.

        ``took_before`` is the time, by Dask's own prefix, that ended tasks spent before the plugin
        started or outside the counted threads. Workers report it together with the rest of a task's
        time.
        """
        for prefix, took in took_before.items():
            known = self._naming.known(prefix)
            self._too_many[known] = self._too_many.get(known, 0.0) + took
        self._meet()
        self._move()
        totals = list(self._moved)
        self._latest = list(compress(self._metrics.values(), self._read))
        for slot, base, value in zip(self._slot_of, self._base, self._latest, strict=False):
            totals[slot] += value - base
        self._leave_out(totals)
        self._last = totals
        seconds: dict[str, dict[str, float]] = {}
        computing: dict[str, float] = {}
        others: dict[_Target, float] = {}
        for target, slot in self._slots.items():
            total = totals[slot] - self._untold[slot]
            # A user's own code may have reported any number, which must not spoil the sums.
            if not (total > 0 and math.isfinite(total)):
                total = 0.0
            prefix, activity, of_compute = target
            if not activity:
                others[target] = total
                continue
            row = seconds.setdefault(prefix, {})
            row[activity] = row.get(activity, 0.0) + total
            if of_compute:
                computing[prefix] = computing.get(prefix, 0.0) + total
        for prefix, row in seconds.items():
            # In a process of its own, nothing of a task is measured but its executor's time.
            computing[prefix] = max(computing.get(prefix, 0.0), row.get("executor", 0.0))
        return Measured(
            seconds=seconds,
            computing=computing,
            gathered=others.get(_GATHERED, 0.0),
            spilled=others.get(_SPILLED),
            unspilled=_sum(others.get(_UNSPILLED), others.get(_SERVED_FROM_DISK)),
            served=_sum(others.get(_SERVED), others.get(_SERVED_FROM_DISK)),
        )

    def _meet(self) -> None:
        met, there = len(self._read), len(self._metrics)
        for key in islice(self._metrics, met, min(met + MAX_NEW_KEYS, MAX_KEYS)):
            target = self._target(key)
            self._read.append(target is not None)
            if target is not None:
                self._slot_of.append(self._slot(target))
                self._base.append(self._before.pop(key, 0.0))
        beyond = max(there - MAX_KEYS, 0)
        if beyond > self._beyond:
            self._drops["worker metric"] += beyond - self._beyond
            self._beyond = beyond

    def _move(self) -> None:
        # What was sent stays in the old slot, because totals must never decrease. What has come
        # since is of the new one.
        for prefix in self._naming.renamed():
            for place, target in self._keys_of.get(prefix, ()):
                slot = self._slot(target._replace(name=self._naming.known(prefix)))
                if slot != self._slot_of[place] and place < len(self._latest):
                    self._moved[self._slot_of[place]] += self._latest[place] - self._base[place]
                    self._base[place] = self._latest[place]
                self._slot_of[place] = slot

    def _leave_out(self, totals: list[float]) -> None:
        # It is not known which activities the earlier time consists of: subtract from all in
        # proportion.
        for prefix, seconds in tuple(self._too_many.items()):
            gained = {
                slot: max(totals[slot] - self._last[slot], 0.0)
                for (name, activity, _), slot in self._slots.items()
                if name == prefix and activity
            }
            gain = sum(gained.values())
            share = min(seconds / gain, 1.0) if gain else 0.0
            for slot, more in gained.items():
                self._untold[slot] += share * more
            if share == 1.0:
                self._too_many[prefix] = seconds - gain
            elif gain:
                del self._too_many[prefix]

    def _slot(self, target: _Target) -> int:
        slot = self._slots.setdefault(target, len(self._slots))
        if slot == len(self._moved):
            self._moved.append(0.0)
            self._last.append(0.0)
            self._untold.append(0.0)
        return slot

    def _target(self, key: Hashable) -> _Target | None:
        if not isinstance(key, tuple) or len(key) < 3:
            return None
        context, label, unit = key[0], key[-2], key[-1]
        if unit != "seconds":
            return _bytes_of(key)
        if context == "execute" and len(key) == 4:
            prefix, known = str(key[1]), isinstance(label, str) and label in _ACTIVITIES
            activity = _ACTIVITIES[label] if known else OTHER
            computing = label != _LEFT and (not known or _is_of_compute(label, activity))
            target = _Target(self._naming.known(prefix), activity, computing)
            self._keys_of.setdefault(prefix[:MAX_NAME], []).append((len(self._slot_of), target))
            return target
        return _GATHERED if context == "gather-dep" else None


def _is_of_compute(label: str, activity: str) -> bool:
    # Shuffles read their data while their task computes.
    return activity in _COMPUTING or label.startswith("p2p-")


def _bytes_of(key: Hashable) -> _Target | None:
    """Return the target of a key that counts bytes; None if it is not read."""
    if not isinstance(key, tuple) or len(key) < 3:
        return None
    context, label, unit = key[0], key[-2], key[-1]
    if unit != "bytes" or context == "p2p":
        return None
    if label == "disk-write":
        return _SPILLED
    if label == "disk-read":
        return _SERVED_FROM_DISK if context == "get-data" else _UNSPILLED
    return _SERVED if context == "get-data" and label == "memory-read" else None


class BytesMoved:
    """Adds up only the bytes in ``metrics``: few keys, so it can run more often than snapshots."""

    def __init__(self, metrics: Mapping[Any, float]) -> None:
        self._metrics = metrics
        self._met = 0
        self._keys: dict[_Target, list[Hashable]] = {
            _SPILLED: [], _UNSPILLED: [], _SERVED: [], _SERVED_FROM_DISK: [],
        }  # fmt: skip
        self._read = 0

    def so_far(self) -> tuple[float, float, float]:
        """Return the bytes written to disk, read back, and sent to workers and clients."""
        if len(self._metrics) > self._met and self._read < MAX_BYTE_KEYS:
            new = list(islice(self._metrics, self._met, self._met + MAX_NEW_KEYS))
            self._met += len(new)
            for key in new:
                target = _bytes_of(key)
                if target is not None:
                    self._keys[target].append(key)
                    self._read += 1
        value_of = self._metrics.get
        totals = [sum(value_of(key) or 0.0 for key in keys) for keys in self._keys.values()]
        # A user's own code may have reported any number.
        spilled, unspilled, served, from_disk = (
            total if total > 0 and math.isfinite(total) else 0.0 for total in totals
        )
        return spilled, unspilled + from_disk, served + from_disk


def _sum(*values: float | None) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) if measured else None
