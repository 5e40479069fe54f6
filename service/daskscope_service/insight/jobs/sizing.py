"""The size of workers that a job's runs needed: their memory and their threads.

Only what all of the looked-at runs agree on is proposed. Too few runs, runs that spilled, and small
differences propose nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median
from typing import Literal

from daskscope_service.db.readable import Readable
from daskscope_service.insight.findings.finding import Saving
from daskscope_service.insight.jobs.summary import has_passed
from daskscope_service.insight.wording import number, percent, plural, size

#: The least passed runs for a proposal, and the most, the newest, that are looked at.
LEAST_RUNS, _MOST_RUNS = 5, 20
#: The headroom of threads. That of memory is a threshold.
_SPARE_THREADS = 1.2
#: The largest share of its memory that a worker used, above which no less is proposed.
_USED_LITTLE = 0.5
#: The share of workers' memory that Dask's own data may take before it is written to disk.
_TARGET = 0.6
#: A run that is shorter, in seconds, does not show how many threads its job can use.
_LEAST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """Another size: ``wanted`` in place of ``now``, because the runs needed at most ``most``.

    ``saving`` is the money saved in each run, None without prices or where there is none.
    """

    what: Literal["memory", "threads"]
    now: float
    most: float
    wanted: float
    unit: str
    sentence: str
    setting: str
    saving: Saving | None


@dataclass(frozen=True, slots=True)
class Sizing:
    """What ``runs`` passed runs say of the size of the workers.

    ``missing`` is how many more runs are needed before anything can be proposed.
    """

    runs: int
    missing: int
    sentence: str
    proposals: Sequence[Proposal]


def sizing_of(runs: Sequence[Readable], limits: Mapping[str, float]) -> Sizing:
    """Return the sizing by the newest passed ones of ``runs``, oldest first, by thresholds.

    Runs are rows of :mod:`~daskscope_service.queries.job_runs`, with their clusters in ``on``.
    """
    passed = [run for run in runs if has_passed(run) and run["on"] is not None][-_MOST_RUNS:]
    missing = max(LEAST_RUNS - len(passed), 0)
    if missing:
        more = plural(missing, "more passed run")
        return Sizing(len(passed), missing, f"A size of its workers needs {more}.", ())
    proposals = [
        proposal
        for proposal in (_memory(passed, limits), _threads(passed, limits))
        if proposal is not None
    ]
    if proposals:
        sentence = " ".join(one.sentence for one in proposals)
    elif _peaks(passed) is None:
        sentence = "The most memory that a worker had is not known of all of its last runs."
    else:
        sentence = f"Its last {len(passed)} passed runs suggest no other size of its workers."
    return Sizing(len(passed), 0, sentence, proposals)


def _memory(runs: Sequence[Readable], limits: Mapping[str, float]) -> Proposal | None:
    newest = runs[-1]["on"]
    peaks, limit = _peaks(runs), _memory_of_one(newest)
    if peaks is None or limit is None or any(run["spilled_bytes"] for run in runs):
        return None
    most = max(peaks)
    wanted = most * limits["memory.headroom"]
    if limits["near.share"] * limit <= most <= limit:
        return Proposal(
            *("memory", limit, most, wanted, "By"),
            f"A worker used {size(most)} of its {size(limit)} ({percent(most / limit)}); at "
            f"{percent(0.95)} its nanny ends it: give it {size(wanted)}.",
            f"--memory-limit {_mib(wanted)}",
            None,
        )
    unused = limit - wanted
    if most > _USED_LITTLE * limit or unused < limits["memory.unused"]:
        return None
    costs = [
        run["on"]["prices"]["per_hour"]["gib"] * unused / 2**30 * workers * run["duration"] / 3600
        for run in runs
        if (workers := run["workers"] or run["on"]["peak_workers"])
        and run["cost"] is not None
        and run["on"]["prices"]["per_hour"].get("gib")
    ]
    saving = None
    if len(costs) == len(runs) and len({run["currency"] for run in runs}) == 1:
        formula = (
            f"(memory - {limits['memory.headroom']:g} × its peak) × workers × time of the usual "
            "run × price of a GiB"
        )
        saving = Saving(0.0, median(costs), runs[-1]["currency"], formula)
    return Proposal(
        *("memory", limit, most, wanted, "By"),
        f"No worker of its last {len(runs)} passed runs used more than {size(most)} of "
        f"{size(limit)}: {size(wanted)} would do.",
        f"--memory-limit {_mib(wanted)}",
        saving,
    )


def _threads(runs: Sequence[Readable], limits: Mapping[str, float]) -> Proposal | None:
    busy: list[float] = []
    for run in runs:
        time = run["worker_seconds"]
        whole = sum(time.values())
        # Paused threads had work, and no memory for it.
        if run["duration"] < _LEAST_SECONDS or whole <= 0 or time.get("paused"):
            return None
        if time.get("idle", 0.0) < limits["idle.share"] * whole:
            return None
        busy.append((whole - time.get("idle", 0.0)) / run["duration"])
    newest = runs[-1]
    now = sum(newest["worker_seconds"].values()) / newest["duration"]
    wanted = max(ceil(max(busy) * _SPARE_THREADS), 1)
    on = newest["on"]
    if wanted > now / 2 or not on["memory_limit"] or on["peak_memory_used"] is None:
        return None
    # Fewer threads are fewer workers, most often, and the same data is to fit into those.
    if on["peak_memory_used"] > _TARGET * on["memory_limit"] * wanted / now:
        return None
    costs = [run["cost"] for run in runs if run["cost"] is not None]
    saving = None
    if len(costs) == len(runs) and len({run["currency"] for run in runs}) == 1:
        formula = (
            f"cost of the usual run × (1 - threads that had work × {_SPARE_THREADS:g} ÷ threads)"
        )
        saving = Saving(0.0, median(costs) * (1 - wanted / now), runs[-1]["currency"], formula)
    return Proposal(
        *("threads", now, max(busy), wanted, "{thread}"),
        f"On average at most {max(busy):.1f} of {number(now)} threads had work in its last "
        f"{len(runs)} passed runs: {wanted} would do, unless it needs many at once for a while.",
        f"{plural(wanted, 'thread')} in all",
        saving,
    )


def _peaks(runs: Sequence[Readable]) -> list[float] | None:
    peaks = [run["on"]["peak_worker_memory"] for run in runs]
    return None if None in peaks else peaks


def _memory_of_one(cluster: Readable) -> float | None:
    # Both are of one beat: of those that were there at the peak, some may have left.
    workers, limit = cluster["workers"], cluster["memory_limit"]
    return limit / workers if workers and limit else None


def _mib(amount: float) -> str:
    return f"{ceil(amount / 2**20)}MiB"
