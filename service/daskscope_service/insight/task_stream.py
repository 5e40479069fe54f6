"""Task streams as they are stored, unpacked: each run, or merged runs, with its times."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

from daskscope.protocol import STREAM_OUTCOMES, STREAM_UNIT, unpack_columns
from daskscope_service.db.scope import Item


def unpacked(row: Item) -> Item:
    """Return a stored row of a task stream as the API answers it, with times as seconds."""
    worker, prefix, outcome, start, length, count, seconds, longest, *others = unpack_columns(
        row["columns"]
    )
    transfer, disk = map(_seconds, others)
    # Of a run, both are its length, and so are not sent.
    compute, slowest = (
        [of if runs > 1 else whole for of, whole, runs in zip(them, length, count, strict=True)]
        for them in (seconds, longest)
    )
    return {name: value for name, value in row.items() if name != "columns"} | {
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
