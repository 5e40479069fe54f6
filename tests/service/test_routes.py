"""Every route and everyone who may come: one table says who is let in, and none is missing."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import update

from daskscope_service.accounts import sessions, sign_in, tokens, users
from daskscope_service.accounts.change import Change
from daskscope_service.accounts.tokens import Scope
from daskscope_service.accounts.users import Role
from daskscope_service.application import close_app, create_app
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.policies import idle_policies as policies
from daskscope_service.policies.decision import Policy
from daskscope_service.settings import Settings
from daskscope_service.shutdowns import commands as shutdowns
from daskscope_service.shutdowns.commands import NewShutdown
from tests import sqlite_template
from tests.service.beats import full_beat, make_cluster, post
from tests.service.people import make_user as add_user
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

USERS = frozenset({"viewer", "member", "owner", "other workspace's owner"})
PEOPLE = USERS | {"link"}
SESSIONS = PEOPLE | {"token's session"}
READERS = frozenset({"read token", "ingest+read token"})
SENDERS = frozenset({"ingest token", "ingest+read token"})
ADMINS = frozenset({"admin token"})
MEMBERS_TOKENS = frozenset({"member's admin token"})
REFUSED = frozenset(
    {"no one", "revoked token", "expired token", "disabled user", "user without a role"}
)
EVERYONE = SESSIONS | READERS | SENDERS | ADMINS | MEMBERS_TOKENS | REFUSED

#: Who may change something in the workspace, on its pages.
ACTORS = frozenset({"member", "owner", "other workspace's owner", "link"})
OWNERS = (ACTORS - {"member"}) | ADMINS

#: Stands in every answer that tells of the workspace's cluster, and not in its address.
TELLTALE = "not-for-other-workspaces"

#: Who is let in. Everyone is let in to ask to be let in, and to look whether the service is there.
ALLOWED: dict[str, frozenset[str]] = {
    "GET /static/<path:filename>": EVERYONE,
    "GET /healthz": EVERYONE,
    "GET /readyz": EVERYONE,
    "GET /sign-in": EVERYONE,
    "POST /sign-in": EVERYONE,
    "POST /sign-out": EVERYONE,
    # There is no provider here: tests/service/test_openid.py has one.
    "GET /sign-in/openid": EVERYONE,
    "GET /sign-in/openid/callback": EVERYONE,
    "POST /api/v1/login/device": EVERYONE,
    "POST /api/v1/login/token": EVERYONE,
    # Who runs the service, with a secret of the settings.
    "GET /metrics": frozenset(),
    "POST /api/v1/heartbeats": SENDERS,
    "POST /v1/metrics": SENDERS,
    "POST /v1/traces": SENDERS,
    "POST /v1/logs": SENDERS,
    "GET /api/v1/openapi.json": EVERYONE,
    "GET /api/v1/clusters": SESSIONS | READERS,
    "GET /api/v1/clusters/<cluster_id>": SESSIONS | READERS,
    "GET /api/v1/clusters/<cluster_id>/computations": SESSIONS | READERS,
    "GET /api/v1/clusters/<cluster_id>/computations/<computation_id>": SESSIONS | READERS,
    "GET /api/v1/clusters/<cluster_id>/computations/<computation_id>/trace": SESSIONS | READERS,
    "GET /api/v1/clusters/<cluster_id>/profiles/<profile_id>": SESSIONS | READERS,
    "GET /api/v1/computations": SESSIONS | READERS,
    "GET /api/v1/exceptions": SESSIONS | READERS,
    "GET /api/v1/exceptions/<fingerprint>": SESSIONS | READERS,
    "GET /api/v1/events": SESSIONS | READERS,
    "GET /api/v1/findings": SESSIONS | READERS,
    "GET /api/v1/findings/<subject_id>": SESSIONS | READERS,
    "GET /api/v1/logs": SESSIONS | READERS,
    "GET /api/v1/profiles": SESSIONS | READERS,
    "GET /api/v1/runs/<run_id>": SESSIONS | READERS,
    "GET /api/v1/series": SESSIONS | READERS,
    "GET /api/v1/usage": SESSIONS | READERS,
    "GET /api/v1/commands": SESSIONS | READERS,
    "GET /api/v1/commands/<command_id>": SESSIONS | READERS,
    "POST /api/v1/commands": ACTORS | ADMINS | MEMBERS_TOKENS,
    "POST /api/v1/commands/<command_id>/call-off": ACTORS | ADMINS | MEMBERS_TOKENS,
    "GET /clusters/<cluster_id>/shutdown": ACTORS,
    "POST /clusters/<cluster_id>/shutdown": ACTORS,
    "POST /clusters/<cluster_id>/commands/<command_id>/call-off": ACTORS,
    "GET /api/v1/policies": SESSIONS | READERS,
    "GET /api/v1/policies/<policy_id>": SESSIONS | READERS,
    "GET /api/v1/decisions": SESSIONS | READERS,
    "POST /api/v1/policies": OWNERS,
    "PUT /api/v1/policies/<policy_id>": OWNERS,
    "DELETE /api/v1/policies/<policy_id>": OWNERS,
    "GET /settings/policies": SESSIONS,
    "POST /settings/policies": OWNERS - ADMINS,
    "GET /settings/policies/<policy_id>": OWNERS - ADMINS,
    "POST /settings/policies/<policy_id>": OWNERS - ADMINS,
    "POST /settings/policies/<policy_id>/remove": OWNERS - ADMINS,
    "GET /api/v1/targets": SESSIONS | READERS,
    "GET /api/v1/budget": SESSIONS | READERS,
    "GET /api/v1/budgets": SESSIONS | READERS,
    "PUT /api/v1/budget": OWNERS,
    "POST /api/v1/targets": OWNERS,
    "POST /api/v1/targets/<target_id>/test": OWNERS,
    "DELETE /api/v1/targets/<target_id>": OWNERS,
    "GET /settings/notifications": SESSIONS,
    "POST /settings/notifications": OWNERS - ADMINS,
    "POST /settings/notifications/<target_id>/test": OWNERS - ADMINS,
    "POST /settings/notifications/<target_id>/remove": OWNERS - ADMINS,
    "POST /settings/notifications/budget": OWNERS - ADMINS,
    "GET /api/v1/tokens": SESSIONS | ADMINS | MEMBERS_TOKENS,
    "POST /api/v1/tokens": PEOPLE | ADMINS,
    "DELETE /api/v1/tokens": OWNERS,
    "DELETE /api/v1/tokens/<token_id>": OWNERS,
    "GET /api/v1/workspaces": SESSIONS | ADMINS | MEMBERS_TOKENS,
    "GET /api/v1/workspaces/<workspace>/members": SESSIONS | ADMINS | MEMBERS_TOKENS,
    "PUT /api/v1/workspaces/<workspace>/members/<user_id>": OWNERS,
    "DELETE /api/v1/workspaces/<workspace>/members/<user_id>": OWNERS,
    "GET /api/v1/workspaces/<workspace>/invitations": OWNERS,
    "POST /api/v1/workspaces/<workspace>/invitations": OWNERS,
    "DELETE /api/v1/workspaces/<workspace>/invitations/<invitation_id>": OWNERS,
    "GET /": SESSIONS,
    "GET /clusters": SESSIONS,
    "GET /clusters.csv": SESSIONS,
    "GET /computations": SESSIONS,
    "GET /people": SESSIONS,
    "GET /people.csv": SESSIONS,
    "GET /clusters/<cluster_id>": SESSIONS,
    "GET /clusters/<cluster_id>/charts": SESSIONS,
    "GET /clusters/<cluster_id>/stream": SESSIONS,
    "GET /clusters/<cluster_id>/stream.json": SESSIONS,
    "GET /clusters/<cluster_id>/computations": SESSIONS,
    "GET /clusters/<cluster_id>/computations/<computation_id>": SESSIONS,
    "GET /computations.csv": SESSIONS,
    "GET /exceptions.csv": SESSIONS,
    "GET /exceptions/<fingerprint>/failures.csv": SESSIONS,
    "GET /events.csv": SESSIONS,
    "GET /logs.csv": SESSIONS,
    "GET /profile.csv": SESSIONS,
    "GET /clusters/<cluster_id>/workers-lost.csv": SESSIONS,
    "GET /clusters/<cluster_id>/shutdowns.csv": SESSIONS,
    "GET /clusters/<cluster_id>/decisions.csv": SESSIONS,
    "GET /clusters/<cluster_id>/computations/<computation_id>/task-groups.csv": SESSIONS,
    "GET /clusters/<cluster_id>/computations/<computation_id>/workers.csv": SESSIONS,
    "GET /clusters/<cluster_id>/computations/<computation_id>/failures.csv": SESSIONS,
    "GET /clusters/<cluster_id>/report": SESSIONS,
    "GET /clusters/<cluster_id>/report.html": SESSIONS,
    "GET /clusters/<cluster_id>/computations/<computation_id>/report": SESSIONS,
    "GET /clusters/<cluster_id>/computations/<computation_id>/report.html": SESSIONS,
    "GET /api/v1/clusters/<cluster_id>/report": SESSIONS | READERS,
    "GET /api/v1/clusters/<cluster_id>/stream": SESSIONS | READERS,
    "GET /api/v1/clusters/<cluster_id>/stream/trace": SESSIONS | READERS,
    "GET /api/v1/clusters/<cluster_id>/computations/<computation_id>/report": SESSIONS | READERS,
    "GET /exceptions": SESSIONS,
    "GET /findings": SESSIONS,
    "GET /api/v1/jobs": SESSIONS | READERS,
    "GET /api/v1/jobs/<job_id>": SESSIONS | READERS,
    "GET /api/v1/comparisons": SESSIONS | READERS,
    "GET /comparisons": SESSIONS,
    "GET /api/v1/repeats": SESSIONS | READERS,
    "GET /repeats": SESSIONS,
    "GET /repeats.csv": SESSIONS,
    "GET /jobs": SESSIONS,
    "GET /jobs.csv": SESSIONS,
    "GET /jobs/<job_id>": SESSIONS,
    "GET /api/v1/job-corrections": SESSIONS | READERS,
    "GET /api/v1/jobs/<job_id>/correction-preview": SESSIONS | READERS,
    "POST /api/v1/job-corrections": ACTORS | ADMINS | MEMBERS_TOKENS,
    "DELETE /api/v1/job-corrections/<correction_id>": ACTORS | ADMINS | MEMBERS_TOKENS,
    "GET /jobs/corrections": SESSIONS,
    "GET /jobs/<job_id>/correct": ACTORS,
    "POST /jobs/<job_id>/correct": ACTORS,
    "GET /jobs/corrections/<correction_id>/undo": ACTORS,
    "POST /jobs/corrections/<correction_id>/undo": ACTORS,
    "GET /api/v1/mutes": SESSIONS | READERS,
    "POST /api/v1/mutes": ACTORS | ADMINS | MEMBERS_TOKENS,
    "DELETE /api/v1/mutes/<mute_id>": ACTORS | ADMINS | MEMBERS_TOKENS,
    "GET /clusters/<cluster_id>/mute": ACTORS,
    "POST /clusters/<cluster_id>/mute": ACTORS,
    "GET /clusters/<cluster_id>/computations/<computation_id>/mute": ACTORS,
    "POST /clusters/<cluster_id>/computations/<computation_id>/mute": ACTORS,
    "POST /mutes/<mute_id>/end": ACTORS,
    "GET /findings.csv": SESSIONS,
    "GET /events": SESSIONS,
    "GET /logs": SESSIONS,
    "GET /profile": SESSIONS,
    "GET /exceptions/<fingerprint>": SESSIONS,
    "POST /workspace": USERS,
    "GET /account": USERS,
    "POST /account/password": USERS,
    "POST /account/sessions/<id_hash>/end": USERS,
    "POST /account/sessions/end": USERS,
    "GET /account/openid": USERS,
    "GET /activate": PEOPLE,
    "POST /activate": PEOPLE,
    # Whoever has its code may see it and accept it.
    "GET /invitation": EVERYONE,
    "POST /invitation": EVERYONE,
    "GET /settings/members": SESSIONS,
    "POST /settings/members/<user_id>": OWNERS - ADMINS,
    "POST /settings/invitations": OWNERS - ADMINS,
    "POST /settings/invitations/<invitation_id>/take-back": OWNERS - ADMINS,
    "GET /api/v1/prices": SESSIONS | READERS,
    "PUT /api/v1/prices": OWNERS,
    "DELETE /api/v1/prices": OWNERS,
    "GET /api/v1/thresholds": SESSIONS | READERS,
    "PUT /api/v1/thresholds": OWNERS,
    "GET /settings/prices": SESSIONS,
    "GET /settings/thresholds": SESSIONS,
    "POST /settings/prices": OWNERS - ADMINS,
    "GET /api/v1/retention": SESSIONS | READERS,
    "PUT /api/v1/retention": OWNERS,
    "GET /settings/retention": SESSIONS,
    "POST /settings/retention": OWNERS - ADMINS,
    "GET /settings/workspace": SESSIONS,
    "GET /settings/audit": OWNERS - ADMINS,
    "GET /settings/audit.csv": OWNERS - ADMINS,
    "GET /settings/tokens": SESSIONS,
    "POST /settings/tokens": PEOPLE,
    "POST /settings/tokens/revoke": OWNERS - ADMINS,
    "POST /settings/tokens/<token_id>/revoke": OWNERS - ADMINS,
}

#: What is answered to who is let in, where it is not 200.
FOUND = {
    "POST /clusters/<cluster_id>/shutdown": (303, 409),  # 409: one is under way
    "POST /clusters/<cluster_id>/commands/<command_id>/call-off": (303,),
    # Without a body; and the first who may removes it.
    "PUT /api/v1/policies/<policy_id>": (400, 404),
    "DELETE /api/v1/policies/<policy_id>": (204, 404),
    "GET /api/v1/policies/<policy_id>": (200, 404),
    "GET /settings/policies/<policy_id>": (200, 404),
    "POST /settings/policies/<policy_id>": (400, 404),
    "POST /settings/policies/<policy_id>/remove": (303, 404),
    "POST /api/v1/targets/<target_id>/test": (404,),
    "DELETE /api/v1/targets/<target_id>": (404,),
    "POST /settings/notifications/<target_id>/test": (404,),
    "POST /settings/notifications/<target_id>/remove": (404,),
    "DELETE /api/v1/tokens/<token_id>": (204,),
    "POST /settings/tokens/<token_id>/revoke": (303,),
    # No one of these ids is there; tests/service/test_members.py has some.
    "DELETE /api/v1/job-corrections/<correction_id>": (404,),
    "GET /jobs/corrections/<correction_id>/undo": (404,),
    "POST /jobs/corrections/<correction_id>/undo": (404,),
    "POST /jobs/<job_id>/correct": (400,),  # nothing is said
    "DELETE /api/v1/mutes/<mute_id>": (404,),
    "POST /mutes/<mute_id>/end": (404,),
    "POST /clusters/<cluster_id>/mute": (400,),  # without a reason
    "POST /clusters/<cluster_id>/computations/<computation_id>/mute": (400,),
    "PUT /api/v1/workspaces/<workspace>/members/<user_id>": (404,),
    "DELETE /api/v1/workspaces/<workspace>/members/<user_id>": (404,),
    "DELETE /api/v1/workspaces/<workspace>/invitations/<invitation_id>": (404,),
    "POST /settings/members/<user_id>": (404,),
    "POST /settings/invitations/<invitation_id>/take-back": (404,),
}


#: A job as it is stored, but for where its newest run was.
JOB: dict[str, Any] = {
    "id": "0f3c9ab17c55d0e2",
    "level": "name",
    "name": TELLTALE,
    "first_at": 1.7e9,
    "last_at": 1.7e9,
    "last_computation": "c1",
    "runs": 1,
}


@dataclass(frozen=True)
class World:
    """A service with one cluster in ``workspace``, named :data:`TELLTALE`."""

    service: ServiceProcess
    workspace: str
    cluster: str
    command: str
    policy: str
    token_id: str

    def address(self, route: str) -> str:
        """Return the address of what is in the workspace, for a pattern of addresses."""
        for name, value in (
            ("<cluster_id>", self.cluster),
            ("<subject_id>", self.cluster),
            ("<computation_id>", "c1"),
            ("<profile_id>", "p1"),
            ("<command_id>", self.command),
            ("<policy_id>", self.policy),
            ("<target_id>", "none"),
            ("<mute_id>", "none"),
            ("<correction_id>", "none"),
            ("<job_id>", JOB["id"]),
            ("<run_id>", "c1"),
            ("<fingerprint>", "1:abc"),
            ("<id_hash>", "00" * 32),
            ("<token_id>", self.token_id),
            ("<workspace>", self.workspace),
            ("<user_id>", "0" * 16),
            ("<invitation_id>", "0" * 16),
            ("<path:filename>", "icon.svg"),
        ):
            route = route.replace(name, value)
        assert "<" not in route, f"say here what stands for the parameter of {route}"
        if route == "/api/v1/series":
            route += f"?cluster={self.cluster}&metric=dask.worker.count"
        if route.endswith("/comparisons"):
            route += "?a=c1&b=c1"
        if route.endswith("/correction-preview"):
            route += "?name=x"
        return self.service.url + route


@pytest.fixture(scope="module")
def world(shared_service: ServiceProcess) -> World:
    name = uuid.uuid4().hex
    workspace, cluster = f"w-{name}", f"Scheduler-{name}"
    beat = full_beat(make_cluster(cluster, name=TELLTALE))
    token = shared_service.token(workspace=workspace)
    assert post(shared_service.url, token, beat).ok
    with writing(shared_service.engine) as connection:
        change = Change(connection, workspace, "someone")
        command, _ = shutdowns.ask(change, cluster, NewShutdown(reason=TELLTALE))
        kept = Policy("y1", TELLTALE, 3600.0, "notice")
        policies.add(change, kept)
        connection.execute(
            schema.job.insert().values(workspace=workspace, last_cluster=cluster, **JOB)
        )
    return World(shared_service, workspace, cluster, command, kept.id, tokens.id_of(token))


def enter(world: World, who: str) -> requests.Session:
    """Return a browser, or a program, with what ``who`` has to show."""
    browser = requests.Session()
    engine, mine, other = world.service.engine, world.workspace, f"{world.workspace}-2"
    scopes: dict[str, tuple[Scope, ...]] = {
        "ingest token": ("ingest",),
        "read token": ("read",),
        "ingest+read token": ("ingest", "read"),
        "admin token": ("admin",),
        "member's admin token": ("admin",),
        "revoked token": tokens.SCOPES,
        "expired token": tokens.SCOPES,
    }
    if who == "no one":
        return browser
    if who in scopes:
        end = time.time() - 1 if who == "expired token" else None
        whose = None
        if who == "member's admin token":
            whose = add_user(world.service, {mine: "member"}).id
        token = tokens.create(
            engine, workspace=mine, label="test", scopes=scopes[who], expires_at=end, user=whose
        )
        if who == "revoked token":
            assert tokens.revoke(engine, mine, token.split("_")[1])
        browser.headers["Authorization"] = f"Bearer {token}"
        return browser
    if who == "link":
        code = sign_in.make_link(engine, world.service.url, mine).partition("code=")[2]
        session_id = sign_in.by_code(engine, code, address="192.0.2.1")
    elif who == "token's session":
        session_id = sign_in.by_token(
            engine, world.service.token(["read"], mine), address="192.0.2.1"
        )
    else:
        roles: dict[str, tuple[str, Role]] = {
            "viewer": (mine, "viewer"),
            "member": (mine, "member"),
            "owner": (mine, "owner"),
            "other workspace's owner": (other, "owner"),
            "disabled user": (mine, "owner"),
            "user without a role": (mine, "owner"),
        }
        workspace, role = roles[who]
        user = add_user(world.service, {workspace: role})
        with writing(engine) as connection:
            session_id = sessions.start(connection, workspace=workspace, user=user.id)
            if who == "disabled user":  # the session itself is left
                connection.execute(
                    update(schema.user).where(schema.user.c.id == user.id).values(disabled_at=1.0)
                )
        if who == "user without a role":
            assert users.take_role(engine, user, mine)
    assert session_id is not None
    browser.cookies.set(sessions.COOKIE, session_id)
    return browser


def ask(world: World, browser: requests.Session, method: str, route: str) -> requests.Response:
    form = {
        "/workspace": {"workspace": world.workspace},
        "/account/password": {"old": "wrong", "new": "short"},
        "/settings/tokens": {"scope": "read"},
        "/settings/members/<user_id>": {"role": "viewer"},
        "/settings/tokens/revoke": {"which": "all"},
    }.get(route, {})
    if route == "/sign-in":
        form = {"token": world.service.token(["read"], f"{world.workspace}-3")}
    json = {
        "POST /api/v1/tokens": {"scopes": ["read"]},
        "PUT /api/v1/workspaces/<workspace>/members/<user_id>": {"role": "viewer"},
    }.get(f"{method} {route}")
    return browser.request(
        method,
        world.address(route),
        data=form,
        json=json,
        headers={"Content-Type": "application/x-protobuf"} if route.startswith("/v1/") else {},
        allow_redirects=False,
        timeout=30,
    )


def is_refused(answer: requests.Response) -> bool:
    to_sign_in = answer.headers.get("Location", "").startswith("/sign-in?next=")
    return answer.status_code in (401, 403) or (answer.status_code == 303 and to_sign_in)


def test_the_table_has_every_route(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    sqlite_template.copy_to(tmp_path)
    app = create_app(settings)
    routes = {
        f"{method} {rule.rule}"
        for rule in app.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    close_app(app)
    assert sorted(ALLOWED) == sorted(routes)


@pytest.mark.parametrize("who", sorted(EVERYONE))
def test_each_is_let_in_where_the_table_says_and_nowhere_else(world: World, who: str) -> None:
    wrong: list[str] = []
    insiders = SESSIONS | READERS | ADMINS | MEMBERS_TOKENS
    inside = who in insiders - {"other workspace's owner"}
    browser = None
    for name, allowed in ALLOWED.items():
        method, _, route = name.partition(" ")
        browser = browser or enter(world, who)
        answer = ask(world, browser, method, route)
        if method != "GET" and not is_refused(answer):  # it may have ended the session
            browser = None
        said = f"{who}: {name}: {answer.status_code}"
        if answer.status_code >= 500 or is_refused(answer) == (who in allowed):
            wrong.append(said)
        # That the id leads somewhere shows that there was something to be kept from the others.
        found = FOUND.get(name, (200,))
        if inside and who in allowed and "_id>" in route and answer.status_code not in found:
            wrong.append(f"{said}, not one of {found}")
        if not inside and TELLTALE in answer.text:
            wrong.append(f"{said}, and it told of the workspace")
    assert wrong == []
