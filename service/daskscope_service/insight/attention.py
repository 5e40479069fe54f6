"""Which clusters should be looked at, and why, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from daskscope_service.db.readable import Readable
from daskscope_service.insight.stuck import waiting_for_worker
from daskscope_service.insight.verdict import held_by_in_words
from daskscope_service.insight.wording import (
    duration,
    estimate,
    money,
    percent,
    plural,
    size,
)

#: Seconds of idleness from which on a cluster should be looked at.
IDLE_AFTER = 3600.0
#: Seconds for which a cluster that fell silent, or lost workers, should be looked at.
LOST_WITHIN = 86400.0
#: Seconds of a blocked event loop from which on a scheduler should be looked at.
LAG_AFTER = 1.0
#: The most packages with different versions that a sentence names.
NAMED = 3
#: Share of its workers' memory, 0 to 1, above which a cluster should be looked at.
MEMORY_OVER = 0.9


@dataclass(frozen=True, slots=True)
class Reason:
    """Why to look at a cluster, as a ``word`` and a ``sentence``. The gravest has ``rank`` 0."""

    rank: int
    word: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Concern:
    """A cluster and the reasons to look at it, the gravest first."""

    cluster: Readable
    reasons: tuple[Reason, ...]


def concerns(clusters: Iterable[Readable], now: float) -> list[Concern]:
    """Return the ``clusters`` that should be looked at, with the reasons, the gravest first.

    Each cluster has the columns of its table, the ``status`` of its verdict, and ``losses``: how
    many workers it lost in the last day.
    """
    looked_at = [Concern(cluster, reasons(cluster, now)) for cluster in clusters]
    return sorted(
        (one for one in looked_at if one.reasons),
        key=lambda one: (one.reasons[0].rank, -one.cluster["threads"], one.cluster["id"]),
    )


def reasons(cluster: Readable, now: float) -> tuple[Reason, ...]:
    """Return why ``cluster`` should be looked at, the gravest reason first; () if there is none.

    After a cluster has stopped, the only reason left is that it lost workers.
    """
    if cluster["status"] in ("stopped", "ended"):
        lost = _losses(cluster)
        return (lost,) if lost else ()
    if cluster["status"] == "lost":
        silence = now - cluster["last_seen_at"]
        if silence > LOST_WITHIN:
            return ()
        had = f" It had {plural(cluster['workers'], 'worker')}." if cluster["workers"] else ""
        return (
            Reason(
                0, "silent",
                f"It fell silent {duration(silence)} ago, without saying that it stopped.{had}",
            ),
        )  # fmt: skip
    looks = (_stuck, _memory, _losses, _lag, _idle, _versions)
    seen = (look(cluster) for look in looks)
    return tuple(sorted((one for one in seen if one), key=lambda one: one.rank))


def _stuck(cluster: Readable) -> Reason | None:
    held = cluster["held_by"] or {}
    stuck = waiting_for_worker(held, cluster["workers"], unrunnable="unrunnable")
    if not stuck or held.get("workers starting"):
        return None
    there = (
        "there is no worker"
        if not cluster["workers"]
        else "no worker matches: the tasks require a certain worker, host or resource"
    )
    return Reason(1, "stuck", f"{plural(stuck, 'task')} that no worker can run: {there}.")


def _memory(cluster: Readable) -> Reason | None:
    limit = cluster["memory_limit"]
    if not limit or cluster["memory_used"] <= MEMORY_OVER * limit:
        return None
    return Reason(
        2, "memory",
        f"Its workers use {percent(cluster['memory_used'] / limit)} of their memory: "
        f"{size(cluster['memory_used'])} of {size(limit)}.",
    )  # fmt: skip


def _losses(cluster: Readable) -> Reason | None:
    lost = cluster["losses"]
    since = "" if cluster["status"] == "running" else " before it stopped"
    sentence = f"It lost {plural(lost, 'worker')} in a day{since}."
    return Reason(3, "losses", sentence) if lost else None


def _lag(cluster: Readable) -> Reason | None:
    lag = (cluster["scheduler"] or {}).get("lag", 0.0)
    if lag < LAG_AFTER:
        return None
    return Reason(4, "slow", f"Its scheduler's event loop was blocked for up to {duration(lag)}.")


def _idle(cluster: Readable) -> Reason | None:
    idle = cluster["idle_seconds"]
    if idle is None or idle < IDLE_AFTER:
        return None
    held = held_by_in_words(cluster["held_by"] or {})
    with_ = f" with {plural(cluster['workers'], 'worker')}" if cluster["workers"] else ""
    return Reason(
        5, "idle",
        f"It has been idle for {duration(idle)}{with_}{_burn(cluster)}"
        + (f"; it is kept for {held}." if held else "; nothing keeps it."),
    )  # fmt: skip


def _versions(cluster: Readable) -> Reason | None:
    packages = [mismatch["package"] for mismatch in cluster["mismatches"]]
    if not packages:
        return None
    more = f" and {len(packages) - NAMED} more" if len(packages) > NAMED else ""
    return Reason(
        6, "versions",
        f"Scheduler, workers and clients have different versions of {', '.join(packages[:NAMED])}"
        f"{more}.",
    )  # fmt: skip


def _burn(cluster: Readable) -> str:
    spent, currency = cluster["idle_cost"], (cluster["prices"] or {}).get("currency")
    if not spent or currency is None:
        return ""
    what = estimate([cluster["price_source"]])
    return f"; its idle threads cost {money(spent, currency)} so far, an {what}"
