"""The sentences of notifications, and the messages that combine them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from daskscope.one_line import one_line
from daskscope.protocol import tasks_done
from daskscope_service.insight.job_time import reached_time_limit
from daskscope_service.insight.verdict import erred_by_dependency, waited_for_failed
from daskscope_service.insight.wording import duration, estimate, money, number, plural

Kind = Literal[
    "idle", "computation failed", "worker lost", "cluster silent", "budget passed", "finding"
]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: How many notices a message shows. It counts the others.
MOST_LINES = 20
#: The most characters of one line: users choose the names, and a worker may be in many jobs.
MOST_CHARACTERS = 500

#: What chat programs take for a mention, which may notify everyone, or for a link.
_MARKUP = re.compile(r"(?<!\w)@(?=\S)|<(?=\S)|\](?=\()")


def computation_failed(computation: Any, cluster: Any) -> str:
    """Return the sentence about a computation that erred. Both come from a heartbeat."""
    lasted = computation.stopped_at - computation.started_at
    done = tasks_done(
        tasks=computation.tasks,
        completed=computation.completed,
        erred=computation.erred,
        cancelled=computation.cancelled,
        states=computation.states,
        status=computation.status,
    )
    who = f"A computation of {computation.user} on {cluster.name}"
    if erred_by_dependency(computation.status, erred=computation.erred, blamed=computation.blamed):
        waited = waited_for_failed(computation.blamed, computation.tasks, computation.blames)
        return f"{who} ended unfinished after {duration(lasted)}: {waited}; {number(done)} done."
    return (
        f"{who} failed after {duration(lasted)}: "
        f"{plural(computation.erred, 'task run')} failed, {number(done)} of "
        f"{plural(computation.tasks, 'task')} done."
    )


def worker_lost(loss: Any, cluster: Any) -> str:
    """Return the sentence about a worker that was lost. Both come from a heartbeat."""
    had = f", with {plural(loss.processing, 'task')} on it" if loss.processing else ""
    over = " as its job's time limit was reached"
    when = over if reached_time_limit(loss.deployment, loss.at) else ""
    return (
        f"{cluster.name} lost the worker {loss.name}{_place(loss.deployment)}{when}: "
        f"{loss.reason}{had}."
    )


def _place(deployment: Mapping[str, str]) -> str:
    """Return the jobs and the pod of a worker in words, "" if the worker reported none."""
    places = [f"job {value}" for name, value in deployment.items() if name.endswith(".job.id")]
    if pod := deployment.get("k8s.pod.name"):
        places.append(f"pod {pod}")
    return f" ({', '.join(places)})" if places else ""


def cluster_silent(cluster: Mapping[str, Any], silence: float) -> str:
    """Return the sentence about a cluster that sent nothing for ``silence`` seconds."""
    return (
        f"{cluster['name']} of {cluster['user']} fell silent {duration(silence)} ago, without "
        "saying that it stopped."
    )


def finding(row: Mapping[str, Any]) -> str:
    """Return the sentence about a finding. ``row`` also has its cluster's name and the cost."""
    cost = ""
    if row["cost"]:
        what = estimate([row["price_source"]])
        cost = f" It cost {money(row['cost'], row['currency'])}, an {what}."
    subject = "A computation" if row["computation"] else "The cluster"
    said = row["sentence"]
    return f"{subject} of {row['user']} on {row['name']}: {said[:1].lower()}{said[1:]}{cost}"


def budget_passed(
    spent: float, amount: float, currency: str, whose: str, sources: Sequence[str]
) -> str:
    """Return the sentence about a passed budget.

    It is for the clusters ``whose`` names; ``sources`` are those of their prices.
    """
    return (
        f"{whose} have cost {money(spent, currency)}, an {estimate(sources)}: more than the budget "
        f"of {money(amount, currency)}."
    )


def _line(sentence: str) -> str:
    # A zero-width space breaks what a chat program would take for markup.
    line = _MARKUP.sub("\\g<0>\N{ZERO WIDTH SPACE}", one_line(sentence))
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"


def message(
    notices: Sequence[Mapping[str, Any]], counts: Mapping[str, int], workspace: str, url: str
) -> tuple[str, str]:
    """Return the title and the text of one message.

    Parameters
    ----------
    notices
        The first notices; at most :data:`MOST_LINES` are shown, each with its link.
    counts
        How many notices there are of each kind, including those that are not in ``notices``.
    url
        The service's address.
    """
    happened = ", ".join(
        kind if count == 1 else f"{number(count)} × {kind}" for kind, count in counts.items()
    )
    # Users choose the names in a sentence. _line keeps a name from adding lines, such as a link.
    lines = [
        f"{_line(notice['sentence'])}\n{url}{notice['path']}" for notice in notices[:MOST_LINES]
    ]
    more = sum(counts.values()) - len(lines)
    if more > 0:
        lines.append(f"And {number(more)} more: {url}/")
    return f"daskscope, {workspace}: {happened}", "\n\n".join(lines)
