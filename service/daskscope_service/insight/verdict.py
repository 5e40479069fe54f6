"""Finds what became of a cluster or a computation: one word and one sentence.

``lost`` follows from silence, so only the service can find it. A row is a mapping with the columns
of its table; ``now`` is the service's clock, in seconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskscope_service.db.readable import Readable
from daskscope_service.insight import stuck
from daskscope_service.insight.progress import done_of, results_lost, results_missing
from daskscope_service.insight.wording import duration, number, plural

#: The usual entry of ``protocol.Status.busy_by``.
TASKS_RUN = "tasks are running"

#: A cluster is silent only after it has missed this many beats.
MISSED_BEATS = 3

#: Fewer seconds of threads are as good as none: what is divided by them may be infinite.
LEAST_THREADS = 1e-9

# The kinds that ``held_by`` counts, the word for one of each, and what follows the word.
_HELD = (
    ("running", "task", " running"),
    ("processing", "task", " assigned to a worker"),
    ("queued", "task", " queued"),
    ("unrunnable", "task", " that no worker can run"),
    ("calls", "call", " of client.run or an actor"),
    ("workers starting", "worker", " starting"),
    ("clients", "client", " connected"),
    ("results", "result", " held in memory"),
    ("actors", "actor", ""),
    ("other schedulers", "other scheduler", " on it, whose tasks cannot be seen"),
)


#: How a cluster ended, by its status.
_WENT = {"lost": "fell silent", "ended": "ended without a word", "stopped": "stopped"}

# Added if results that tasks needed were gone: the worker that held them left, or the scheduler
# released them before they were requested again.
_RUN_AGAIN = ", so that their tasks run again"

#: The columns of a cluster that verdicts read.
OF_VERDICT = (
    *("started_at", "stopped_at", "status_at", "last_seen_at", "interval", "idle_seconds"),
    *("held_by", "busy_by", "workers", "may_end"),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a cluster or a computation, as one word and as a sentence for pages.

    ``silence`` is for how many seconds a running cluster, or the cluster of a running computation,
    has not reported; 0 as long as it misses no more than :data:`MISSED_BEATS`. ``workers`` is how
    many workers the cluster had when it was last heard; None if not known, as of a computation.
    """

    status: str
    sentence: str
    silence: float = 0.0
    workers: int | None = None


def cluster_verdict(cluster: Readable, now: float, silent_after: float) -> Verdict:
    """Return whether a cluster is ``running``, ``stopped``, ``lost`` or ``ended``.

    It is ``lost`` if it fell silent without having stopped; but ``ended`` if it ran in its client's
    process and had no work to do, so that it probably ended together with that process.
    """
    lasted = duration(cluster_seconds(cluster))
    if cluster["stopped_at"] is not None:
        return Verdict("stopped", f"It stopped after {lasted}.")
    silence = now - cluster["last_seen_at"]
    if silence > max(silent_after, MISSED_BEATS * cluster["interval"]):
        if cluster["may_end"]:
            return Verdict(
                "ended",
                f"It ended without a word after {lasted}, with the process of its client, in which "
                f"it ran; it had no work to do when it was last heard, {duration(silence)} ago.",
            )
        return Verdict(
            "lost",
            f"It fell silent after {lasted} without saying that it stopped, "
            f"and was last heard {duration(silence)} ago.",
            workers=cluster["workers"],
        )
    if silence > MISSED_BEATS * cluster["interval"]:
        return Verdict(
            "running",
            f"It has not reported for {duration(silence)}; until then it was {_doing(cluster)}.",
            silence,
            cluster["workers"],
        )
    return Verdict("running", f"It is up, and {_doing(cluster)}.", workers=cluster["workers"])


def _doing(cluster: Readable) -> str:
    """Return in words what a running cluster was doing when it last reported."""
    held = cluster["held_by"]
    if cluster["idle_seconds"] is not None:
        what = held_by_in_words(held)
        return f"idle for {duration(cluster['idle_seconds'])}" + (f", with {what}" if what else "")
    workers = plural(cluster["workers"], "worker") if cluster["workers"] else "no worker"
    waiting = stuck.waiting_for_worker(held, cluster["workers"], unrunnable="unrunnable")
    if waiting and not cluster["workers"]:
        if starting := held.get("workers starting", 0):
            wait = "waits" if waiting == 1 else "wait"
            come = "is" if starting == 1 else "are"
            return (
                f"waiting for workers: {plural(waiting, 'task')} {wait}, and "
                f"{plural(starting, 'worker')} {come} starting"
            )
        return f"stuck: {stuck.in_words(waiting, {}, workers=0)}"
    if waiting and not held.get("processing") and not held.get("queued"):
        wait = "task waits" if waiting == 1 else "tasks wait"
        them = "it" if waiting == 1 else "them"
        none = "the only one" if cluster["workers"] == 1 else f"none of its {workers}"
        may = "may not" if cluster["workers"] == 1 else "may"
        return f"stuck: {number(waiting)} {wait} for a worker, and {none} {may} run {them}"
    beside = f"; {stuck.in_words(waiting, {})}" if waiting else ""
    if works_without_tasks(cluster):
        return f"at work with {workers}, though no task runs{beside}"
    return f"at work with {workers}{beside}"


