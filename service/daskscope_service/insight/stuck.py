"""Tasks that no worker can run: how many waited to the end, and what they ask for."""

from __future__ import annotations

from collections.abc import Mapping

from daskscope_service.insight.wording import plural

#: Things that tasks ask for which a sentence names.
_MOST_ASKS = 3


def left_waiting(
    left: int,
    states: Mapping[str, int],
    asks: Mapping[str, int],
    *,
    waited: float | None,
    seconds: float,
    silent: bool,
) -> int:
    """Return how many tasks of a computation that was cancelled or lost waited until then.

    ``left`` are its tasks that are not done. A cluster that fell ``silent`` said so in its last
    beat. Otherwise it had such tasks for most of the ``seconds`` that it took: of a shorter time,
    ``waited``, nobody knows whether it was the last one.
    """
    if silent and (stuck := states.get("no-worker", 0)):
        return min(stuck, max(left, 0))
    if not waited or 2 * waited < seconds:
        return 0
    return min(max(sum(asks.values()), 1), max(left, 0))


def in_words(stuck: int, asks: Mapping[str, int], *, past: bool = False) -> str:
    """Return ``3 tasks wait for a worker that may run them (GPU=1)``."""
    wait, them = ("waits", "it") if stuck == 1 else ("wait", "them")
    if past:
        wait = "waited"
    # They are counted for good: where there are others, it is unknown what these ask for.
    words = most_asked(asks) if sum(asks.values()) == stuck else []
    for_what = f" ({', or '.join(words)})" if words else ""
    return f"{plural(stuck, 'task')} {wait} for a worker that may run {them}{for_what}"


def most_asked(asks: Mapping[str, int]) -> list[str]:
    """Return what most tasks ask for that no worker can run, a few of it: names of resources, and
    of workers and hosts.
    """
    return sorted(asks, key=lambda one: (-asks[one], one))[:_MOST_ASKS]
