"""All rules in order, which findings explain which others, and how a subject is judged by all.

The order of the rules decides which cause is named first: what ended a computation comes before
what slowed it down, and a rule before those whose findings it explains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite

from daskscope_service.insight.findings import (
    deaths,
    failures,
    history,
    idle,
    memory,
    pace,
    shuffles,
    sizes,
    tasks,
    threads,
    unrunnable,
    versions,
    workers,
)
from daskscope_service.insight.findings.evidence import Evidence
from daskscope_service.insight.findings.finding import Finding, Muted, NotMeasured, Outcome
from daskscope_service.insight.findings.savings import with_money
from daskscope_service.insight.wording import percent

_BEYOND = NotMeasured("finite numbers: a value was too large to compute with")

#: The most findings that are shown.
MOST_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, and the rules whose findings are its effects."""

    name: str
    judge: Callable[[Evidence], Outcome]
    explains: frozenset[str] = frozenset()

    @property
    def meaning(self) -> str:
        """What a finding of the rule means, in one sentence: the first line of its docstring."""
        return (self.judge.__doc__ or "").partition("\n")[0]


def _rules(*listed: tuple[str, Callable[[Evidence], Outcome], Iterable[str]]) -> tuple[Rule, ...]:
    return tuple(Rule(name, judge, frozenset(explains)) for name, judge, explains in listed)


_SLOW = (
    *("large-graph", "spilling", "paused", "transfer-bound", "tiny-tasks", "straggler"),
    *("too-few-tasks", "serial-chain", "gil-bound", "waiting", "slow-worker", "warm-up"),
    *(
        "late-first-task",
        "blocked-loop",
        "too-many-threads",
        "shuffle-bound",
        "scheduler-bound",
        "slow-start",
    ),
)
#: The rule about threads without work, whose cause others name.
_IDLE = "oversized-threads"
_OF_DEATHS = ("failed", "recomputed", "retries", *_SLOW)

RULES: tuple[Rule, ...] = _rules(
    ("silent", failures.silent, ("idle-cluster", "over-provisioned-memory")),
    ("out-of-memory", failures.out_of_memory, ("killed-workers", *_OF_DEATHS)),
    ("killed-for-memory", deaths.killed_for_memory, ("killed-workers", *_OF_DEATHS)),
    ("killed-workers", deaths.killed_workers, _OF_DEATHS),
    ("version-mismatch", versions.version_mismatch, ("failed", "retries", *_SLOW)),
    ("failed", failures.failed, ("retries", *_SLOW)),
    ("upstream-failed", failures.upstream_failed, _SLOW),
    ("unrunnable", unrunnable.unrunnable, ("cancelled", *_SLOW)),
    ("stuck", pace.stuck, _SLOW),
    ("key-collision", versions.key_collision, ()),
    ("cancelled", failures.cancelled, _SLOW),
    ("retries", failures.retries, ("straggler", "waiting")),
    ("recomputed", failures.recomputed, ("transfer-bound",)),
    ("slow-start", pace.slow_start, ("transfer-bound", "slow-worker", "late-first-task", _IDLE)),
    (
        "large-graph",
        tasks.large_graph,
        ("too-few-tasks", "serial-chain", "transfer-bound", "late-first-task", _IDLE),
    ),
    ("late-first-task", pace.late_first_task, (_IDLE,)),
    (
        "too-many-threads",
        memory.too_many_threads,
        ("paused", "spilling", "transfer-bound", "straggler", "waiting"),
    ),
    ("paused", memory.paused, ("straggler", "waiting", "gil-bound")),
    ("spilling", memory.spilling, ("paused", "transfer-bound", "straggler", "waiting")),
    (
        "shuffle-bound",
        shuffles.shuffle_bound,
        ("transfer-bound", "tiny-tasks", "straggler", "waiting", "serial-chain", _IDLE),
    ),
    ("transfer-bound", tasks.transfer_bound, ("straggler", "too-few-tasks", "waiting", _IDLE)),
    (
        "tiny-tasks",
        tasks.tiny_tasks,
        (
            *("gil-bound", "serial-chain", "waiting", "straggler", "slow-worker"),
            *("scheduler-bound", _IDLE),
        ),
    ),
    (
        "scheduler-bound",
        pace.scheduler_bound,
        ("gil-bound", "serial-chain", "straggler", "slow-worker", _IDLE),
    ),
    ("slow-worker", workers.slow_worker, ("straggler", "waiting", "warm-up", _IDLE)),
    ("straggler", tasks.straggler, ("too-few-tasks", "serial-chain", "waiting", _IDLE)),
    ("too-few-tasks", tasks.too_few_tasks, ("serial-chain", "waiting", _IDLE)),
    ("serial-chain", tasks.serial_chain, ("waiting", _IDLE)),
    ("warm-up", workers.warm_up, ("waiting", _IDLE)),
    # If threads run one at a time, the event loop waits as well.
    ("gil-bound", threads.gil_bound, ("blocked-loop", "waiting")),
    ("blocked-loop", threads.blocked_loop, ("waiting",)),
    ("unused-gpu", threads.unused_gpu, ()),
    ("waiting", threads.waiting, ()),
    # The last rules about computations, because the others name a cause.
    ("slower-than-before", history.slower_than_before, ()),
    ("undersized-memory", sizes.undersized_memory, ()),
    ("oversized-memory", sizes.oversized_memory, ()),
    ("oversized-threads", sizes.oversized_threads, ()),
    ("growing-memory", memory.growing_memory, ("nearly-out-of-memory",)),
    ("worker-churn", pace.worker_churn, ()),
    ("compute-loop", pace.compute_loop, ()),
    ("idle-cluster", idle.idle_cluster, ()),
    ("nearly-out-of-memory", memory.nearly_out_of_memory, ()),
    ("over-provisioned-memory", memory.over_provisioned, ()),
)


