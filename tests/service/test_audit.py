"""The audit log: what it tells of, who did it, and what it must not hold."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import requests
from sqlalchemy import text

from daskscope_service.accounts import audit, sign_in, tokens, users
from daskscope_service.accounts.change import Change
from daskscope_service.accounts.login_rate_limit import FOR_NAME
from daskscope_service.db.engine import writing
from daskscope_service.shutdowns import commands as shutdowns
from daskscope_service.shutdowns.commands import NewShutdown
from tests.service.beats import make_beat, make_cluster, post
from tests.service.people import PASSWORD, browser_of, follow, make_user, try_to_sign_in
from tests.service.test_command_line import daskscope
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


def told(service: ServiceProcess, limit: int = 1) -> list[tuple[str, str, str]]:
    """Return action, actor and detail of the newest entries, the newest first."""
    return [(e.action, e.actor, e.detail) for e in audit.newest(service.engine, limit)]


def test_sign_ins_and_refusals_and_sign_outs_are_told(service: ServiceProcess) -> None:
    user = make_user(service, {"finance": "owner"})
    browser = browser_of(service, user.name.upper())
    (entry,) = audit.newest(service.engine, 1)
    assert (entry.action, entry.actor, entry.detail) == ("signed in", user.name, "by password")
    assert (entry.workspace, entry.address) == ("finance", "127.0.0.1")

    assert browser.post(f"{service.url}/sign-out", timeout=30).ok
    assert told(service) == [("signed out", user.name, "")]
    try_to_sign_in(service, user.name, "wrong horse battery")
    assert told(service) == [("refused", user.name, "wrong password")]
    try_to_sign_in(service, "hunter2-in-the-wrong-field")
    assert told(service) == [("refused", "unknown name", "password")]
    users.set_disabled(service.engine, user, True)
    try_to_sign_in(service, user.name)
    assert told(service) == [("refused", user.name, "the user is disabled")]


def test_who_comes_with_a_link_or_a_token_is_told_by_it(service: ServiceProcess) -> None:
    link, token = sign_in.make_link(service.engine, service.url, "default"), service.token(["read"])
    identifier = token.split("_")[1]
    form = {"token": token}
    for who, browser in ((f"token {identifier}", requests.Session()), ("link", requests.Session())):
        if who == "link":
            assert follow(link, browser).ok
        else:
            assert browser.post(f"{service.url}/sign-in", data=form, timeout=30).ok
        assert told(service)[0][:2] == ("signed in", who)
        assert browser.post(f"{service.url}/sign-out", timeout=30).ok
        assert told(service)[0][:2] == ("signed out", who)
    assert tokens.revoke(service.engine, "default", identifier)
    requests.post(f"{service.url}/sign-in", data=form, timeout=30)
    assert told(service) == [("refused", f"token {identifier}", "it is revoked")]


def test_what_commands_change_is_told_and_shown_newest_first(service: ServiceProcess) -> None:
    where = service.database_options
    name = make_user(service, {"finance": "owner"}).name
    for command in (
        ("role", name, "viewer", "--workspace", "research"),
        ("role", name, "none", "--workspace", "research"),
        ("disable", name),
        ("enable", name),
        ("remove", name),
    ):
        assert daskscope("user", *command, *where).returncode == 0
    made = daskscope("token", "create", "--label", "nightly", "--scope", "ingest", *where)
    identifier = made.stdout.split("_")[1]
    assert daskscope("token", "revoke", identifier, *where).returncode == 0

    done = daskscope("audit", "--json", "--limit", 9, *where)
    entries: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert {entry["actor"] for entry in entries} == {"command line"}
    assert [(e["action"], e["detail"], e["workspace"]) for e in entries] == [
        ("token revoked", f"{identifier} (nightly)", "default"),
        ("token made", f"{identifier} (nightly): ingest", "default"),
        ("user removed", name, None),
        ("user enabled", name, None),
        ("user disabled", name, None),
        ("role changed", f"{name}: none", "research"),
        ("role changed", f"{name}: viewer", "research"),
        ("role changed", f"{name}: owner", "finance"),
        ("user made", name, None),
    ]
    table = daskscope("audit", "--limit", 1, *where).stdout.splitlines()
    assert table[0].split() == ["TIME", "ACTION", "WHO", "WORKSPACE", "ADDRESS", "DETAIL"]
    assert table[1].endswith(f"{identifier} (nightly)")
    assert len(table) == 2


def test_what_users_do_on_their_page_is_told(service: ServiceProcess) -> None:
    user = make_user(service, {"default": "owner"})
    browser = browser_of(service, user.name)
    for old, expected in (
        ("wrong horse battery", ("refused", user.name, "wrong old password")),
        (PASSWORD, ("password changed", user.name, user.name)),
    ):
        form = {"old": old, "new": "quite another password"}
        browser.post(f"{service.url}/account/password", data=form, timeout=30)
        assert told(service) == [expected]
    assert browser.post(f"{service.url}/account/sessions/end", timeout=30).ok
    assert told(service) == [("signed out", user.name, f"{user.name}: all sessions")]


def test_a_token_that_lets_nobody_in_cannot_fill_the_log(service: ServiceProcess) -> None:
    form = {"token": service.token(["ingest"])}
    status = [
        requests.post(f"{service.url}/sign-in", data=form, timeout=30).status_code
        for _ in range(FOR_NAME + 2)
    ]
    assert status == [403] * FOR_NAME + [429] * 2
    entries = told(service, 100)
    assert sum(action == "refused" for action, _, _ in entries) == FOR_NAME
    # Others from there come in, and so does a token that may read.
    assert try_to_sign_in(service, make_user(service, {"default": "owner"}).name).status_code == 303
    form = {"token": service.token(["read"])}
    assert requests.post(f"{service.url}/sign-in", data=form, timeout=30).ok


def test_the_log_holds_no_secret(service: ServiceProcess) -> None:
    user, token = make_user(service, {"default": "owner"}), service.token()
    link = sign_in.make_link(service.engine, service.url, "default")
    browser = browser_of(service, user.name)
    assert follow(link, browser).ok
    for password in ("a wrong one, typed", PASSWORD):
        try_to_sign_in(service, "a password, typed as the name", password)
        try_to_sign_in(service, user.name, password)
    requests.post(f"{service.url}/sign-in", data={"token": token}, timeout=30)
    requests.post(f"{service.url}/sign-in", data={"token": token[:-1]}, timeout=30)
    with service.engine.connect() as connection:
        log = str(connection.execute(text("SELECT * FROM audit_entry")).all())
    secrets = (PASSWORD, "typed", token.split("_")[2][:-1], link.partition("code=")[2])
    cookies = [cookie.value for cookie in browser.cookies]
    assert cookies
    for secret in (*secrets, *filter(None, cookies)):
        assert secret not in log


def test_an_entry_and_what_it_tells_of_are_kept_both_or_neither(
    service: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(audit, "write", fail)
    with pytest.raises(OSError, match="no room"):
        make_user(service, {"nowhere": "owner"})
    with pytest.raises(OSError, match="no room"):
        tokens.create(service.engine, workspace="nowhere", label="")
    assert tokens.list_in(service.engine, "nowhere") == []
    assert users.list_all(service.engine) == []


def test_owners_read_what_concerns_their_workspace_and_no_one_else_does(
    service: ServiceProcess,
) -> None:
    owner, other = (make_user(service, {name: "owner"}) for name in ("finance", "research"))
    users.set_role(service.engine, other, "finance", "viewer")
    browser, page = browser_of(service, owner.name), f"{service.url}/settings/audit"
    shown = browser.get(page, timeout=30).text
    assert "signed in" in shown
    assert "by password" in shown
    assert owner.name in shown
    assert 'href="/settings/audit" aria-current="page"' in shown

    theirs = browser_of(service, other.name)
    shown = theirs.get(page, timeout=30).text
    assert other.name in shown
    assert owner.name not in shown
    theirs.post(f"{service.url}/workspace", data={"workspace": "finance"}, timeout=30)
    assert theirs.get(page, timeout=30).status_code == 403
    assert "Audit log" not in theirs.get(f"{service.url}/settings/members", timeout=30).text


def test_the_log_is_read_in_parts_and_as_a_file(service: ServiceProcess) -> None:
    owner = make_user(service, {"finance": "owner"})
    with writing(service.engine) as connection:
        for number in range(230):
            audit.write(connection, "invited", detail=f"number {number:03}", workspace="finance")
    browser, address = browser_of(service, owner.name), f"{service.url}/settings/audit"
    seen: list[str] = []
    while address:
        page = browser.get(address, timeout=30).text
        seen += re.findall(r"number (\d{3})", page)
        further = re.search(r'href="(/settings/audit\?cursor=[^"]*)"', page)
        address = (further and f"{service.url}{further[1]}") or ""
    assert seen == [f"{number:03}" for number in reversed(range(230))]
    lines = browser.get(f"{service.url}/settings/audit.csv", timeout=30).text.splitlines()
    assert lines[0] == "at,action,actor,detail,workspace,address"
    assert re.fullmatch(r"\d{4}-.*Z,invited,command line,number 229,finance,", lines[2]), (
        "the second line is the sign-in"
    )
    bad = browser.get(f"{service.url}/settings/audit?cursor=bogus", timeout=30)
    assert bad.status_code == 400


def test_names_of_clusters_do_nothing_to_the_terminal_of_who_reads_the_log(
    service: ServiceProcess,
) -> None:
    cluster = make_cluster(name="\x1b]0;owned\x07\x1b[2J\nnightly")
    assert post(service.url, service.token(), make_beat(cluster)).ok
    with writing(service.engine) as connection:
        shutdowns.ask(Change(connection, "default", "someone"), cluster.id, NewShutdown())
    printed = daskscope("audit", *service.database_options).stdout
    assert f"{cluster.id} ( ]0;owned [2J nightly)" in printed
    assert all(line.isprintable() for line in printed.splitlines())
