"""Whatever the forms of the pages are sent, they answer, and reach no other workspace."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes, urlencode, urlsplit

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import select

from daskscope.codec import encode
from daskscope_service.accounts import members, sessions, tokens, users
from daskscope_service.accounts.caller import Caller
from daskscope_service.accounts.change import Change
from daskscope_service.accounts.users import Role
from daskscope_service.application import close_app, create_app
from daskscope_service.costs.prices import PRICED
from daskscope_service.db import schema
from daskscope_service.db.engine import upgrade_database, writing
from daskscope_service.findings import mutes
from daskscope_service.findings.mutes import NewMute
from daskscope_service.insight.findings.rules import RULES
from daskscope_service.jobs import corrections
from daskscope_service.jobs.corrections import Correction
from daskscope_service.notifications import targets
from daskscope_service.notifications.addresses import check
from daskscope_service.policies import idle_policies
from daskscope_service.policies.decision import Policy
from daskscope_service.retention.policy import KINDS
from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.shutdowns import commands as shutdowns
from daskscope_service.shutdowns.commands import NewShutdown
from tests.service.beats import full_beat, make_cluster
from tests.service.conftest import NewDatabase
from tests.service.people import PASSWORD

#: Where nobody listens.
NOWHERE = "json://127.0.0.1:9"

_POLICY = {
    "name": "nights",
    "minutes": "30",
    "action": "notice",
    "users": "ada",
    "tags": "team=climate",
    "begins": "20:00",
    "ends": "06:00",
    "time_zone": "UTC",
    "enabled": "1",
    "read_at": "1.5",
}
_MUTE = {
    "rule": RULES[0].name,
    "days": "7",
    "reason": "known",
    "covers": "cluster",
    "computation": "c1",
}

_JOB = "0f3c9ab17c55d0e2"

#: Forms that could be sent, by the patterns of their addresses.
FORMS: dict[str, dict[str, str]] = {
    "/sign-in": {"name": "x", "password": "x", "next": "/", "token": "dsk_x_x", "code": "x"},
    "/sign-out": {},
    "/workspace": {"workspace": "w"},
    "/account/password": {"old": "wrong", "new": "correct horse"},
    "/account/sessions/<id_hash>/end": {},
    "/account/sessions/end": {},
    "/activate": {"code": "x", "answer": "allow", "workspace": "w"},
    "/invitation": {"code": "x", "password": PASSWORD},
    "/clusters/<cluster_id>/shutdown": {"reason": "idle", "even_if_busy": "1"},
    "/clusters/<cluster_id>/commands/<command_id>/call-off": {"reason": "no"},
    "/clusters/<cluster_id>/mute": _MUTE,
    "/clusters/<cluster_id>/computations/<computation_id>/mute": {
        "reason": "known",
        "covers": "cluster",
    },
    "/mutes/<mute_id>/end": {"computation": "c1"},
    "/jobs/<job_id>/correct": {"name": "nightly", "merge_into": "", "split_by": ""},
    "/jobs/corrections/<correction_id>/undo": {},
    "/settings/members/<user_id>": {"role": "viewer"},
    "/settings/invitations": {"name": "x", "role": "viewer"},
    "/settings/invitations/<invitation_id>/take-back": {},
    "/settings/notifications": {"name": "x", "address": NOWHERE, "kinds": "idle"},
    "/settings/notifications/<target_id>/remove": {},
    "/settings/notifications/<target_id>/test": {},
    "/settings/notifications/budget": {"amount": "100", "currency": "USD"},
    "/settings/policies": _POLICY,
    "/settings/policies/<policy_id>": {"name": "nights", "minutes": "30", "read_at": "1.5"},
    "/settings/policies/<policy_id>/remove": {},
    "/settings/prices": {"source": "workspace", "currency": "USD", **dict.fromkeys(PRICED, "1")},
    "/settings/retention": {"sure": "1", KINDS[0].name: "30"},
    "/settings/tokens": {"label": "x", "scope": "read", "days": "30"},
    "/settings/tokens/<token_id>/revoke": {},
    "/settings/tokens/revoke": {"which": "mine"},
}

#: What no form asks for. The first is more than a form may have.
ODD: tuple[bytes, ...] = (
    b"x" * 1_000_000,
    b"x" * 60_000,
    b"9" * 60_000,
    b"000000001" + b"9" * 5_000,
    b"",
    b" ",
    b"\0",
    b"a\0b",
    b"\xed\xa0\x80",  # one half of a pair of surrogates
    b"\xff\xfe",
    "\U0010ffff\u2028\u202e".encode(),
    b"x\r\nSet-Cookie: x=1",
    b"<script>alert(1)</script>",
    b"' OR '1'='1",
    b"nan",
    b"-inf",
    b"-1",
    b"0",
    b"1e400",
    b"1e308",
    b"5e-324",
    b"0x10",
    b"1_000",
    "\u0663".encode(),  # a digit
    b"../../x",
    b"//evil.example",
)
_OTHER = ODD[4:13]


@dataclass(frozen=True)
class Workspace:
    """``ids``: of what is in it, by the parameters of addresses."""

    name: str
    ids: Mapping[str, str]


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Flask]:
    folder = Path(tmp_path_factory.mktemp("data"))
    chosen = Settings(
        data_dir=folder, database_url=new_database(), notify_networks=("127.0.0.0/8",)
    )
    upgrade_database(chosen)
    app = create_app(chosen)
    for task in services(app).background:  # what it writes is no effect of a form
        task.close()
    yield app
    close_app(app)


def make_workspace(app: Flask) -> Workspace:
    """Make a workspace that has one of each thing that an address can name."""
    engine, name = services(app).engine, f"w-{uuid.uuid4().hex[:8]}"
    token = tokens.create(engine, workspace=name, label="test", scopes=["ingest"])
    cluster = f"Scheduler-{name}"
    answer = app.test_client().post(
        "/api/v1/heartbeats",
        data=encode(full_beat(make_cluster(cluster))),
        headers={"Authorization": f"Bearer {token}"},
    )
    assert answer.status_code == 200
    user = make_user(app, name, "owner")
    owner = Caller(name, name, "owner", user.id, False, "192.0.2.1")
    invitation, _ = members.invite(engine, owner, f"{name}@example.org", "viewer")
    policy = Policy(idle_policies.new_id(), "nights", 3600.0, "notice")
    address = check(NOWHERE, ("127.0.0.0/8",))
    with writing(engine) as connection:
        change = Change(connection, name, "someone")
        command, _ = shutdowns.ask(change, cluster, NewShutdown())
        idle_policies.add(change, policy)
        target = targets.add(change, name="x", address=address)
        mute = mutes.mute(
            change, NewMute(RULES[0].name, cluster, "c1", "known", time.time() + 86_400)
        )
        connection.execute(
            schema.job.insert().values(
                workspace=name,
                id=_JOB,
                level="name",
                name="etl",
                first_at=1.7e9,
                last_at=1.7e9,
                last_cluster=cluster,
                last_computation="c1",
                runs=1,
            )
        )
        correction = corrections.correct(change, Correction(_JOB, name="before"))
    return Workspace(
        name,
        {
            "cluster_id": cluster,
            "computation_id": "c1",
            "command_id": command,
            "policy_id": policy.id,
            "target_id": target,
            "mute_id": str(mute),
            "job_id": _JOB,
            "correction_id": correction,
            "user_id": user.id,
            "invitation_id": str(invitation),
            "token_id": tokens.id_of(token),
            "id_hash": "00" * 32,
        },
    )


def make_user(app: Flask, workspace: str, role: Role) -> users.User:
    name = f"{role}-{uuid.uuid4().hex[:8]}@example.org"
    return users.create(
        services(app).engine, name=name, password=PASSWORD, workspace=workspace, role=role
    )


def browser(app: Flask, workspace: str, role: Role) -> FlaskClient:
    """Return one in which a new user of the workspace is signed in."""
    user, client = make_user(app, workspace, role), app.test_client()
    with writing(services(app).engine) as connection:
        session = sessions.start(connection, workspace=workspace, user=user.id)
    client.set_cookie(sessions.COOKIE, session)
    return client


def rows_of(app: Flask, workspace: str) -> dict[str, list[Any]]:
    """Return all that is stored of a workspace."""
    with services(app).engine.connect() as connection:
        return {
            table.name: sorted(map(repr, connection.execute(query).all()))
            for table in schema.metadata.sorted_tables
            if "workspace" in table.c
            for query in [select(table).where(table.c.workspace == workspace)]
        }


def forms_of(fields: Mapping[str, str], odd: Sequence[bytes]) -> Iterator[list[tuple[str, Any]]]:
    """Yield a form with these fields, and each field missing, twice, and with ``odd`` values."""
    yield [*fields.items()]
    for name in fields:
        others = [(key, value) for key, value in fields.items() if key != name]
        yield others
        yield [*fields.items(), (name, "another")]
        for value in odd:
            yield [*others, (name, value)]


def address(rule: str, ids: Mapping[str, str]) -> str:
    for name, id in ids.items():
        rule = rule.replace(f"<{name}>", id)
    return rule


def post(client: FlaskClient, path: str, form: Any, **headers: str) -> Any:
    return client.post(
        path,
        data=urlencode(form),
        content_type="application/x-www-form-urlencoded",
        headers=headers,
    )


def test_there_is_a_form_for_each_address_that_takes_one(app: Flask) -> None:
    rules = (rule for rule in app.url_map.iter_rules() if "POST" in (rule.methods or ()))
    assert sorted(FORMS) == sorted(
        rule.rule for rule in rules if not rule.rule.startswith(("/api/", "/v1/"))
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    # Most forms of others are refused before they are looked at.
    ("role", "odd"),
    [("viewer", ODD[1::7]), ("member", ODD[1::3]), ("owner", ODD)],
)
def test_whatever_a_form_says_it_is_answered_and_leaves_other_workspaces_alone(
    app: Flask, role: Role, odd: Sequence[bytes]
) -> None:
    own, other = make_workspace(app), make_workspace(app)
    before = rows_of(app, other.name)
    wrong: list[str] = []
    client = browser(app, own.name, role)

    def send(path: str, form: Sequence[tuple[str, Any]]) -> None:
        nonlocal client
        answer = post(client, path, form)
        shown = [(name, value[:30]) for name, value in form]
        if answer.status_code >= 500:
            wrong.append(f"{path[:90]}: {shown}: {answer.status_code}")
        location = answer.headers.get("Location", "")
        if urlsplit(location).netloc not in ("", "localhost") or "\\" in location:
            wrong.append(f"{path[:90]}: {shown}: to {location}")
        if path.startswith(("/sign", "/account", "/workspace", "/settings/members")):
            client = browser(app, own.name, role)  # it may have ended the session

    for rule, fields in FORMS.items():
        given = fields | ({"workspace": own.name} if "workspace" in fields else {})
        # No message goes to the outside.
        path = address(rule, dict(own.ids) | {"target_id": "none"})
        for form in forms_of(given, odd):
            send(path, form)
        if "<" not in rule:
            continue
        form = [*given.items()]
        for value in odd[2:]:
            ids = dict.fromkeys(own.ids, quote_from_bytes(value[:6_000], safe=""))
            send(address(rule, ids), form)
            send(address(rule, ids | {"cluster_id": own.ids["cluster_id"]}), form)
        # What is another workspace's is not there, wholly or in part.
        theirs, ours = dict(other.ids), {"cluster_id": own.ids["cluster_id"]}
        for ids in (theirs, theirs | ours):
            send(address(rule, ids), form)
    for name in (other.name, f"{other.name}\0", f" {other.name}"):
        assert post(client, "/workspace", {"workspace": name}).status_code in (400, 404)
    assert wrong == []
    assert rows_of(app, other.name) == before


def test_no_form_of_another_site_is_taken(app: Flask) -> None:
    own = make_workspace(app)
    client = browser(app, own.name, "owner")
    before = rows_of(app, own.name)
    for rule, fields in FORMS.items():
        path = address(rule, own.ids)
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            assert post(client, path, fields, **headers).status_code == 403, (path, headers)
    assert rows_of(app, own.name) == before