def works_without_tasks(cluster: Readable) -> bool:
    """Return whether a cluster is at work though no Dask task runs."""
    return bool(cluster["busy_by"]) and TASKS_RUN not in cluster["busy_by"]


def busy_by(cluster: Readable) -> str:
    """Return in words what a cluster is doing; "" if nothing is known."""
    return "; ".join(cluster["busy_by"] or ())


def held_by_in_words(held_by: Mapping[str, int]) -> str:
    """Return in words what keeps a cluster: the counts of ``protocol.Status.held_by``.

    Return "" if nothing does.
    """
    counts = dict(held_by)
    # "processing" includes the tasks that are running.
    counts["processing"] = max(counts.get("processing", 0) - counts.get("running", 0), 0)
    parts = [plural(counts[kind], thing) + how for kind, thing, how in _HELD if counts.get(kind)]
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1] if parts else ""]))


def cluster_seconds(cluster: Readable) -> float:
    """Return for how many seconds of its own clock the cluster was up, as far as is known."""
    started_at: float = cluster["started_at"]
    return max(0.0, last_known(cluster) - started_at)


def last_known(cluster: Readable) -> float:
    """Return when the cluster stopped or else last reported, by its own clock."""
    at: float = cluster["status_at"] if cluster["stopped_at"] is None else cluster["stopped_at"]
    return at


def computation_verdict(computation: Readable, cluster: Verdict, seconds: float) -> Verdict:
    """Return what became of a computation: the status that its cluster reported, or ``lost``.

    If the cluster went away while the computation ran, it is ``lost``, or ``finished`` if all tasks
    were done. What happens to the cluster and the results after the end does not change the status;
    the sentence mentions it. ``seconds`` is how long it ran, as far as is known.
    """
    tasks, done = computation["tasks"], done_of(computation)
    lasted = duration(seconds)
    status = computation_status(computation, cluster)
    if status == "lost":
        how, were = _WENT[cluster.status], "was" if tasks == 1 else "were"
        left = waited(
            computation, done, seconds, silent=cluster.status == "lost", workers=cluster.workers
        )
        return Verdict(
            "lost",
            f"The cluster {how} while it ran: {number(done)} of {plural(tasks, 'task')} "
            f"{were} done after {lasted}{left and f'; {left}'}.",
        )
    states = computation["states"]
    waiting = waits(computation, cluster.workers)
    others = states.get("processing") or (states.get("queued") and cluster.workers != 0)
    if status == "running" and waiting and not others:
        sentence = f"{number(done)} of {plural(tasks, 'task')} done after {lasted}: {waiting}."
    elif status == "running":
        share = f" ({done / tasks:.0%})" if tasks else ""
        # If all tasks have ended, it runs for a moment longer: a loop may submit more.
        how_long = f", running for {lasted}" if computation["ended_at"] is None else f" in {lasted}"
        beside = f"; {waiting}" if waiting else ""
        sentence = f"{number(done)} of {plural(tasks, 'task')} done{share}{how_long}{beside}."
    elif status == "finished":
        sentence = f"Finished: {plural(tasks, 'task')} in {lasted}."
    elif erred_by_dependency(status, erred=computation["erred"], blamed=computation["blamed"]):
        need = waited_for_failed(computation["blamed"], tasks, computation["blames"])
        sentence = f"Not finished after {lasted}: {need}; {number(done)} done."
    elif status == "erred":
        sentence = (
            f"Failed after {lasted}: {plural(computation['erred'], 'task run')} failed, "
            f"{number(done)} of {plural(tasks, 'task')} done."
        )
    else:
        left = waited(computation, done, seconds)
        sentence = (
            f"Cancelled after {lasted}: {number(done)} of {plural(tasks, 'task')} done"
            f"{left and f'; {left}'}."
        )
    if status == "running" and cluster.silence:
        sentence = f"{sentence.removesuffix('.')}; {has_not_reported(cluster.silence)}."
    if computation["blamed"] and (status == "running" or computation["erred"]):
        need = waited_for_failed(computation["blamed"], None, computation["blames"])
        sentence += f" {need}."
    if computation["retried"]:
        were = "was" if computation["retried"] == 1 else "were"
        sentence += f" {plural(computation['retried'], 'task run')} {were} tried again."
    if computation["lost_runs"]:
        workers = "its worker" if computation["lost_runs"] == 1 else "their workers"
        sentence += f" {plural(computation['lost_runs'], 'task run')} ended with {workers}."
    lost = results_lost(computation, done)
    if lost:
        were = "was" if lost == 1 else "were"
        again = {"running": _RUN_AGAIN, "finished": f", and {were} computed again"}
        when = "when it was needed" if lost == 1 else "when they were needed"
        sentence += f" {plural(lost, 'result')} {were} gone {when}{again.get(status, '')}."
    later = computation["completed_later"]
    if later and status != "running":
        took = computation["seconds_later"]
        how_long = "" if took is None else f", which took {duration(took)}"
        sentence += f" After its end {plural(later, 'task run')} followed{how_long}."
    missing = results_missing(computation)
    if missing and cluster.status == "running":
        have = "has" if missing == 1 else "have"
        sentence += f" {plural(missing, 'result')} {have} gone since then{_RUN_AGAIN}."
    elif missing and cluster.status != "stopped":
        its = "Its results" if missing >= done else f"{number(missing)} of its results"
        sentence += f" {its} went with the workers."
    return Verdict(status, sentence, cluster.silence if status == "running" else 0.0)


