"""Task groups of one made-up pipeline, as far as it came. See tests.seed."""

from __future__ import annotations

from typing import Any

from daskscope.names import DURATION_BOUNDS

GIB = 2**30
#: Results of a group that are lost and computed again, in what runs.
LOST = 24
LONG = "assign-rename-fillna-fused-with-a-long-name"

#: Prefix, share of the tasks, what it needs, bytes of all its output.
SHAPE: tuple[tuple[str, float, tuple[str, ...], int], ...] = (
    ("read-parquet", 0.24, (), 31 * GIB),
    ("read-csv", 0.06, (), GIB // 3),
    ("parse_events", 0.24, ("read-parquet",), 28 * GIB),
    (LONG, 0.2, ("parse_events",), 27 * GIB),
    ("hash-join-p2p", 0.16, (LONG, "read-csv"), 12 * GIB),
    ("groupby-agg", 0.08, ("hash-join-p2p",), GIB // 2),
    ("to-parquet", 0.02, ("groupby-agg",), 0),
)


def task_groups(
    computation: str, status: str, tasks: int, share: float
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the groups of a computation of which ``share`` is done, and their totals."""
    groups: list[dict[str, Any]] = []
    whole: dict[str, Any] = {"completed": 0, "erred": 0, "tasks": 0, "states": {}, "seconds": {}}
    keys = {prefix: f"{prefix}-{computation}1c9b" for prefix, *_ in SHAPE}
    left = round(tasks * share)
    for prefix, part, needs, output in SHAPE:
        size = round(tasks * part)
        done = min(size, left)
        left -= done
        states, erred = _states(status, done, size - done)
        # A worker that died took results with it.
        again = LOST if status == "running" and prefix == "parse_events" else 0
        seconds = {"compute": done * 1.37, "transfer": done * 0.31} if done else {}
        if prefix == "hash-join-p2p" and done:
            seconds |= {"disk-write": done * 0.4, "disk-read": done * 0.22}
        groups.append(
            {
                "name": keys[prefix],
                "prefix": prefix,
                "tasks": size,
                "completed": done + again,
                "erred": erred,
                "states": states,
                "seconds": seconds,
                "output_bytes": int(output * done / size) if size else 0,
                "dependencies": [keys[other] for other in needs],
                "durations": _durations(done + again, len(groups)),
                "shortest": 0.021 if done else None,
                "longest": 14.2 if done else None,
                "types": {"DataFrame": done} if done else {},
                "retried": 0,
            }
        )
        for field, value in (("tasks", size), ("completed", done + again), ("erred", erred)):
            whole[field] += value
        for field, values in (("states", states), ("seconds", seconds)):
            for name, number in values.items():
                whole[field][name] = whole[field].get(name, 0) + number
    return groups, whole


def span_of(number: int) -> tuple[float, float]:
    """Return when a group of a computation begins and ends, from 0 to 1 of its time."""
    return 0.11 * number, min(0.4 + 0.11 * number, 1.0)


def _durations(done: int, number: int) -> list[int]:
    """Return most tasks around some seconds, and a few that took far longer or shorter."""
    counts = [0] * (len(DURATION_BOUNDS) + 1)
    left = done
    for bucket, share in ((6, 0.5), (7, 0.27), (5, 0.12), (4 - number % 3, 0.06), (8, 0.03)):
        counts[bucket] = min(round(done * share), left)
        left -= counts[bucket]
    counts[6] += left
    return counts


def _states(status: str, done: int, rest: int) -> tuple[dict[str, int], int]:
    states = {"released": done}
    if status == "running":
        active = min(rest, 96)
        held = done // 3
        states = {
            "released": done - held,
            "memory": held,
            "processing": active,
            "waiting": rest - active,
        }
    elif status == "erred":
        states["erred"] = rest
    else:
        states["released"] += rest
    return {name: count for name, count in states.items() if count}, states.get("erred", 0)
