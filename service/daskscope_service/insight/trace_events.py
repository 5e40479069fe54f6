"""Task streams as trace events, which Perfetto and Chrome's own viewer show.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from daskscope_service.db.scope import Item

#: What tracks of merged runs are numbered from.
_MERGED = 10_000


class _Run(NamedTuple):
    # Times in whole microseconds. ``more`` are other numbers, for whoever clicks on it.
    start: int
    stop: int
    worker: str
    prefix: str
    outcome: str
    merged: bool
    more: dict[str, float]


class _Lanes:
    """The lanes in which the runs of a worker lie without overlapping, from 1.

    Which of its threads a run was in is not known.
    """

    def __init__(self) -> None:
        self._busy: list[tuple[int, int]] = []
        self._free: list[int] = []

    def of(self, run: _Run) -> int:
        """Return the lane of a run, which begins no earlier than the one before it."""
        while self._busy and self._busy[0][0] <= run.start:
            heappush(self._free, heappop(self._busy)[1])
        lane = heappop(self._free) if self._free else len(self._busy) + 1
        heappush(self._busy, (run.stop, lane))
        return lane


def trace_events(streams: Iterable[Item]) -> Iterator[Item]:
    """Yield the events of unpacked task streams: each worker is a process, each lane a thread.

    Merged runs lie in lanes of their own.
    """
    runs = sorted((run for stream in streams for run in _runs(stream)), key=lambda run: run.start)
    processes = {name: at for at, name in enumerate(sorted({run.worker for run in runs}), 1)}
    for name, process in processes.items():
        yield _name("process", name or "several workers", process)
    lanes: dict[tuple[str, bool], _Lanes] = {}
    tracks = set()
    for run in runs:
        process = processes[run.worker]
        lane = lanes.setdefault((run.worker, run.merged), _Lanes()).of(run)
        track = lane + _MERGED * run.merged
        if (process, track) not in tracks:
            tracks.add((process, track))
            yield _name("thread", f"{'merged' if run.merged else 'lane'} {lane}", process, track)
        yield {
            "name": run.prefix,
            "cat": run.outcome,
            "ph": "X",
            "pid": process,
            "tid": track,
            "ts": run.start,
            "dur": run.stop - run.start,
            "args": run.more,
        }


def _name(what: str, name: str, process: int, track: int = 0) -> Item:
    return {
        "name": f"{what}_name",
        "ph": "M",
        "pid": process,
        "tid": track,
        "args": {"name": name},
    }


def _runs(stream: Item) -> Iterator[_Run]:
    workers, prefixes = stream["workers"], stream["prefixes"]
    names = ("count", "seconds", "longest", "transfer", "disk")
    numbers = zip(*(stream[name] for name in names), strict=True)
    places: Iterable[tuple[Any, ...]] = zip(
        *(stream[name] for name in ("worker", "prefix", "outcome", "start", "length")), strict=True
    )
    for (worker, prefix, outcome, ahead, length), more in zip(places, numbers, strict=True):
        start = stream["started_at"] + ahead
        merged = more[0] > 1
        yield _Run(
            round(start * 1e6),
            round((start + length) * 1e6),
            workers[worker],
            prefixes[prefix],
            outcome,
            merged,
            dict(zip(names, more, strict=True))
            if merged
            else {name: it for name, it in zip(names[3:], more[3:], strict=True) if it},
        )
