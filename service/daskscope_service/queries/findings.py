"""Findings: those of one computation or cluster, made now, and lists of stored ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import Any

from sqlalchemy import and_

from daskscope_service.db.row_values import Row
from daskscope_service.db.schema import cluster, computation, finding
from daskscope_service.db.scope import Item, Page, Scope, Selection, page
from daskscope_service.insight.findings.finding import Finding, Measure, SavedMoney, Saving
from daskscope_service.insight.findings.headline import (
    cluster_headline,
    computation_headline,
    in_words,
    saving_in_words,
)
from daskscope_service.insight.findings.rules import Judgement, judge
from daskscope_service.insight.lifetime import Lifetime
from daskscope_service.insight.views import ClusterView, ComputationView, ListedFinding
from daskscope_service.queries import evidence
from daskscope_service.queries.causes import NAMED
from daskscope_service.queries.clusters import lifetime_of
from daskscope_service.queries.mutes import mutes_of, mutes_on
from daskscope_service.telemetry.store import SeriesStore


def judge_computation(
    scope: Scope, store: SeriesStore, cluster_id: str, id: str
) -> Judgement | None:
    """Judge a computation by what is stored now; None if the workspace has no such."""
    evidence_of = evidence.of_computation(scope, store, cluster_id, id)
    return (
        None
        if evidence_of is None
        else judge(evidence_of).with_mutes(mutes_on(scope, cluster_id, id))
    )


def judge_cluster(scope: Scope, store: SeriesStore, cluster_id: str) -> Judgement | None:
    """Judge a cluster by what is stored now; None if the workspace has no such."""
    evidence_of = evidence.of_cluster(scope, store, cluster_id)
    return (
        None if evidence_of is None else judge(evidence_of).with_mutes(mutes_on(scope, cluster_id))
    )


class Explained(Row, frozen=True):
    """The findings of a computation or a cluster, as the API answers them.

    ``cause`` is the first finding that is shown. It is made now, while lists show the stored one.
    """

    headline: str
    cause: Item | None
    findings: list[Item]
    not_measured: dict[str, str]
    judgement: Judgement


def explain_computation(
    scope: Scope, store: SeriesStore, computation: ComputationView
) -> Explained:
    """Return a computation's headline, findings, and what rules could not measure."""
    judgement = judge_computation(scope, store, computation.cluster, computation.id)
    subject = {
        "cluster": computation.cluster,
        "computation": computation.id,
        "subject": "computation",
    }
    return _explained(computation, judgement, subject, computation_headline)


def explain_cluster(scope: Scope, store: SeriesStore, cluster: ClusterView) -> Explained:
    """Return a cluster's headline, findings, and what rules could not measure."""
    judgement = judge_cluster(scope, store, cluster.id)
    life = lifetime_of(scope, cluster.id) if cluster.status != "running" else Lifetime()
    subject = {"cluster": cluster.id, "computation": None, "subject": "cluster"}
    return _explained(cluster, judgement, subject, partial(cluster_headline, life=life))


def _explained(
    of: ClusterView | ComputationView, judgement: Judgement | None, subject: Item, say: Any
) -> Explained:
    judgement = judgement or Judgement((), {}, None)  # it was removed a moment ago
    first = next(iter(judgement.shown), None)
    subject = subject | {"user": of.user, "at": of.started_at}
    return Explained(
        headline=say(of, judgement),
        cause=None if first is None else {name: getattr(first, name) for name in NAMED},
        findings=[as_item(one) | subject for one in judgement.findings],
        not_measured=judgement.not_measured,
        judgement=judgement,
    )


def as_item(one: Finding) -> Item:
    """Return a finding as the API answers it, without its subject."""
    item = asdict(one)
    del item["clause"]
    return item | {"sentence": one.sentence} | _texts(one.evidence, one.saving, one.price_source)


def _texts(evidence: Iterable[Measure], saving: Saving | None, source: str | None) -> Item:
    """Return the evidence and the saving of a finding with what each is in words."""
    return {
        "evidence": [asdict(one) | {"text": in_words(one)} for one in evidence],
        "saving": None
        if saving is None
        else asdict(saving) | {"text": saving_in_words(saving, source)},
    }


def list_findings(
    scope: Scope,
    selection: Selection,
    rule: str | None = None,
    severity: str | None = None,
    *,
    effects: bool = True,
) -> Page[ListedFinding]:
    """Return stored findings by when their computation or cluster began, the newest first.

    Without ``effects``, those that another finding explains are left out.
    """
    query = scope.select(finding, *finding.c, cluster.c.name.label("cluster_name")).join(
        cluster,
        and_(cluster.c.workspace == finding.c.workspace, cluster.c.id == finding.c.cluster),
    )
    if selection.user is not None:
        query = query.where(finding.c.user == selection.user)
    query = query.where(scope.is_of(selection.cluster, finding.c.cluster))
    if rule is not None:
        query = query.where(finding.c.rule == rule)
    if severity is not None:
        query = query.where(finding.c.severity == severity)
    if not effects:
        query = query.where(finding.c.suppressed_by.is_(None))
    listed = page(scope, query, selection, finding.c.at, "id", "cluster")
    muted = mutes_of(scope, listed.items)
    return Page(list(map(_listed, listed.items, muted)), listed.next)


def _listed(row: Item, muted: Item | None) -> ListedFinding:
    evidence = [Measure(**one) for one in row["evidence"]]
    made = {
        "muted": muted,
        "subject": "computation" if row["computation"] else "cluster",
        "computation": row["computation"] or None,
    }
    texts = _texts(evidence, _stored_saving(row["saving"]), row["price_source"])
    return ListedFinding.of(row | made | texts)


def _stored_saving(item: Item | None) -> Saving | None:
    if item is None:
        return None
    amount = item.get("money")  # earlier versions stored none
    return Saving(**item | {"money": None if amount is None else SavedMoney(**amount)})


def cluster_of(scope: Scope, id: str) -> str | None:
    """Return the id of the cluster on which a computation ran; None if there is no such."""
    query = scope.select(computation, computation.c.cluster).where(computation.c.id == id)
    return scope.connection.execute(query.limit(1)).scalar()