#: Rules that judge a cluster and its computations by the same events.
OF_BOTH = frozenset({"out-of-memory", "killed-for-memory", "unrunnable"})


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome of all rules for one subject.

    ``findings`` are in the order in which causes are named, and those that another one explains are
    last. ``not_measured`` says what a rule lacked, by rule. ``nothing`` is the sentence for a
    computation that ended well and has no finding.
    """

    findings: tuple[Finding, ...]
    not_measured: dict[str, str]
    nothing: str | None

    @property
    def shown(self) -> tuple[Finding, ...]:
        """The first findings that no other one explains and that are not muted."""
        own = [one for one in self.findings if one.suppressed_by is None and one.muted is None]
        return tuple(own[:MOST_SHOWN])

    @property
    def muted(self) -> tuple[Finding, ...]:
        """The muted findings, which pages fold."""
        return tuple(one for one in self.findings if one.muted is not None)

    def with_mutes(self, by_rule: Mapping[str, Muted]) -> Judgement:
        """Return a copy whose findings have the mutes of ``by_rule``."""
        findings = (replace(one, muted=by_rule.get(one.rule)) for one in self.findings)
        return replace(self, findings=tuple(findings)) if by_rule else self


def judge(evidence: Evidence) -> Judgement:
    """Judge the subject of ``evidence`` by all rules."""
    outcomes: dict[str, Finding] = {}
    not_measured: dict[str, str] = {}
    for rule in RULES:
        outcome = _outcome(rule, evidence)
        if isinstance(outcome, NotMeasured):
            not_measured[rule.name] = outcome.what
        elif outcome is not None:
            outcomes[rule.name] = outcome
    explained: dict[str, str] = {}
    for rule in RULES:
        if rule.name in outcomes and rule.name not in explained:
            for effect in rule.explains & outcomes.keys():
                explained.setdefault(effect, rule.name)
    findings = [
        replace(finding, suppressed_by=explained.get(name)) for name, finding in outcomes.items()
    ]
    nothing = None if findings else _nothing(evidence)
    # The first finding names the cause; the others follow by lost time.
    order = [finding for finding in findings if finding.suppressed_by is None]
    rest = sorted(order[1:], key=lambda one: -(one.seconds or 0.0))
    effects = [finding for finding in findings if finding.suppressed_by is not None]
    return Judgement((*order[:1], *rest, *effects), not_measured, nothing)


def _outcome(rule: Rule, evidence: Evidence) -> Outcome:
    """Return the outcome of a rule; :data:`_BEYOND` if its numbers cannot be computed or shown."""
    try:
        outcome = rule.judge(evidence)
        if isinstance(outcome, Finding):
            outcome = _priced(outcome, evidence)
    except (ArithmeticError, ValueError):  # such as an overflow after a division by almost zero
        return _BEYOND
    if isinstance(outcome, Finding) and not all(map(isfinite, outcome.numbers())):
        return _BEYOND
    return outcome


def _priced(finding: Finding, evidence: Evidence) -> Finding:
    price, cost = evidence.price_per_thread_second, finding.cost
    if cost is None and price is not None and finding.seconds is not None:
        cost = price * finding.seconds
    saving = None if finding.saving is None else with_money(finding.saving, evidence)
    finding = replace(finding, cost=cost, saving=saving)
    if cost is None and (saving is None or saving.money is None):
        return finding
    cluster = evidence.cluster
    return replace(finding, currency=cluster.currency, price_source=cluster.price_source)


def _nothing(evidence: Evidence) -> str | None:
    run, share = evidence.run, evidence.computed_share
    if run is None or run.status != "finished" or share is None or not run.tasks:
        return None
    if not evidence.meanwhile.alone or run.duration < evidence.thresholds["performance.seconds"]:
        return None
    computed = f"its threads computed {percent(share)} of the time"
    is_little = share < evidence.thresholds["nothing.computed"]
    nothing = "No known cause stands out; " if is_little else "Nothing stands out: "
    load = run.host_load
    if load is None or load <= evidence.thresholds["blocked-loop.host-load"]:
        return f"{nothing}{computed}."
    # Several rules tell a cause by how long tasks were on a CPU, and here they waited for one.
    return (
        f"{nothing}{computed}. A worker's machine had a load of {load:.1f} for each core, which "
        "may hide a cause."
    )
