"""Members of a workspace: who changes what they are, and how one is invited."""

from __future__ import annotations

import re
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from sqlalchemy import Engine, insert, select, update

from daskscope_service.accounts import login_rate_limit, members, users
from daskscope_service.accounts.caller import Caller
from daskscope_service.accounts.members import LastOwner
from daskscope_service.accounts.users import Role, User
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from tests.service.beats import make_beat, post
from tests.service.people import (
    PASSWORD,
    browser_of,
    is_in,
    make_user,
    sign_in_by_link,
    try_to_sign_in,
)
from tests.service.test_command_line import daskscope
from tests.service.test_tokens import admin, made, person, works
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


@pytest.fixture
def workspace() -> str:
    return f"w-{uuid.uuid4().hex[:8]}"


def url(service: ServiceProcess, workspace: str, what: str = "members") -> str:
    return f"{service.url}/api/v1/workspaces/{workspace}/{what}"


def roles(service: ServiceProcess, workspace: str) -> dict[str, str]:
    return {one.name: one.role for one in members.list_in(service.engine, workspace)}


def invite(
    service: ServiceProcess, who: requests.Session, workspace: str, **wanted: Any
) -> dict[str, str]:
    answer = who.post(url(service, workspace, "invitations"), json=wanted, timeout=30)
    assert answer.status_code == 201, answer.text
    said: dict[str, str] = answer.json()
    return said


def accept(link: str, browser: requests.Session, **form: str) -> requests.Response:
    address, _, code = link.partition("?code=")
    return browser.post(address, data={"code": code, **form}, timeout=30)


def new_name() -> str:
    return f"li-{uuid.uuid4().hex[:8]}@example.org"


def test_an_invited_person_sets_a_password_and_is_in(
    shared_service: ServiceProcess, workspace: str
) -> None:
    owner, browser = person(shared_service, workspace, "owner")
    name = new_name()
    said = invite(shared_service, browser, workspace, name=name, role="viewer")
    listed = browser.get(url(shared_service, workspace, "invitations"), timeout=30)
    (one,) = listed.json()["items"]
    assert (one["id"], one["name"], one["made_by"]) == (said["id"], name, owner.name)
    code = said["url"].partition("?code=")[2]
    assert code not in listed.text

    newcomer = requests.Session()
    page = newcomer.get(said["url"], timeout=30).text
    assert name in page
    assert workspace in page
    weak = accept(said["url"], newcomer, password="short")
    assert (weak.status_code, "at least 12" in weak.text) == (400, True)
    assert accept(said["url"], newcomer, password=PASSWORD).ok
    assert is_in(shared_service, newcomer)
    assert roles(shared_service, workspace) == {owner.name: "owner", name: "viewer"}
    assert is_in(shared_service, browser_of(shared_service, name))
    assert requests.get(said["url"], timeout=30).status_code == 404  # once only
    assert accept(said["url"], requests.Session(), password=PASSWORD).status_code == 404
    entry = schema.audit_entry
    with shared_service.engine.connect() as connection:
        kept = connection.execute(
            select(entry.c.action, entry.c.actor)
            .where(entry.c.workspace == workspace)
            .order_by(entry.c.at)
        ).all()
    assert ("invited", owner.name) in kept
    assert ("role changed", f"invitation {said['id']}") in kept


def test_who_has_an_account_joins_with_it_and_no_one_else_takes_it(
    shared_service: ServiceProcess, workspace: str
) -> None:
    _, browser = person(shared_service, workspace, "owner")
    user = make_user(shared_service, {f"{workspace}-2": "member"})
    said = invite(shared_service, browser, workspace, name=user.name.upper(), role="member")
    stranger = requests.Session()
    assert "Sign in to join" in stranger.get(said["url"], timeout=30).text
    taken = accept(said["url"], stranger, password="another good password")
    assert taken.status_code == 409
    # Its page is the same, whether the name has an account or not.
    unknown = invite(shared_service, browser, workspace, name=new_name(), role="member")
    first, second = (
        stranger.get(one["url"], timeout=30)
        .text.replace(one["url"].partition("code=")[2], "CODE")
        .replace(one["name"], "NAME")
        for one in (said, unknown)
    )
    assert first == second
    assert not is_in(shared_service, stranger)

    theirs = browser_of(shared_service, user.name)
    assert f"Join it as {user.name}" in theirs.get(said["url"], timeout=30).text
    joined = accept(said["url"], theirs).text
    assert f"<option selected>{workspace}</option>" in joined  # it is what they see now
    assert users.roles_of(shared_service.engine, user.id) == {
        workspace: "member",
        f"{workspace}-2": "member",
    }
    # An invitation gives, and takes nothing away.
    said = invite(shared_service, browser, workspace, name=user.name, role="viewer")
    assert accept(said["url"], theirs).ok
    assert users.roles_of(shared_service.engine, user.id)[workspace] == "member"


