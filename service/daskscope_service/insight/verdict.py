"""What became of a cluster and of a computation: a word and a sentence.

``lost`` follows from silence, so only the service can know it. A row is a mapping with the columns
of its table; ``now`` is the service's clock, in seconds since the Unix epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daskscope_service.db.readable import Readable
from daskscope_service.insight import stuck
from daskscope_service.insight.progress import done_of, results_lost, results_missing
from daskscope_service.insight.wording import duration, number, plural

#: The first of the signs of work in ``protocol.Status.busy_by``: the usual one.
TASKS_RUN = "tasks are running"

#: A cluster is silent after at least this many beats that did not come.
MISSED_BEATS = 3

# What ``held_by`` counts, the word for one of it, and what there is to say of it.
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


#: How a cluster went, by its status.
_WENT = {"lost": "fell silent", "ended": "ended without a word", "stopped": "stopped"}

# What became of results that tasks needed and that were not there: a worker that held them left, or
# the scheduler had let them go and they were asked for again.
_RUN_AGAIN = ", so that their tasks run again"

#: The columns of a cluster that verdicts are made of.
OF_VERDICT = (
    *("started_at", "stopped_at", "status_at", "last_seen_at", "interval", "idle_seconds"),
    *("held_by", "busy_by", "workers", "may_end"),
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """``status`` is one word; ``sentence`` says it in full, ready for a page.

    ``silence`` is for how long a cluster that runs, or that of a computation that does, has missed
    its beats, in seconds.
    """

    status: str
    sentence: str
    silence: float = 0.0


def cluster_verdict(cluster: Readable, now: float, silent_after: float) -> Verdict:
    """Return ``running``, ``stopped``, or ``lost``: silent without having stopped; or ``ended``, as
    it is with one that went with its client's process and had no work to do.
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
        )
    if silence > MISSED_BEATS * cluster["interval"]:
        return Verdict(
            "running",
            f"It has not reported for {duration(silence)}; until then it was {_doing(cluster)}.",
            silence,
        )
    return Verdict("running", f"It is up, and {_doing(cluster)}.")


def _doing(cluster: Readable) -> str:
    """Return in words what a cluster that runs was at when it last reported."""
    held = cluster["held_by"]
    if cluster["idle_seconds"] is not None:
        what = kept_for(held)
        return f"idle for {duration(cluster['idle_seconds'])}" + (f", with {what}" if what else "")
    workers = plural(cluster["workers"], "worker")
    waiting = held.get("unrunnable", 0)
    if waiting and not held.get("processing") and not held.get("queued"):
        wait = "task waits" if waiting == 1 else "tasks wait"
        them = "it" if waiting == 1 else "them"
        return (
            f"stuck: {number(waiting)} {wait} for a worker, and none of its {workers} may run "
            f"{them}"
        )
    beside = f"; {stuck.in_words(waiting, {})}" if waiting else ""
    if past_tasks(cluster):
        return f"at work with {workers}, though no task runs{beside}"
    return f"at work with {workers}{beside}"


def past_tasks(cluster: Readable) -> bool:
    """Return whether a cluster is at work though none of Dask's tasks runs."""
    return bool(cluster["busy_by"]) and TASKS_RUN not in cluster["busy_by"]


def busy_by(cluster: Readable) -> str:
    """Return in words what a cluster is at; empty where nothing is known."""
    return "; ".join(cluster["busy_by"] or ())


def kept_for(held_by: Mapping[str, int]) -> str:
    """Return in words what there is to keep a cluster for, as ``protocol.Status.held_by`` counts.

    Empty where there is nothing.
    """
    counts = dict(held_by)
    # Those with a thread are among those that workers were given.
    counts["processing"] = max(counts.get("processing", 0) - counts.get("running", 0), 0)
    parts = [plural(counts[kind], thing) + how for kind, thing, how in _HELD if counts.get(kind)]
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1] if parts else ""]))


def cluster_seconds(cluster: Readable) -> float:
    """Return how long the cluster was up, as far as is known, in seconds of its own clock."""
    started_at: float = cluster["started_at"]
    return max(0.0, last_known(cluster) - started_at)


def last_known(cluster: Readable) -> float:
    """Return up to when the cluster is known, by its own clock."""
    at: float = cluster["status_at"] if cluster["stopped_at"] is None else cluster["stopped_at"]
    return at


