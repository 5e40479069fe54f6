"""The rule about clusters that are up without work, and what keeps them."""

from __future__ import annotations

from daskscope_service.insight.findings.evidence import ClusterState, Evidence, Holder
from daskscope_service.insight.findings.finding import Action, Finding, Measure, Outcome
from daskscope_service.insight.findings.savings import in_money
from daskscope_service.insight.verdict import held_by_in_words
from daskscope_service.insight.wording import duration, money, plural, size

#: The most clients that a sentence names.
_MOST_NAMED = 3


def idle_cluster(evidence: Evidence) -> Outcome:
    """The cluster is up without work; or it was for most of its time.

    How it is found: it reports that nothing is under way, for at least 30 s; once it has stopped,
    that was for at least half of the time that it was up. It becomes an alarm after an hour.

    What to do: close the client, or release the results that it holds; set `idle.timeout`, or an
    idle policy, so that idle clusters close by themselves.

    Example: it was idle for 48.1 s of the 49.0 s that it was up, with 1 client connected and 8
    results held in memory (ada on 10.0.0.2 with 610 MiB).
    """
    if evidence.run is not None:
        return None
    return _now(evidence) if evidence.cluster.status == "running" else _then(evidence)


def _now(evidence: Evidence) -> Outcome:
    cluster, limits = evidence.cluster, evidence.thresholds
    idle = cluster.idle_seconds
    if idle is None or idle < limits["idle.seconds"]:
        return None
    held = held_by_in_words(cluster.held_by)
    spent = _spent(evidence)
    return Finding(
        rule="idle-cluster",
        severity="warning" if idle >= limits["idle.alarm"] and cluster.threads else "notice",
        clause=f"it is idle for {duration(idle)}{spent}"
        + (f", and kept for {held}{_who(cluster)}" if held else ", and nothing keeps it"),
        evidence=_measures(evidence, idle),
        actions=_actions(evidence),
        cost=cluster.idle_cost,
        saving=in_money(evidence, cluster.idle_cost, "cost of idle threads while it was up"),
    )


def _then(evidence: Evidence) -> Outcome:
    cluster, meanwhile, limits = evidence.cluster, evidence.meanwhile, evidence.thresholds
    # A cluster that went away during its work has other findings.
    if cluster.status == "lost" or meanwhile.idle_longest is None:
        return None
    idle = meanwhile.idle_longest
    if idle < limits["idle.seconds"] or idle < limits["idle.share"] * cluster.duration:
        return None
    clients = round(meanwhile.most_clients or 0)
    kept = held_by_in_words(cluster.last_held_by or cluster.held_by) or (
        f"{plural(clients, 'client')} connected" if clients else ""
    )
    held = f", with {kept}{_who(cluster)}" if kept else ""
    return Finding(
        rule="idle-cluster",
        severity="warning" if idle >= limits["idle.alarm"] else "notice",
        clause=f"it was idle for {duration(idle)} of the {duration(cluster.duration)} that it was "
        f"up{_spent(evidence)}{held}",
        evidence=_measures(evidence, idle),
        actions=_actions(evidence),
        cost=cluster.idle_cost,
        saving=in_money(evidence, cluster.idle_cost, "cost of idle threads while it was up"),
    )


def _measures(evidence: Evidence, idle: float) -> tuple[Measure, ...]:
    cluster = evidence.cluster
    kinds = (("clients", "{client}"), ("results", "{result}"))
    held_by = cluster.held_by or cluster.last_held_by
    held = tuple(Measure(kind, held_by[kind], unit) for kind, unit in kinds if held_by.get(kind))
    sizes = tuple(
        Measure(f"held by {_named(one)}", one.bytes, "By")
        for one in cluster.connected[:_MOST_NAMED]
        if one.bytes
    )
    return (
        Measure("idle", idle, "s", "h-time"),
        Measure("up", cluster.duration, "s"),
        *held,
        *sizes,
    )


def _named(one: Holder) -> str:
    on = f" on {one.host}"
    return one.user if not one.host or one.user.endswith(on) else one.user + on


def _who(cluster: ClusterState) -> str:
    """Return the users of the connected clients and what they hold; those that hold most first."""
    named = []
    for one in cluster.connected[:_MOST_NAMED]:
        holds = f" with {size(one.bytes)}" if one.bytes else ""
        named.append(f"{_named(one)}{holds}")
    more = len(cluster.connected) - len(named)
    words = ", ".join([*dict.fromkeys(named), *([f"{more} more"] if more else [])])
    return f" ({words})" if words else ""


def _actions(evidence: Evidence) -> tuple[Action, ...]:
    actions = []
    if evidence.cluster.held_by.get("results"):
        actions.append(Action("Release the results that the client holds: delete its futures."))
    actions.append(Action("Let idle clusters close by themselves.", "daskscope.idle.timeout"))
    return tuple(actions)


def _spent(evidence: Evidence) -> str:
    cluster = evidence.cluster
    if not cluster.idle_cost or cluster.currency is None or cluster.cost is None:
        return ""
    idle, all_of_it = (money(one, cluster.currency) for one in (cluster.idle_cost, cluster.cost))
    at = ", at list prices" if cluster.price_source == "list" else ""
    return f" ({idle} of {all_of_it}{at})"