def test_owners_cannot_find_out_one_by_one_who_has_an_account(
    shared_service: ServiceProcess, workspace: str
) -> None:
    _, browser = person(shared_service, workspace, "owner")
    victim = make_user(shared_service, {f"{workspace}-2": "member"})
    statuses = []
    for _ in range(login_rate_limit.FOR_NAME + 1):
        said = invite(shared_service, browser, workspace, name=victim.name)
        statuses.append(accept(said["url"], requests.Session(), password=PASSWORD).status_code)
    assert statuses == [409] * login_rate_limit.FOR_NAME + [429]
    with writing(shared_service.engine) as connection:  # others come from this address too
        connection.execute(schema.sign_in_attempt.delete())


def test_an_account_that_an_invitation_made_is_let_in_elsewhere_only_knowingly(
    shared_service: ServiceProcess, workspace: str
) -> None:
    _, browser = person(shared_service, workspace, "owner")
    name = new_name()
    said = invite(shared_service, browser, workspace, name=name)
    assert accept(said["url"], requests.Session(), password=PASSWORD).ok
    where = shared_service.database_options
    listed = daskscope("user", "list", *where).stdout
    (line,) = [line for line in listed.splitlines() if name in line]
    assert f"made by an invitation of {workspace}" in line

    def give(*more: str) -> subprocess.CompletedProcess[str]:
        return daskscope("user", "role", name, "owner", "--workspace", "alpha", *more, *where)

    refused = give()
    assert refused.returncode == 1
    assert (
        f"An invitation of the workspace {workspace} created the account {name}" in refused.stderr
    )
    user = users.find(shared_service.engine, name)
    assert user is not None
    assert set(users.roles_of(shared_service.engine, user.id)) == {workspace}
    assert (
        daskscope("user", "role", name, "viewer", "--workspace", workspace, *where).returncode == 0
    )
    assert give("--yes").returncode == 0
    assert users.roles_of(shared_service.engine, user.id)["alpha"] == "owner"
    assert "made by an invitation" not in next(
        line for line in daskscope("user", "list", *where).stdout.splitlines() if name in line
    )


def test_who_was_taken_out_of_all_workspaces_comes_back_by_an_invitation(
    shared_service: ServiceProcess, workspace: str
) -> None:
    _, browser = person(shared_service, workspace, "owner")
    user = make_user(shared_service, {workspace: "member"})
    assert users.take_role(shared_service.engine, user, workspace)
    said = invite(shared_service, browser, workspace, name=user.name, role="viewer")
    target = said["url"].removeprefix(shared_service.url)
    form = {"name": user.name, "password": "not theirs, really", "next": target}
    theirs = requests.Session()
    assert theirs.post(f"{shared_service.url}/sign-in", data=form, timeout=30).status_code == 403
    assert requests.get(said["url"], timeout=30).ok  # still open
    back = theirs.post(
        f"{shared_service.url}/sign-in", data=form | {"password": PASSWORD}, timeout=30
    )
    assert (back.url, back.status_code) == (f"{shared_service.url}/", 200)
    assert roles(shared_service, workspace)[user.name] == "viewer"
    assert requests.get(said["url"], timeout=30).status_code == 404


def test_an_invitation_that_is_too_old_or_taken_back_opens_nothing(
    shared_service: ServiceProcess, workspace: str
) -> None:
    _, browser = person(shared_service, workspace, "owner")
    said = [invite(shared_service, browser, workspace, name=new_name()) for _ in range(2)]
    where = url(shared_service, workspace, "invitations")
    assert browser.delete(f"{where}/{said[0]['id']}", timeout=30).status_code == 204
    assert browser.delete(f"{where}/{said[0]['id']}", timeout=30).status_code == 404
    with shared_service.engine.begin() as connection:
        connection.execute(
            update(schema.invitation)
            .where(schema.invitation.c.workspace == workspace)
            .values(expires_at=1.0)
        )
    for one in said:
        assert requests.get(one["url"], timeout=30).status_code == 404
        assert accept(one["url"], requests.Session(), password=PASSWORD).status_code == 404
        assert accept(one["url"], browser).status_code == 404
    for name in ("", " maria", "x" * 201, "a\tb"):
        answer = browser.post(where, json={"name": name}, timeout=30)
        assert answer.status_code == 400
    assert requests.get(f"{shared_service.url}/invitation", timeout=30).status_code == 404