def computation_verdict(computation: Readable, cluster: Verdict, seconds: float) -> Verdict:
    """Return the computation's own status, or ``lost`` where its cluster went away under it.

    What becomes of its cluster and its results once it has ended changes nothing about that: the
    sentence says it. ``seconds`` is how long it ran, as far as is known.
    """
    tasks, done = computation["tasks"], done_of(computation)
    lasted = duration(seconds)
    status = computation_status(computation, cluster)
    if status == "lost":
        how, were = _WENT[cluster.status], "was" if tasks == 1 else "were"
        left = waited(computation, done, seconds, silent=cluster.status == "lost")
        return Verdict(
            "lost",
            f"The cluster {how} while it ran: {number(done)} of {plural(tasks, 'task')} "
            f"{were} done after {lasted}{left and f'; {left}'}.",
        )
    states = computation["states"]
    waiting = waits(computation)
    if status == "running" and waiting and not (states.get("processing") or states.get("queued")):
        sentence = f"{number(done)} of {plural(tasks, 'task')} done after {lasted}: {waiting}."
    elif status == "running":
        share = f" ({done / tasks:.0%})" if tasks else ""
        # All have ended, and for a moment a loop may submit more.
        how_long = f", running for {lasted}" if computation["ended_at"] is None else f" in {lasted}"
        beside = f"; {waiting}" if waiting else ""
        sentence = f"{number(done)} of {plural(tasks, 'task')} done{share}{how_long}{beside}."
    elif status == "finished":
        sentence = f"Finished: {plural(tasks, 'task')} in {lasted}."
    elif only_waited(status, erred=computation["erred"], blamed=computation["blamed"]):
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
        sentence += f" {plural(computation['retried'], 'task run')} tried again."
    if computation["lost_runs"]:
        sentence += f" {plural(computation['lost_runs'], 'task run')} ended with their workers."
    lost = results_lost(computation, done)
    if lost:
        were = "was" if lost == 1 else "were"
        again = {"running": _RUN_AGAIN, "finished": f", and {were} computed again"}
        when = "when it was needed" if lost == 1 else "when they were needed"
        sentence += f" {plural(lost, 'result')} {were} gone {when}{again.get(status, '')}."
    missing = results_missing(computation)
    if missing and cluster.status == "running":
        have = "has" if missing == 1 else "have"
        sentence += f" {plural(missing, 'result')} {have} gone since then{_RUN_AGAIN}."
    elif missing and cluster.status != "stopped":
        its = "Its results" if missing >= done else f"{number(missing)} of its results"
        sentence += f" {its} went with the workers."
    return Verdict(status, sentence, cluster.silence if status == "running" else 0.0)


def computation_status(computation: Readable, cluster: Verdict) -> str:
    """Return the status of :func:`computation_verdict`."""
    status: str = computation["status"]
    if status != "running" or cluster.status == "running":
        return status
    tasks = computation["tasks"]
    # If all are done, it waited for a loop to go on when it was last heard.
    return "finished" if tasks and done_of(computation) >= tasks else "lost"


def waits(computation: Readable) -> str:
    """Return in words which tasks of a computation that runs wait for a worker; "" for none."""
    waiting = computation["states"].get("no-worker", 0)
    return stuck.in_words(waiting, computation["asks"]) if waiting else ""


def waited(computation: Readable, done: int, seconds: float, *, silent: bool = False) -> str:
    """Return the same of one that was cancelled or lost: see :func:`stuck.left_waiting`."""
    asks = computation["asks"]
    waiting = stuck.left_waiting(
        computation["tasks"] - done, computation["states"], asks,
        waited=computation["unrunnable_seconds"], seconds=seconds, silent=silent,
    )  # fmt: skip
    return stuck.in_words(waiting, asks, past=True) if waiting else ""


def has_not_reported(silence: float) -> str:
    """Return in words for how long a computation's cluster has been silent; "" if it is not."""
    return f"its cluster has not reported for {duration(silence)}" if silence else ""


def only_waited(status: str, *, erred: int, blamed: int) -> bool:
    """Return whether a computation erred though none of its own tasks did."""
    return status == "erred" and bool(blamed) and not erred


def waited_for_failed(blamed: int, tasks: int | None, blames: Mapping[str, str]) -> str:
    """Return in words how many (of so many ``tasks``) never ran, and which one they needed."""
    of = plural(blamed, "task") if tasks is None else f"{number(blamed)} of {plural(tasks, 'task')}"
    what = ", ".join(sorted(set(blames.values())))
    need = "needs" if blamed == 1 else "need"
    return f"{of} {need} one that failed{f', {what}' if what else ''}"


def computation_seconds(computation: Readable, cluster: Readable) -> float:
    """Return how long it ran, as far as is known, in seconds of its cluster's clock."""
    started_at: float = computation["started_at"]
    stopped_at: float | None = computation["stopped_at"]
    until = stopped_at
    if until is None:
        until = computation["ended_at"]
    if until is None:
        until = last_known(cluster)
    return max(0.0, until - started_at)


def why_running(cluster: Readable) -> str:
    """Return why a cluster that runs has not stopped, in sentences.

    It has the columns of its table. Idle policies have sentences of their own.
    """
    held = kept_for(cluster["held_by"] or {})
    idle, timeout = cluster["idle_seconds"], cluster["idle_timeout"]
    if idle is None:
        if past_tasks(cluster):
            there_is = f" There is {held}." if held else ""
            return (
                f"It is at work: {busy_by(cluster)}.{there_is} It is therefore not closed as idle."
            )
        return f"It has work: {held}." if held else "It was at work when it was last heard."
    keeps = f"Nothing runs, but there is {held}." if held else "Nothing runs, and nothing keeps it."
    if timeout is None:
        return (
            f"{keeps} No idle timeout is set in its settings, so it stays until somebody stops it."
        )
    left = timeout - idle
    if left <= 0:
        return f"{keeps} Its idle timeout of {duration(timeout)} has passed: it should close soon."
    return f"{keeps} Its idle timeout of {duration(timeout)} closes it in {duration(left)}."
