"""Every page of the service, as its routes say, with addresses as people have them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from flask import Flask
from sqlalchemy import insert, select, update

from daskscope_service.accounts import members
from daskscope_service.accounts.caller import Caller
from daskscope_service.accounts.change import Change
from daskscope_service.application import PAGES
from daskscope_service.db.engine import writing
from daskscope_service.db.schema import computation, job, job_correction
from daskscope_service.policies import idle_policies as policies
from daskscope_service.policies.decision import Policy
from tests.bench.questions import Addresses, Places
from tests.bench.stock import DAY, Stock, cluster_id
from tests.service_process import ServiceProcess

#: What has no page of its own: files, and what leads to a provider that is not there.
_LEFT_OUT = re.compile(r"/static/|/sign-in/openid|/account/openid")

_POLICY = "nights"
#: The job of all computations of the cluster that lives long: there are more than a page shows.
_JOB, _CORRECTION = "0f3c9ab17c55d0e2", "c1"


def rules() -> list[str]:
    """Return the patterns of the addresses of all pages."""
    app = Flask("pages", static_folder=None)
    for page in PAGES:
        app.register_blueprint(page.blueprint)
    found = {rule.rule for rule in app.url_map.iter_rules() if "GET" in (rule.methods or ())}
    return sorted(rule for rule in found if not _LEFT_OUT.match(rule))


def pages(stock: Stock, invitation: str) -> Addresses:
    """Return each page by its pattern, and others of the same pattern by what is told of them.

    ``invitation`` is an invitation's code. To make an address raises LookupError if its pattern has
    a parameter that nothing is known of.
    """
    at = Places(stock)
    found: Addresses = {}
    for rule in rules():
        found[rule] = _plain(rule, at, invitation)
        for what, address in _others(rule, at).items():
            found[f"{rule}, {what}"] = address
    return found


def prepare(service: ServiceProcess, workspace: str) -> str:
    """Make what pages need and clusters do not bring; return an invitation's code."""
    who = Caller("owner", workspace, "owner", None, False, "192.0.2.1")
    with writing(service.engine) as connection:
        policy = Policy(_POLICY, _POLICY, 1800.0, "notice")
        policies.add(Change(connection, workspace, "owner"), policy)
        runs = (computation.c.workspace == workspace, computation.c.cluster == cluster_id(0))
        connection.execute(update(computation).where(*runs).values(job=_JOB))
        last = connection.execute(select(computation.c.id, computation.c.started_at).where(*runs))
        id, started_at = last.first() or ("", 0.0)
        values = {"first_at": started_at, "last_at": started_at, "runs": 1}
        connection.execute(
            insert(job).values(
                workspace=workspace, id=_JOB, level="code", name="", last_cluster=cluster_id(0),
                last_computation=id, **values,
            )
        )  # fmt: skip
        connection.execute(
            insert(job_correction).values(
                workspace=workspace, id=_CORRECTION, job=_JOB, kind="name", value="nightly",
                changed_at=started_at, changed_by="owner",
            )
        )  # fmt: skip
    _, code = members.invite(service.engine, who, f"li-{time.time_ns()}@example.org", "member")
    return code


def _plain(rule: str, at: Places, invitation: str) -> Callable[[], str]:
    def address() -> str:
        which = at.standing() if rule.endswith("/shutdown") else at.short()
        cluster, _, computation = at.computation().partition("/computations/")
        values = {
            "cluster_id": cluster if "<computation_id>" in rule else cluster_id(which),
            "computation_id": computation,
            "fingerprint": at.bug(),
            "policy_id": _POLICY,
            "job_id": _JOB,
            "correction_id": _CORRECTION,
        }
        unknown = set(re.findall(r"<(?:\w+:)?(\w+)>", rule)) - values.keys()
        if unknown:
            raise LookupError(f"say in {__name__} what stands for {unknown} of {rule}")
        found = re.sub(r"<(?:\w+:)?(\w+)>", lambda part: values[part[1]], rule)
        if rule == "/comparisons":
            other = at.computation().partition("/computations/")[2]
            return f"{found}?a={computation}&b={other}"
        return f"{found}?code={invitation}" if rule == "/invitation" else found

    return address


