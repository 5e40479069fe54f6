"""The page on which users mute a finding, with a reason and an end, and what its buttons do."""

from __future__ import annotations

import time

from flask import Blueprint, redirect, render_template, url_for
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import acting_as, changing
from daskscope_service.db.scope import reading
from daskscope_service.findings import mutes
from daskscope_service.findings.mutes import NewMute, TooManyMutes
from daskscope_service.findings.rule_parameter import asked_rule
from daskscope_service.insight.findings.rules import RULES
from daskscope_service.queries.clusters import one_cluster
from daskscope_service.queries.computations import one_computation
from daskscope_service.web.fields import Unfit
from daskscope_service.web.forms import said

blueprint = Blueprint("mute", __name__)

#: Days that can be chosen. The first is the default.
_DAYS = (7, 1, 30, 90, 365)
_DAY = 86400.0


@blueprint.get("/clusters/<cluster_id>/mute")
@acting_as("member")
def of_cluster(cluster_id: str) -> ResponseReturnValue:
    """Show the form that mutes a finding of a cluster."""
    return _question(cluster_id, "")


@blueprint.get("/clusters/<cluster_id>/computations/<computation_id>/mute")
@acting_as("member")
def of_computation(cluster_id: str, computation_id: str) -> ResponseReturnValue:
    """Show the form that mutes a finding of a computation."""
    return _question(cluster_id, computation_id)


@blueprint.post("/clusters/<cluster_id>/mute")
@acting_as("member")
def mute_cluster(cluster_id: str) -> ResponseReturnValue:
    """Mute a finding of a cluster."""
    return _mute(cluster_id, "")


@blueprint.post("/clusters/<cluster_id>/computations/<computation_id>/mute")
@acting_as("member")
def mute_computation(cluster_id: str, computation_id: str) -> ResponseReturnValue:
    """Mute a finding of a computation, of its whole cluster, or of all runs of its job."""
    return _mute(cluster_id, computation_id)


@blueprint.post("/mutes/<mute_id>/end")
@acting_as("member")
def end(mute_id: str) -> ResponseReturnValue:
    """End a mute."""
    with changing() as change:
        ended = mutes.unmute(change, mute_id)
    if ended.job and not said("cluster"):
        return redirect(url_for("jobs_page.job", job_id=ended.job), code=303)
    return _back(ended.cluster or said("cluster"), said("computation") or ended.computation)


def _mute(cluster_id: str, computation_id: str) -> ResponseReturnValue:
    covers = said("covers")
    job = _job_of(cluster_id, computation_id) if covers == "job" else ""
    days = said("days")
    until = time.time() + _DAY * (int(days) if days in map(str, _DAYS) else _DAYS[0])
    requested = NewMute(
        asked_rule("rule") or "",
        "" if job else cluster_id,
        "" if job or covers == "cluster" else computation_id,
        said("reason"),
        until,
        job,
    )
    try:
        with changing() as change:
            mutes.mute(change, requested)
    except Unfit as error:
        return _question(cluster_id, computation_id, 400, str(error))
    except TooManyMutes as error:
        return _question(cluster_id, computation_id, 409, str(error))
    return _back(cluster_id, computation_id)


def _job_of(cluster_id: str, computation_id: str) -> str:
    """Return the id of the computation's job; "" if it has none."""
    with reading() as scope:
        return one_computation(scope, cluster_id, computation_id).job or ""


def _question(
    cluster_id: str, computation_id: str, status: int = 200, wrong: str | None = None
) -> tuple[str, int]:
    rule = asked_rule("rule") or RULES[0].name
    with reading() as scope:
        cluster = one_cluster(scope, cluster_id)
        computation = one_computation(scope, cluster_id, computation_id) if computation_id else None
    page = render_template(
        "mute.html",
        cluster=cluster,
        computation=computation,
        rule=rule,
        meaning=next(one.meaning for one in RULES if one.name == rule),
        days=_DAYS,
        chosen=said("days"),
        reason=said("reason"),
        covers=said("covers"),
        wrong=wrong,
    )
    return page, status


def _back(cluster_id: str, computation_id: str) -> ResponseReturnValue:
    if computation_id:
        where = url_for("pages.computation", cluster_id=cluster_id, computation_id=computation_id)
    else:
        where = url_for("pages.cluster", cluster_id=cluster_id)
    return redirect(where, code=303)
