"""Tokens: who makes which, who revokes whose, and what becomes of them when a user goes."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import requests
from sqlalchemy import insert

from daskscope_service.accounts import tokens, users
from daskscope_service.accounts.tokens import SCOPES, Scope
from daskscope_service.accounts.users import Role, User
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from tests.service.beats import make_beat, post
from tests.service.people import browser_of, make_user
from tests.service.test_command_line import daskscope
from tests.service_process import ServiceProcess


@pytest.fixture
def workspace() -> str:
    return f"w-{uuid.uuid4().hex[:8]}"


def admin(service: ServiceProcess, workspace: str) -> requests.Session:
    program = requests.Session()
    program.headers["Authorization"] = f"Bearer {service.token(['admin'], workspace)}"
    return program


def person(
    service: ServiceProcess, workspace: str, role: Role = "member"
) -> tuple[User, requests.Session]:
    user = make_user(service, {workspace: role})
    return user, browser_of(service, user.name)


def make(service: ServiceProcess, who: requests.Session, **wanted: Any) -> requests.Response:
    return who.post(f"{service.url}/api/v1/tokens", json=wanted, timeout=30)


def made(service: ServiceProcess, who: requests.Session, **wanted: Any) -> str:
    answer = make(service, who, **wanted)
    assert answer.status_code == 201, answer.text
    text: str = answer.json()["token"]
    return text


def works(service: ServiceProcess, token: str) -> bool:
    return post(service.url, token, make_beat()).ok


def states(service: ServiceProcess, workspace: str) -> dict[str, str]:
    now = time.time()
    return {one.label: one.state(now) for one in tokens.list_in(service.engine, workspace)}


def test_the_api_shows_a_secret_once_and_lists_all_else(
    shared_service: ServiceProcess, workspace: str
) -> None:
    user, browser = person(shared_service, workspace)
    answer = make(shared_service, browser, label="nightly", scopes=["ingest"], days=1.5)
    assert answer.status_code == 201
    token = answer.json().pop("token")
    assert works(shared_service, token)

    listed = browser.get(f"{shared_service.url}/api/v1/tokens", timeout=30)
    (one,) = listed.json()["items"]
    assert token.split("_")[2] not in listed.text
    assert one["id"] == tokens.id_of(token)
    assert (one["label"], one["state"], one["scopes"]) == ("nightly", "active", ["ingest"])
    assert one["made_by"] == user.name
    assert one["last_used_at"] is not None
    assert one["revoked_at"] is None
    (kept,) = tokens.list_in(shared_service.engine, workspace)
    assert kept.expires_at == pytest.approx(kept.created_at + 1.5 * 86_400, abs=5)
    answer = make(shared_service, browser, label="red \x1b[31m")
    assert answer.json()["label"] == "red  [31m"  # no terminal acts on it


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["everything"]}, "everything"),
        ({"days": 0}, "days"),
        ({"days": -1}, "days"),
        ({"days": 1e300}, "days"),
        ({"label": "x" * 101}, "label"),
        ({"label": 1}, "label"),
        ({"labell": "x"}, "labell"),
    ],
)
def test_a_token_that_makes_no_sense_is_not_made(
    shared_service: ServiceProcess, workspace: str, wanted: dict[str, Any], said: str
) -> None:
    program = admin(shared_service, workspace)
    answer = make(shared_service, program, **wanted)
    assert answer.status_code == 400
    assert said in answer.json()["detail"]
    url, kind = f"{shared_service.url}/api/v1/tokens", {"Content-Type": "application/json"}
    for body in (b"[]", b"\xff", b"{"):
        assert program.post(url, data=body, headers=kind, timeout=30).status_code == 400
    assert program.post(url, data={"label": "x"}, timeout=30).status_code == 415
    assert len(tokens.list_in(shared_service.engine, workspace)) == 1


@pytest.mark.parametrize("role", users.ROLES)
def test_no_one_makes_a_token_that_may_do_more_than_they(
    shared_service: ServiceProcess, workspace: str, role: Role
) -> None:
    _, browser = person(shared_service, workspace, role)
    may: dict[Role, set[Scope]] = {
        "owner": {"ingest", "read", "admin"},
        "member": {"ingest", "read", "admin"},
        "viewer": {"read"},
    }
    for scope in SCOPES:
        answer = make(shared_service, browser, scopes=[scope])
        assert answer.status_code == (201 if scope in may[role] else 403)
        url = f"{shared_service.url}/settings/tokens"
        page = browser.post(url, data={"scope": scope}, timeout=30)
        assert page.status_code == (200 if scope in may[role] else 403)
    assert len(tokens.list_in(shared_service.engine, workspace)) == 2 * len(may[role])


def test_an_admin_token_looks_after_tokens_and_neither_sends_nor_reads(
    shared_service: ServiceProcess, workspace: str
) -> None:
    program = admin(shared_service, workspace)
    token = made(shared_service, program, label="made by it")
    assert works(shared_service, token)
    url = shared_service.url
    text = str(program.headers["Authorization"]).removeprefix("Bearer ")
    assert not works(shared_service, text)
    assert program.get(f"{url}/api/v1/clusters", timeout=30).status_code == 403
    signed_in = requests.post(
        f"{url}/sign-in", data={"token": text}, allow_redirects=False, timeout=30
    )
    assert signed_in.status_code == 403
    assert program.delete(f"{url}/api/v1/tokens/{tokens.id_of(token)}", timeout=30).ok
    assert not works(shared_service, token)


def test_members_revoke_their_own_tokens_and_owners_all(
    shared_service: ServiceProcess, workspace: str
) -> None:
    url = f"{shared_service.url}/api/v1/tokens"
    maria, marias = person(shared_service, workspace)
    _, pauls = person(shared_service, workspace)
    _, owners = person(shared_service, workspace, "owner")
    of_maria = [made(shared_service, marias, label=f"maria {n}") for n in range(3)]
    of_paul = made(shared_service, pauls, label="paul")
    mine, other = tokens.id_of(of_maria[0]), tokens.id_of(of_paul)
    assert marias.delete(f"{url}/{mine}", timeout=30).status_code == 204
    assert marias.delete(f"{url}/{other}", timeout=30).status_code == 403
    assert marias.delete(f"{url}/nothing", timeout=30).status_code == 404
    page = f"{shared_service.url}/settings/tokens"
    assert marias.post(f"{page}/{other}/revoke", timeout=30).status_code == 403
    assert marias.delete(url, timeout=30).status_code == 403
    assert pauls.delete(url, params={"user": maria.name}, timeout=30).status_code == 403
    assert marias.delete(url, params={"user": "nobody"}, timeout=30).status_code == 403
    assert works(shared_service, of_paul)
    assert works(shared_service, of_maria[1])

    own = marias.delete(url, params={"user": maria.name}, timeout=30)
    assert own.json() == {"revoked": 2}
    assert states(shared_service, workspace) == {
        "maria 0": "revoked",
        "maria 1": "revoked",
        "maria 2": "revoked",
        "paul": "active",
    }
    assert owners.delete(url, params={"user": "nobody"}, timeout=30).json() == {"revoked": 0}
    assert owners.delete(url, timeout=30).json() == {"revoked": 1}
    assert not works(shared_service, of_paul)


def test_tokens_of_another_workspace_are_out_of_reach(
    shared_service: ServiceProcess, workspace: str
) -> None:
    theirs = shared_service.token(workspace=f"{workspace}-2")
    program = admin(shared_service, workspace)
    url = f"{shared_service.url}/api/v1/tokens"
    assert program.delete(f"{url}/{tokens.id_of(theirs)}", timeout=30).status_code == 404
    assert tokens.id_of(theirs) not in program.get(url, timeout=30).text
    assert program.delete(url, timeout=30).json() == {"revoked": 1}  # itself
    assert works(shared_service, theirs)


def disabled(service: ServiceProcess, user: User, _: str) -> None:
    users.set_disabled(service.engine, user, True)


def removed(service: ServiceProcess, user: User, _: str) -> None:
    users.remove(service.engine, user)


def taken_out(service: ServiceProcess, user: User, workspace: str) -> None:
    assert users.take_role(service.engine, user, workspace)


def made_viewer(service: ServiceProcess, user: User, workspace: str) -> None:
    users.set_role(service.engine, user, workspace, "viewer")


@pytest.mark.parametrize("end", [disabled, removed, taken_out, made_viewer])
def test_who_may_no_longer_has_no_token_that_does(
    shared_service: ServiceProcess, workspace: str, end: Callable[[ServiceProcess, User, str], None]
) -> None:
    user, browser = person(shared_service, workspace, "owner")
    for scope in SCOPES:
        made(shared_service, browser, label=scope, scopes=[scope])
    made(shared_service, browser, label="both")
    shared_service.token(workspace=workspace)  # no user's: it stays
    end(shared_service, user, workspace)
    left = {
        label for label, state in states(shared_service, workspace).items() if state == "active"
    }
    assert left == ({"test", "read"} if end is made_viewer else {"test"})


def test_what_an_admin_token_makes_is_its_users_and_goes_with_them(
    shared_service: ServiceProcess, workspace: str
) -> None:
    user, browser = person(shared_service, workspace, "owner")
    program = requests.Session()
    text = made(shared_service, browser, scopes=["admin"])
    program.headers["Authorization"] = f"Bearer {text}"
    child = made(shared_service, program, label="child")
    users.set_role(shared_service.engine, user, workspace, "member")
    assert make(shared_service, program).status_code == 403  # more than a member's token may
    assert works(shared_service, child)  # what a member may
    users.set_role(shared_service.engine, user, workspace, "viewer")
    assert make(shared_service, program).status_code == 401
    users.set_disabled(shared_service.engine, user, True)
    assert not works(shared_service, child)


def test_the_page_shows_a_new_secret_once_and_revokes(
    shared_service: ServiceProcess, workspace: str
) -> None:
    user, browser = person(shared_service, workspace, "owner")
    url = f"{shared_service.url}/settings/tokens"
    assert "No token is in force" in browser.get(url, timeout=30).text
    form = {"label": "<i>lab</i>", "scope": ["ingest", "read"], "days": "90"}
    answer = browser.post(url, data=form, timeout=30)
    found = re.search(r"dsk_[a-z0-9]+_[0-9a-f]+", answer.text)
    assert found is not None
    assert answer.headers["Cache-Control"] == "no-store"
    assert works(shared_service, found[0])
    listed = browser.get(url, timeout=30).text
    assert found[0] not in listed
    assert "&lt;i&gt;lab&lt;/i&gt;" in listed
    assert user.name in listed
    (one,) = tokens.list_in(shared_service.engine, workspace)
    assert one.expires_at == pytest.approx(one.created_at + 90 * 86_400, abs=5)

    assert browser.post(url, data={"label": "x"}, timeout=30).status_code == 400
    assert browser.post(url, data={"scope": "read", "days": "7"}, timeout=30).status_code == 400
    assert browser.post(f"{url}/{one.id}/revoke", timeout=30).ok
    assert not works(shared_service, found[0])
    for label, which in (("mine", "mine"), ("all", "all")):
        token = made(shared_service, browser, label=label)
        assert browser.post(f"{url}/revoke", data={"which": which}, timeout=30).ok
        assert not works(shared_service, token)


def test_the_page_shows_the_newest_of_what_is_no_more_in_force(
    shared_service: ServiceProcess, workspace: str
) -> None:
    _, browser = person(shared_service, workspace, "owner")
    for n in range(52):
        tokens.create(shared_service.engine, workspace=workspace, label=f"old {n:02}")
    tokens.revoke_all(shared_service.engine, workspace=workspace)
    page = browser.get(f"{shared_service.url}/settings/tokens", timeout=30).text
    assert "The newest 50 are shown." in page
    assert ("old 51" in page, "old 02" in page, "old 01" in page) == (True, True, False)


def test_commands_revoke_many_at_once(shared_service: ServiceProcess, workspace: str) -> None:
    where = shared_service.database_options
    user = make_user(shared_service, {workspace: "member", f"{workspace}-2": "member"})
    browser = browser_of(shared_service, user.name)
    for choice in (workspace, f"{workspace}-2"):
        browser.post(f"{shared_service.url}/workspace", data={"workspace": choice}, timeout=30)
        made(shared_service, browser, label="hers")
    shared_service.token(workspace=workspace)

    done = daskscope("token", "revoke", "--user", user.name, *where)
    assert done.stdout == f"revoked 2 tokens of {user.name}\n"
    assert states(shared_service, workspace) == {"hers": "revoked", "test": "active"}
    done = daskscope("token", "revoke", "--all", "--workspace", workspace, *where)
    assert done.stdout == f"revoked 1 token of {workspace}\n"
    listed = daskscope("token", "list", "--workspace", workspace, *where).stdout
    assert user.name in listed
    assert "active" not in listed
    for wrong in ((), ("--all", "--user", "x"), ("x7k2mq9abc", "--all")):
        assert daskscope("token", "revoke", *wrong, *where).returncode == 2
    assert "user list" in daskscope("token", "revoke", "--user", "nobody", *where).stderr


def test_many_tokens_come_page_by_page(shared_service: ServiceProcess) -> None:
    workspace = f"many-{uuid.uuid4().hex[:8]}"
    browser = browser_of(shared_service, make_user(shared_service, {workspace: "owner"}).name)
    rows = [
        {"id": f"t{number:04}", "workspace": workspace, "label": f"label-{number:04}",
         "scopes": "read", "secret_hash": b"", "created_at": float(number // 3),
         "revoked_at": 1.0 if number >= 240 else None}
        for number in range(250)
    ]  # fmt: skip
    with writing(shared_service.engine) as connection:
        connection.execute(insert(schema.token), rows)
    url, found, cursor = f"{shared_service.url}/api/v1/tokens", [], None
    while True:
        params: dict[str, Any] = {"limit": 99} | ({"cursor": cursor} if cursor else {})
        answer = browser.get(url, params=params, timeout=30).json()
        found += [one["id"] for one in answer["items"]]
        if (cursor := answer["next"]) is None:
            break
    assert found == [row["id"] for row in reversed(rows)]
    page, shown = f"{shared_service.url}/settings/tokens", []
    while page:
        text = browser.get(page, timeout=30).text
        assert '<span class="count">240</span>' in text
        assert '<span class="count">10</span>' in text
        shown += re.findall("label-0[01][0-9]{2}|label-02[0-3][0-9]", text)
        more = re.search(r'href="([^"]*)" rel="next"', text)
        page = shared_service.url + more[1] if more else ""
    assert shown == [row["label"] for row in reversed(rows[:240])]
    made = browser.post(
        f"{shared_service.url}/settings/tokens", data={"scope": "read"}, timeout=30
    ).text
    assert '<a href="/settings/tokens">Show the whole list</a>' in made
    answer = browser.get(f"{shared_service.url}/settings/tokens?cursor=bogus", timeout=30)
    assert answer.status_code == 400
