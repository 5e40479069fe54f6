"""Task streams as they are stored, unpacked: each run, or merged runs, with its times."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from daskscope.protocol import STREAM_COLUMNS, STREAM_OUTCOMES, STREAM_UNIT, unpack_columns
from daskscope_service.db.scope import Item


def unpacked(row: Item) -> Item:
    """Return a stored row of a task stream as the API answers it, with times as seconds.

    Its columns are empty if they cannot be read; ``runs`` still says how many there were.
    """
    try:
        columns = _columns(row)
    except (ValueError, IndexError):  # not as the service checks it before it stores it
        columns = {name: [] for name in STREAM_COLUMNS}
    return {name: value for name, value in row.items() if name != "columns"} | columns


def _columns(row: Item) -> dict[str, list[Any]]:
    worker, prefix, outcome, start, length, count, seconds, longest, *others = unpack_columns(
        row["columns"]
    )
    transfer, disk = map(_seconds, others)
    if min(map(min, (worker, prefix, outcome))) < 0:
        raise ValueError("an index is below 0")
    for column, names in ((worker, row["workers"]), (prefix, row["prefixes"])):
        names[max(column)]  # raises, if one refers to a name that is not there
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


def _seconds(units: Any) -> list[float]:
    return [round(number * STREAM_UNIT, 4) for number in units]
