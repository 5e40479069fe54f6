"""``/api/v1/findings``: the list of stored findings, and the explanation of one subject."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, current_app

from daskscope import api_types as types
from daskscope_service.accounts.access import require
from daskscope_service.db.scope import Item, Scope, reading
from daskscope_service.findings.rule_parameter import RULE_NAMES, asked_rule
from daskscope_service.insight.findings.finding import SEVERITIES
from daskscope_service.insight.views import ComputationView
from daskscope_service.queries.cluster_filter import cluster_called
from daskscope_service.queries.clusters import find_cluster
from daskscope_service.queries.computations import one_computation
from daskscope_service.queries.findings import (
    Explained,
    cluster_of,
    explain_cluster,
    explain_computation,
    list_findings,
)
from daskscope_service.services import services
from daskscope_service.web.operation import answers
from daskscope_service.web.parameters import LIST, Parameter, one_of, optional, selection
from daskscope_service.web.problems import Problem
from daskscope_service.web.representation import as_item, page_answer, page_url

blueprint = Blueprint("findings", __name__, url_prefix="/api/v1")

_OF_FINDINGS = (
    Parameter("rule", "Only findings of this rule.", {"enum": list(RULE_NAMES)}),
    Parameter("severity", "Only findings of this severity.", {"enum": list(SEVERITIES)}),
    Parameter(
        "effects",
        "Include findings that another finding explains: they have `suppressed_by`.",
        {"type": "boolean", "default": True},
    ),
)


@blueprint.get("/findings")
@require("read")
@answers(types.Page[types.ListedFinding], *LIST, *_OF_FINDINGS)
def findings() -> Item:
    """Answer with findings by when their computation or cluster began.

    The service makes them when a computation ends, and each minute while it or its cluster runs.
    """
    which = selection(beside=tuple(parameter.name for parameter in _OF_FINDINGS))
    rule = asked_rule("rule")
    severity = optional("severity", SEVERITIES)
    effects = one_of("effects", ("true", "false")) == "true"
    with reading() as scope:
        page = list_findings(scope, which, rule, severity, effects=effects)
    return page_answer(page, lambda row: _url(row.cluster, row.computation))


@blueprint.get("/findings/<subject_id>")
@require("read")
@answers(types.Explanation, problems=(409,))
def why(subject_id: str) -> Item:
    """Answer with what became of a cluster or a computation, and why.

    The subject is an id of either, or the name of a cluster, if only one has it.
    """
    store = services().series
    with reading() as scope:
        cluster = find_cluster(scope, subject_id)
        computation = None if cluster is not None else _computation(scope, subject_id)
        if computation is None:
            cluster = cluster or cluster_called(scope, subject_id)
        if cluster is not None:
            explained = explain_cluster(scope, store, cluster)
            return _explanation(cluster.status, explained, "cluster", cluster.id, None)
        if computation is None:
            raise Problem(
                status=404,
                title="Not found",
                detail=f"This workspace has no cluster and no computation {subject_id!r}.",
            )
        explained = explain_computation(scope, store, computation)
        return _explanation(
            computation.status, explained, "computation", computation.cluster, computation.id
        )


def _computation(scope: Scope, id: str) -> ComputationView | None:
    where = cluster_of(scope, id)
    return None if where is None else one_computation(scope, where, id)


def _explanation(
    status: str, explained: Explained, subject: str, cluster_id: str, id: str | None
) -> Item:
    return {
        "status": status,
        **as_item(explained),
        "subject": subject,
        "cluster": cluster_id,
        "computation": id,
        "url": _url(cluster_id, id),
    }


def _url(cluster_id: str, id: str | None) -> str:
    settings: Any = current_app.config["SETTINGS"]
    if id is None:
        return page_url(settings, "cluster", cluster_id=cluster_id)
    return page_url(settings, "computation", cluster_id=cluster_id, computation_id=id)
