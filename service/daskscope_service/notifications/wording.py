"""The sentences of notifications, and the message made of many of them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from daskscope.one_line import one_line
from daskscope.protocol import tasks_done
from daskscope_service.insight.job_time import reached_time_limit
from daskscope_service.insight.verdict import only_waited, waited_for_failed
from daskscope_service.insight.wording import duration, estimate, money, number, plural

Kind = Literal[
    "idle", "computation failed", "worker lost", "cluster silent", "budget passed", "finding"
]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: Lines of one message; the others are counted.
MOST_LINES = 20
#: Characters of one line: names and jobs are users' own, and a worker may be in many jobs.
MOST_CHARACTERS = 500

#: What chats read as a mention, which may call everyone, or as a link with a text of its own.
_MARKUP = re.compile(r"(?<!\w)@(?=\S)|<(?=\S)|\](?=\()")


def computation_failed(computation: Any, cluster: Any) -> str:
    """Return the sentence about a computation that erred. Both are of a beat."""
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
    if only_waited(computation.status, erred=computation.erred, blamed=computation.blamed):
        waited = waited_for_failed(computation.blamed, computation.tasks, computation.blames)
        return f"{who} ended unfinished after {duration(lasted)}: {waited}; {number(done)} done."
    return (
        f"{who} failed after {duration(lasted)}: "
        f"{plural(computation.erred, 'task run')} failed, {number(done)} of "
        f"{plural(computation.tasks, 'task')} done."
    )


def worker_lost(loss: Any, cluster: Any) -> str:
    """Return the sentence about a worker that was lost. Both are of a beat."""
    had = f", with {plural(loss.processing, 'task')} on it" if loss.processing else ""
    over = " as its job's time limit was reached"
    when = over if reached_time_limit(loss.deployment, loss.at) else ""
    return (
        f"{cluster.name} lost the worker {loss.name}{_place(loss.deployment)}{when}: "
        f"{loss.reason}{had}."
    )


def _place(deployment: Mapping[str, str]) -> str:
    """Return in which job or pod that was, where the worker said so."""
    found = [f"job {value}" for name, value in deployment.items() if name.endswith(".job.id")]
    if pod := deployment.get("k8s.pod.name"):
        found.append(f"pod {pod}")
    return f" ({', '.join(found)})" if found else ""


def cluster_silent(cluster: Mapping[str, Any], silence: float) -> str:
    """Return the sentence about a cluster that is not heard any more."""
    return (
        f"{cluster['name']} of {cluster['user']} fell silent {duration(silence)} ago, without "
        "saying that it stopped."
    )


def finding(row: Mapping[str, Any]) -> str:
    """Return the sentence about a cause that costs: a row of a finding, with its cluster's name."""
    cost = ""
    if row["cost"]:
        what = estimate([row["price_source"]])
        cost = f" It cost {money(row['cost'], row['currency'])}, an {what}."
    subject = "A computation" if row["computation"] else "The cluster"
    said = row["sentence"]
    return f"{subject} of {row['user']} on {row['name']}: {said[:1].lower()}{said[1:]}{cost}"


def budget_passed(
    spent: float, amount: float, currency: str, month: str, sources: Sequence[str]
) -> str:
    """Return the sentence about a month's budget that is used up, by prices of ``sources``."""
    return (
        f"The clusters of {month} have cost {money(spent, currency)}, an {estimate(sources)}: more "
        f"than the "
        f"budget of {money(amount, currency)}."
    )


def _line(sentence: str) -> str:
    # A space without width parts what would be more than text.
    line = _MARKUP.sub("\\g<0>\N{ZERO WIDTH SPACE}", one_line(sentence))
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"


def message(
    notices: Sequence[Mapping[str, Any]], counts: Mapping[str, int], workspace: str, url: str
) -> tuple[str, str]:
    """Return title and text of one message about what happened.

    Parameters
    ----------
    notices
        The first notices, :data:`MOST_LINES` at most; each is shown with its link.
    counts
        How many there are of each kind, those that are not among ``notices`` too.
    url
        Where users reach the service.
    """
    happened = ", ".join(
        kind if count == 1 else f"{number(count)} × {kind}" for kind, count in counts.items()
    )
    # Names in a sentence are their users' own: none of them may add lines, such as a link.
    lines = [
        f"{_line(notice['sentence'])}\n{url}{notice['path']}" for notice in notices[:MOST_LINES]
    ]
    more = sum(counts.values()) - len(lines)
    if more > 0:
        lines.append(f"And {number(more)} more: {url}/")
    return f"daskscope, {workspace}: {happened}", "\n\n".join(lines)
