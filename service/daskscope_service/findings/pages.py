"""The page of findings of a workspace: what each cause cost, and all findings, newest first."""

from __future__ import annotations

import dataclasses
import time

from flask import Blueprint, redirect, render_template
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import signed_in
from daskscope_service.accounts.first_run import first_run, has_clusters
from daskscope_service.db.scope import Page, Scope, Selection, reading
from daskscope_service.findings.rule_parameter import RULE_NAMES, asked_rule
from daskscope_service.insight.findings.finding import SEVERITIES
from daskscope_service.insight.findings.rules import RULES
from daskscope_service.insight.views import ListedFinding
from daskscope_service.queries.causes import causes_by_cost
from daskscope_service.queries.findings import list_findings
from daskscope_service.web.downloads import csv_list, make_columns
from daskscope_service.web.forms import tidied
from daskscope_service.web.parameters import ROWS_SHOWN, one_of, optional, selection

blueprint = Blueprint("findings_page", __name__)

#: How many seconds ago the work began at most, by the value of ``within``. The default is first.
WITHIN = {"week": 7 * 86400.0, "day": 86400.0, "month": 30 * 86400.0}

_OURS = ("rule", "severity", "within")

_CSV = make_columns(
    "at subject cluster cluster_name computation user rule severity sentence",
    "thread_seconds_lost=seconds share_of_thread_seconds=share cost_estimate=cost currency",
    "price_source confidence evidence actions saving found_at muted",
)


@blueprint.get("/findings")
@signed_in
def findings() -> ResponseReturnValue:
    """Show what each cause cost, and the findings that the address asks for."""
    if tidy := tidied():
        return redirect(tidy)
    which = _asked_for()
    with reading() as scope:
        if not has_clusters(scope):
            return first_run()
        page = _listed(scope, which)
        costs = causes_by_cost(scope, which.since or 0.0, which.until)
    return render_template(
        "findings.html",
        now=time.time(),
        page=page,
        selected=which,
        costs=costs,
        sources={source for one in costs for source in one.sources},
        meanings={rule.name: rule.meaning for rule in RULES},
        rules=RULE_NAMES,
        severities=[(severity, severity) for severity in SEVERITIES],
        moving=False,
    )


@blueprint.get("/findings.csv")
@signed_in
def findings_csv() -> ResponseReturnValue:
    """Answer with the findings that the address asks for, as CSV."""
    return csv_list(_CSV, _listed, _asked_for(), "findings")


def _listed(scope: Scope, which: Selection) -> Page[ListedFinding]:
    severity = optional("severity", SEVERITIES)
    return list_findings(scope, which, asked_rule("rule"), severity, effects=False)


def _asked_for() -> Selection:
    which = selection(beside=_OURS, rows=ROWS_SHOWN)
    if which.since is not None:
        return which
    return dataclasses.replace(which, since=time.time() - WITHIN[one_of("within", tuple(WITHIN))])