def _others(rule: str, at: Places) -> Addresses:
    long, week = cluster_id(0), at.stock.now - 7 * DAY
    everywhere: dict[str, Addresses] = {
        "/people": {
            "half a year": lambda: "/people?weeks=26",
            "hours": lambda: "/people?show=compute",
        },
        "/clusters": {
            "dearest first": lambda: "/clusters?sort=cost",
            "most idle first": lambda: "/clusters?sort=idle",
            "longest first": lambda: "/clusters?sort=up",
            "most workers first": lambda: "/clusters?sort=workers",
            "most memory first": lambda: "/clusters?sort=memory",
            "running": lambda: "/clusters?status=running",
            "lost": lambda: "/clusters?status=lost",
            "of a tag": lambda: "/clusters?tag=team%3Dclimate",
            "of a tag that none has": lambda: "/clusters?tag=ticket",
            "of a kind that none has": lambda: "/clusters?kind=SLURMCluster",
            "at some time": lambda: f"/clusters?until={at.instant()}",
            "of a user": lambda: f"/clusters?user={at.user()}",
            "of a user, dearest first": lambda: f"/clusters?user={at.user()}&sort=cost",
            "of another user": lambda: f"/clusters?user={at.rare_user()}",
        },
        "/clusters/<cluster_id>": {
            "running": lambda: f"/clusters/{cluster_id(at.standing())}",
            "long-lived": lambda: f"/clusters/{long}",
            "long-lived, a day": lambda: f"/clusters/{long}?span=day",
            "long-lived, all its life": lambda: f"/clusters/{long}?span=life",
        },
        "/clusters/<cluster_id>/computations": {
            "long-lived": lambda: f"/clusters/{long}/computations?until={at.instant()}",
        },
        "/clusters/<cluster_id>/computations/<computation_id>": {
            "long-lived": lambda: f"/clusters/{at.of_long_life()}",
        },
        "/computations": {
            "at some time": lambda: f"/computations?until={at.instant()}",
            "of a user": lambda: f"/computations?user={at.user()}",
            "of no one": lambda: "/computations?user=nobody",
            "that erred": lambda: "/computations?status=erred",
            "that finished": lambda: "/computations?status=finished",
            "by status": lambda: "/computations?sort=status",
        },
        "/exceptions": {
            "a day": lambda: f"/exceptions?since={at.stock.now - DAY}",
            "at some time": lambda: f"/exceptions?until={at.instant()}",
            "of a user": lambda: f"/exceptions?user={at.user()}",
        },
        "/exceptions/<fingerprint>": {"seen seldom": lambda: f"/exceptions/{at.rare()}"},
        "/profile": {
            "of a user": lambda: f"/profile?user={at.user()}",
            "of a cluster": lambda: f"/profile?cluster={cluster_id(at.short())}",
            "at some time": lambda: f"/profile?until={at.instant()}",
            "found": lambda: "/profile?find=function_7&sort=total",
        },
        "/events": {
            "at some time": lambda: f"/events?until={at.instant()}",
            "of a user": lambda: f"/events?user={at.user()}",
            "of a topic": lambda: f"/events?topic=progress&since={week}",
            "of a topic that none has": lambda: "/events?topic=restart",
        },
        "/logs": {
            "at some time": lambda: f"/logs?until={at.instant()}",
            "errors": lambda: "/logs?level=error",
            "of a cluster": lambda: f"/logs?cluster={cluster_id(at.short())}",
            "of a user": lambda: f"/logs?user={at.rare_user()}",
            "with a text that none has": lambda: "/logs?text=segmentation",
        },
    }
    return everywhere.get(rule, {})