def test_an_invitation_works_for_as_long_as_who_made_it_is_an_owner(
    shared_service: ServiceProcess, workspace: str
) -> None:
    _, owners = person(shared_service, workspace, "owner")
    second, seconds = person(shared_service, workspace, "owner")
    way_back = invite(shared_service, seconds, workspace, name=new_name(), role="owner")
    where = f"{url(shared_service, workspace)}/{second.id}"
    assert requests.get(way_back["url"], timeout=30).ok
    assert owners.put(where, json={"role": "member"}, timeout=30).status_code == 204
    assert requests.get(way_back["url"], timeout=30).status_code == 404
    assert accept(way_back["url"], seconds).status_code == 404
    assert accept(way_back["url"], requests.Session(), password=PASSWORD).status_code == 404
    listed = owners.get(url(shared_service, workspace, "invitations"), timeout=30)
    assert listed.json()["items"] == []


def test_owners_change_and_remove_members_and_that_counts_at_once(
    shared_service: ServiceProcess, workspace: str
) -> None:
    _, owners = person(shared_service, workspace, "owner")
    maria, marias = person(shared_service, workspace)
    token = made(shared_service, marias)
    where = f"{url(shared_service, workspace)}/{maria.id}"
    assert marias.put(where, json={"role": "owner"}, timeout=30).status_code == 403
    assert owners.put(where, json={"role": "king"}, timeout=30).status_code == 400
    assert owners.put(where, json={"role": "viewer"}, timeout=30).status_code == 204
    assert roles(shared_service, workspace)[maria.name] == "viewer"
    assert not works(shared_service, token)
    assert admin(shared_service, workspace).delete(where, timeout=30).status_code == 204
    assert owners.delete(where, timeout=30).status_code == 404
    assert not is_in(shared_service, marias)
    form = f"{shared_service.url}/settings/members"
    page = owners.get(form, timeout=30).text
    assert maria.name not in page


def test_other_workspaces_and_their_members_are_out_of_reach(
    shared_service: ServiceProcess, workspace: str
) -> None:
    theirs = f"{workspace}-2"
    victim, _ = person(shared_service, theirs)
    _, owners = person(shared_service, workspace, "owner")
    for where in (url(shared_service, theirs), url(shared_service, theirs, "invitations")):
        assert owners.get(where, timeout=30).status_code == 404
    for own in (workspace, theirs):
        where = f"{url(shared_service, own)}/{victim.id}"
        assert owners.delete(where, timeout=30).status_code == 404
        assert owners.put(where, json={"role": "owner"}, timeout=30).status_code == 404
    listed = owners.get(f"{shared_service.url}/api/v1/workspaces", timeout=30)
    assert listed.json() == {"items": [{"id": workspace, "role": "owner"}], "next": None}
    assert roles(shared_service, theirs) == {victim.name: "member"}


def caller(workspace: str, user: User) -> Caller:
    return Caller(user.name, workspace, "owner", user.id, False, "192.0.2.1")


def test_the_last_owner_stays(shared_service: ServiceProcess, workspace: str) -> None:
    owner, browser = person(shared_service, workspace, "owner")
    other = make_user(shared_service, {workspace: "owner"})
    users.set_disabled(shared_service.engine, other, True)  # who cannot sign in owns nothing
    where = f"{url(shared_service, workspace)}/{owner.id}"
    assert browser.delete(where, timeout=30).status_code == 409
    assert browser.put(where, json={"role": "member"}, timeout=30).status_code == 409
    page = f"{shared_service.url}/settings/members/{owner.id}"
    refused = browser.post(page, data={"role": "none"}, timeout=30)
    assert (refused.status_code, "needs an owner" in refused.text) == (409, True)
    users.set_disabled(shared_service.engine, other, False)
    assert browser.post(page, data={"role": "viewer"}, timeout=30).ok
    assert roles(shared_service, workspace)[owner.name] == "viewer"


def test_two_owners_do_not_put_each_other_out_at_the_same_moment(engine: Engine) -> None:
    made_by: dict[str, Role] = {"w": "owner"}
    both = [
        users.create(engine, name=name, password=PASSWORD, workspace="w", role=made_by["w"])
        for name in ("maria", "paul")
    ]

    def put_out(number: int) -> str:
        try:
            members.change(engine, caller("w", both[1 - number]), both[number].id, None)
        except LastOwner:
            return "refused"
        return "out"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(put_out, range(2))) == ["out", "refused"]
    assert [one.role for one in members.list_in(engine, "w")] == ["owner"]