def computation_status(computation: Readable, cluster: Verdict) -> str:
    """Return the status that :func:`computation_verdict` gives."""
    status: str = computation["status"]
    if status != "running" or cluster.status == "running":
        return status
    tasks = computation["tasks"]
    # If all tasks were done at the last beat, it only waited in case a loop submitted more.
    return "finished" if tasks and done_of(computation) >= tasks else "lost"


def waits(computation: Readable, workers: int | None) -> str:
    """Return in words how many tasks of a running computation wait for a worker; "" for none.

    ``workers`` is how many its cluster has, None if not known.
    """
    waiting = stuck.waiting_for_worker(computation["states"], workers)
    return stuck.in_words(waiting, computation["asks"], workers=workers) if waiting else ""


def waited(
    computation: Readable,
    done: int,
    seconds: float,
    *,
    silent: bool = False,
    workers: int | None = None,
) -> str:
    """Return in words how many tasks of a cancelled or lost computation waited to the end.

    Return "" for none. See :func:`stuck.left_waiting`.
    """
    asks, unrunnable = computation["asks"], computation["unrunnable_seconds"]
    waiting = stuck.left_waiting(
        computation["tasks"] - done, computation["states"], asks,
        waited=unrunnable, seconds=seconds, silent=silent, workers=workers,
    )  # fmt: skip
    if not waiting:
        return ""
    none = stuck.no_worker(asks, computation["worker_seconds"], unrunnable)
    return none or stuck.in_words(waiting, asks, workers=workers if silent else None, past=True)


def has_not_reported(silence: float) -> str:
    """Return in words for how long a computation's cluster has not reported; "" if it has."""
    return f"its cluster has not reported for {duration(silence)}" if silence else ""


def erred_by_dependency(status: str, *, erred: int, blamed: int) -> bool:
    """Return whether a computation erred only because it needed a task that failed elsewhere."""
    return status == "erred" and bool(blamed) and not erred


def waited_for_failed(blamed: int, tasks: int | None, blames: Mapping[str, str]) -> str:
    """Return in words how many tasks never ran because one that they needed failed, and which.

    ``tasks`` is the number of all tasks, or None to leave it out.
    """
    of = plural(blamed, "task") if tasks is None else f"{number(blamed)} of {plural(tasks, 'task')}"
    what = ", ".join(sorted(set(blames.values())))
    need = "needs" if blamed == 1 else "need"
    return f"{of} {need} one that failed{f', {what}' if what else ''}"


def computation_seconds(computation: Readable, cluster: Readable) -> float:
    """Return for how many seconds of its cluster's clock it ran, as far as is known."""
    started_at: float = computation["started_at"]
    stopped_at: float | None = computation["stopped_at"]
    until = stopped_at
    if until is None:
        until = computation["ended_at"]
    if until is None:
        until = last_known(cluster)
    return max(0.0, until - started_at)


def why_running(cluster: Readable) -> str:
    """Return in sentences why a running cluster has not stopped.

    ``cluster`` has the columns of its table. Idle policies are explained elsewhere.
    """
    held = held_by_in_words(cluster["held_by"] or {})
    be = "is" if held.startswith("1 ") else "are"
    idle, timeout = cluster["idle_seconds"], cluster["idle_timeout"]
    if idle is None:
        if works_without_tasks(cluster):
            there = f" There {be} {held}." if held else ""
            return f"It is at work: {busy_by(cluster)}.{there} It is therefore not closed as idle."
        return f"It has work: {held}." if held else "It was at work when it was last heard."
    keeps = (
        f"Nothing runs, but there {be} {held}." if held else "Nothing runs, and nothing keeps it."
    )
    if timeout is None:
        return (
            f"{keeps} No idle timeout is set in its settings, so it stays until somebody stops it."
        )
    left = timeout - idle
    if left <= 0:
        return f"{keeps} Its idle timeout of {duration(timeout)} has passed: it should close soon."
    return f"{keeps} Its idle timeout of {duration(timeout)} closes it in {duration(left)}."
