"""Tasks that no worker can run: how many waited to the end, and what they require."""

from __future__ import annotations

from collections.abc import Mapping

from daskscope.protocol import ANY_WORKER
from daskscope_service.insight.wording import duration, plural

#: The most requirements of tasks that a sentence names.
_MOST_ASKS = 3


def waiting_for_worker(
    states: Mapping[str, int], workers: int | None, *, unrunnable: str = "no-worker"
) -> int:
    """Return how many tasks wait for a worker that can run them, when there are ``workers``.

    That number is None if it is not known. ``unrunnable`` is the name that Dask's state no-worker
    has in ``states``. Without any worker, Dask keeps tasks queued that could run at once.
    """
    return states.get(unrunnable, 0) + (states.get("queued", 0) if workers == 0 else 0)


def left_waiting(
    left: int,
    states: Mapping[str, int],
    asks: Mapping[str, int],
    *,
    waited: float | None,
    seconds: float,
    silent: bool,
    workers: int | None,
) -> int:
    """Return how many tasks still waited for a worker when their computation was cancelled or lost.

    ``left`` is the number of tasks that are not done. If the cluster fell ``silent``, ``states`` of
    its last beat counts them, when it had ``workers``. Otherwise the computation must have had such
    tasks (``waited`` seconds) for at least half of its ``seconds``: nobody knows whether a shorter
    wait was at the end. ``asks`` then counts them.
    """
    if silent and (stuck := waiting_for_worker(states, workers)):
        return min(stuck, max(left, 0))
    if not waited or 2 * waited < seconds:
        return 0
    # Not all tasks are counted, but if these could run on any worker, so could all the others.
    counted = left if set(asks) == {ANY_WORKER} else max(sum(asks.values()), 1)
    return min(counted, max(left, 0))


def no_worker(
    asks: Mapping[str, int], worker_seconds: Mapping[str, float], waited: float | None
) -> str:
    """Return ``there was no worker for 50.0 s`` if an ended computation waited just for that.

    Return "" if its tasks asked for more than any worker, or if its workers were paused: these run
    no tasks either. ``worker_seconds`` are those of the computation, empty if not known.
    """
    if not waited or set(asks) != {ANY_WORKER}:
        return ""
    if not worker_seconds or worker_seconds.get("paused"):
        return ""
    if not sum(worker_seconds.values()):
        return "there was never a worker"
    return f"there was no worker for {duration(waited)}"


def in_words(
    stuck: int, asks: Mapping[str, int], *, workers: int | None = None, past: bool = False
) -> str:
    """Return ``3 tasks wait for a worker that may run them (GPU=1)``.

    Without any worker, it does not matter what they ask for.
    """
    wait, them = ("waits", "it") if stuck == 1 else ("wait", "them")
    if past:
        wait = "waited"
    if workers == 0:
        return f"{plural(stuck, 'task')} {wait}, and there {'was' if past else 'is'} no worker"
    # ``asks`` counts all such tasks there ever were: if it counts others too, nobody knows what
    # these require.
    words = most_asked(asks) if sum(asks.values()) == stuck else []
    words = [] if words == [ANY_WORKER] else words
    for_what = f" ({', or '.join(words)})" if words else ""
    return f"{plural(stuck, 'task')} {wait} for a worker that may run {them}{for_what}"


def most_asked(asks: Mapping[str, int]) -> list[str]:
    """Return what most of the tasks that no worker can run require, at most :data:`_MOST_ASKS`.

    These are names of resources, workers and hosts.
    """
    return sorted(asks, key=lambda one: (-asks[one], one))[:_MOST_ASKS]
