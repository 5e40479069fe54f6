"""What a cluster's threads did between two times, out of its running totals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

#: What is shown as one.
_TOGETHER = {
    "serialize": "serialise",
    "deserialize": "serialise",
    "compress": "serialise",
    "decompress": "serialise",
}

#: Totals by what they are of; the last part of each key is the activity.
Totals = Mapping[tuple[str, ...], float]


def spent(before: Totals, after: Totals) -> dict[str, float]:
    """Return the seconds by activity that the totals grew by.

    One that was not there before is new, so all of it counts. One that fell was started anew.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for key, value in after.items():
        grown = value - before.get(key, 0.0)
        seconds[_TOGETHER.get(key[-1], key[-1])] += grown if grown >= 0 else value
    return {activity: value for activity, value in seconds.items() if value > 0}
