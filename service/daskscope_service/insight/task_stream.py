"""Task streams as they are stored: unpacked, run by run, and added up by worker and prefix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from daskscope.codec import unpack_columns
from daskscope.protocol import STREAM_COLUMNS, STREAM_OUTCOMES, STREAM_UNIT
from daskscope_service.db.scope import Item

#: Characters of names that take about as long to read as an entry.
_AS_AN_ENTRY = 500


def unpacked(row: Item) -> Item:
    """Return a stored row of a task stream as the API answers it, with times as seconds.

    Its columns are empty if they cannot be read; ``runs`` still says how many there were.
    """
    try:
        columns = _columns(row)
    except (ValueError, IndexError):  # not as the service checks it before it stores it
        columns = {name: [] for name in STREAM_COLUMNS}
    return {name: value for name, value in row.items() if name != "columns"} | columns


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which runs a reader asks for: those that overlap a time, of a worker or a prefix."""

    since: float
    until: float
    worker: str | None = None
    prefix: str | None = None
    failed: bool = False


@dataclass(slots=True)
class Work:
    """The runs of one prefix on one worker, added up; times in seconds.

    ``merged`` says how many of the ``runs`` were merged by the cluster, so that it is not known
    when each of them ran.
    """

    worker: str
    prefix: str
    runs: int = 0
    merged: int = 0
    failed: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    transfer: float = 0.0
    disk: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkDone:
    """Runs by worker and prefix, those that computed longest first.

    ``entries`` says how many entries were read for it, and ``unreadable`` how many rows could not
    be read.
    """

    work: list[Work]
    entries: int
    unreadable: int


def added_up(rows: Iterable[Item], chosen: Chosen, most: int) -> tuple[WorkDone, Item | None]:
    """Return the chosen runs of stored rows, added up, and the last row that was read.

    It reads whole rows until it has read ``most`` entries, or what takes as long. The last row is
    None if all were read.
    """
    work: dict[tuple[str, str], Work] = {}
    entries = unreadable = names = 0
    last = None
    for row in rows:
        if entries + names >= most:
            return WorkDone(_longest_first(work), entries, unreadable), last
        last = row
        names += names_as_entries(row)
        try:
            columns = _checked(row)
        except (ValueError, IndexError):
            unreadable += 1
            continue
        entries += len(columns[0])
        _add(work, row, columns, chosen)
    return WorkDone(_longest_first(work), entries, unreadable), None


def names_as_entries(row: Item) -> int:
    """Return how many entries take as long to read as the names of a row, which may have megabytes:
    most rows have some hundred characters of them.
    """
    return sum(map(len, (*row["workers"], *row["prefixes"]))) // _AS_AN_ENTRY


def _longest_first(work: dict[tuple[str, str], Work]) -> list[Work]:
    return sorted(work.values(), key=lambda one: (-one.seconds, one.worker, one.prefix))


def _add(
    by_names: dict[tuple[str, str], Work], row: Item, columns: list[Any], chosen: Chosen
) -> None:
    workers, prefixes = row["workers"], row["prefixes"]
    begin = (chosen.since - row["started_at"]) / STREAM_UNIT
    end = (chosen.until - row["started_at"]) / STREAM_UNIT
    at = 0
    # Whole numbers until the end, and no attributes: there may be tens of thousands of entries.
    sums: dict[tuple[int, int, int], list[int]] = {}
    for worker, prefix, outcome, start, length, count, seconds, longest, transfer, disk in zip(
        *columns, strict=True
    ):
        at += start
        if at >= end or at + length < begin:
            continue
        if count == 1:
            seconds = longest = length
        key = worker, prefix, outcome
        of = sums.get(key)
        if of is None:
            of = sums[key] = [0] * 6
        of[0] += count
        of[1] += seconds
        of[2] += transfer
        of[3] += disk
        if longest > of[4]:
            of[4] = longest
        if count > 1:
            of[5] += count
    for (worker, prefix, outcome), of in sums.items():
        runs, seconds, transfer, disk, longest, merged = of
        names = workers[worker], prefixes[prefix]
        if (
            chosen.worker not in (None, names[0])
            or chosen.prefix not in (None, names[1])
            or (chosen.failed and not outcome)
        ):
            continue
        work = by_names.setdefault(names, Work(*names))
        work.runs += runs
        work.merged += merged
        work.failed += runs if outcome else 0
        work.seconds += seconds * STREAM_UNIT
        work.transfer += transfer * STREAM_UNIT
        work.disk += disk * STREAM_UNIT
        work.longest = max(work.longest, longest * STREAM_UNIT)


def _columns(row: Item) -> dict[str, list[Any]]:
    worker, prefix, outcome, start, length, count, seconds, longest, *others = _checked(row)
    transfer, disk = map(_seconds, others)
    # Of a run, both are its length, and so are not sent.
    compute, slowest = (
        [of if runs > 1 else whole for of, whole, runs in zip(them, length, count, strict=True)]
        for them in (seconds, longest)
    )
    return {
        "worker": worker.tolist(),
        "prefix": prefix.tolist(),
        "outcome": [STREAM_OUTCOMES[index] for index in outcome],
        "start": _seconds(accumulate(start)),
        "length": _seconds(length),
        "count": count.tolist(),
        "seconds": _seconds(compute),
        "longest": _seconds(slowest),
        "transfer": transfer,
        "disk": disk,
    }


def _checked(row: Item) -> list[Any]:
    """Return the columns of a row. Raises ValueError or IndexError if they do not fit its names."""
    columns = unpack_columns(row["columns"])
    worker, prefix, outcome = columns[:3]
    if min(map(min, (worker, prefix, outcome))) < 0:
        raise ValueError("an index is below 0")
    for column, names in (
        (worker, row["workers"]),
        (prefix, row["prefixes"]),
        (outcome, STREAM_OUTCOMES),
    ):
        names[max(column)]  # raises, if one refers to a name that is not there
    return columns


def _seconds(units: Any) -> list[float]:
    return [round(number * STREAM_UNIT, 4) for number in units]