def test_no_one_uses_up_a_workspaces_invitations_by_sign_ins(
    shared_service: ServiceProcess, workspace: str
) -> None:
    owner = make_user(shared_service, {workspace: "owner"})
    asks = caller(workspace, owner)
    _, code = members.invite(shared_service.engine, asks, f"ann@{workspace}.org", "viewer")
    for kind in ("invitations of", "invitation"):
        for _ in range(10):
            try_to_sign_in(shared_service, f"{kind} {workspace}", "wrong password, certainly")
    assert members.accept_as_new(shared_service.engine, code, PASSWORD, address="192.0.2.7")
    with writing(shared_service.engine) as connection:  # others come from this address too
        connection.execute(schema.sign_in_attempt.delete())


def test_the_page_invites_and_takes_back(shared_service: ServiceProcess, workspace: str) -> None:
    by_link = requests.Session()
    sign_in_by_link(shared_service, by_link, workspace)
    base = f"{shared_service.url}/settings"
    assert "No one has an account" in by_link.get(f"{base}/members", timeout=30).text
    name = new_name()
    form = {"name": name, "role": "owner"}
    answer = by_link.post(f"{base}/invitations", data=form, timeout=30)
    assert "/invitation?code=" in answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    (open_one,) = members.invitations_in(shared_service.engine, workspace)
    listed = by_link.get(f"{base}/members", timeout=30).text
    assert name in listed
    assert "/invitation?code=" not in listed
    assert by_link.post(f"{base}/invitations/{open_one.id}/take-back", timeout=30).ok
    assert members.invitations_in(shared_service.engine, workspace) == []
    for wrong in ({"name": ""}, {"name": "x", "role": "king"}):
        assert by_link.post(f"{base}/invitations", data=wrong, timeout=30).status_code == 400
    _, viewers = person(shared_service, workspace, "viewer")
    assert "Invite someone" not in viewers.get(f"{base}/members", timeout=30).text


def test_many_members_come_page_by_page(shared_service: ServiceProcess) -> None:
    workspace = f"many-{uuid.uuid4().hex[:8]}"
    owner = make_user(shared_service, {workspace: "owner"})
    browser = browser_of(shared_service, owner.name)
    names = [f"A{number:03}-{workspace}@example.org" for number in range(120)]
    with writing(shared_service.engine) as connection:
        for name in names:
            made = {"id": name, "name": name, "name_key": users.key_of(name), "display_name": name,
                    "password_hash": "", "created_at": 1.0}  # fmt: skip
            connection.execute(insert(schema.user).values(made))
            here = {"workspace": workspace, "user": name, "role": "viewer"}
            connection.execute(insert(schema.member).values(here))
    url = f"{shared_service.url}/api/v1/workspaces/{workspace}/members"
    found, cursor = [], None
    while True:
        params: dict[str, Any] = {"limit": 50} | ({"cursor": cursor} if cursor else {})
        answer = browser.get(url, params=params, timeout=30).json()
        found += [one["name"] for one in answer["items"]]
        if (cursor := answer["next"]) is None:
            break
    assert found == [*names, owner.name]
    first = browser.get(f"{shared_service.url}/settings/members", timeout=30).text
    assert '<span class="count">121</span>' in first
    more = re.search(r'href="([^"]*)" rel="next"', first)
    assert more is not None
    second = browser.get(shared_service.url + more[1], timeout=30).text
    assert all((name in first) != (name in second) for name in names)


def test_the_workspaces_page_tells_what_it_has_and_how_to_connect(
    shared_service: ServiceProcess, workspace: str
) -> None:
    browser = browser_of(shared_service, make_user(shared_service, {workspace: "owner"}).name)

    def told() -> str:
        page = browser.get(f"{shared_service.url}/settings/workspace", timeout=30).text
        return " ".join(re.sub("<[^>]*>", " ", page).split())

    assert "Members 1 Tokens to report with 0 Clusters stored 0 Quotas" in told()
    token = shared_service.token(["ingest"], workspace)
    assert post(shared_service.url, token, make_beat()).ok
    text = told()
    assert "Tokens to report with 1 Clusters stored 1 the first from" in text
    assert f"daskscope login --url {shared_service.url}" in text
    assert f"daskscope token create --workspace {workspace}" in text
