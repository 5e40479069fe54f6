"""Tasks that no worker can run: how many waited to the end, and what they require."""

from __future__ import annotations

from collections.abc import Mapping

from daskscope_service.insight.wording import plural

#: The most requirements of tasks that a sentence names.
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
    """Return how many tasks still waited for a worker when their computation was cancelled or lost.

    ``left`` is the number of tasks that are not done. If the cluster fell ``silent``, ``states`` of
    its last beat counts them. Otherwise the computation must have had such tasks (``waited``
    seconds) for at least half of its ``seconds``: nobody knows whether a shorter wait was at the
    end. ``asks`` then counts them.
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
    # ``asks`` counts all such tasks there ever were: if it counts others too, nobody knows what
    # these require.
    words = most_asked(asks) if sum(asks.values()) == stuck else []
    for_what = f" ({', or '.join(words)})" if words else ""
    return f"{plural(stuck, 'task')} {wait} for a worker that may run {them}{for_what}"


def most_asked(asks: Mapping[str, int]) -> list[str]:
    """Return what most of the tasks that no worker can run require, at most :data:`_MOST_ASKS`.

    These are names of resources, workers and hosts.
    """
    return sorted(asks, key=lambda one: (-asks[one], one))[:_MOST_ASKS]
