"""Sessions: how they end, and how their users look after them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import requests
from sqlalchemy import select, update

from daskscope_service.accounts import device_login, sessions, tokens, users
from daskscope_service.accounts.tokens import Scope
from daskscope_service.accounts.users import User
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from tests.service.pages import words
from tests.service.people import (
    PASSWORD,
    browser_of,
    is_in,
    make_user,
    sign_in_by_link,
    try_to_sign_in,
)
from tests.service.test_command_line import daskscope
from tests.service_process import ServiceProcess

OTHER = "quite another password"


@pytest.fixture
def user(shared_service: ServiceProcess) -> User:
    return make_user(shared_service, {f"w-{uuid.uuid4().hex[:8]}": "member"})


def post(service: ServiceProcess, browser: requests.Session, path: str) -> requests.Response:
    return browser.post(f"{service.url}{path}", timeout=30)


@pytest.mark.parametrize("whose", ["user", "token"])
def test_of_too_many_sessions_the_oldest_end(
    shared_service: ServiceProcess, user: User, whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST", 3)
    engine = shared_service.engine
    (workspace,) = users.workspaces_of(engine, user.id)
    token = tokens.create(engine, workspace=workspace, label="test", scopes=["read"])
    of = {"user": user.id} if whose == "user" else {"token": token.split("_")[1], "role": "viewer"}

    def start(**of: Any) -> str:
        with writing(engine) as connection:
            return sessions.start(connection, workspace=workspace, **of)

    other = start(role="owner")
    started = [start(**of) for _ in range(5)]
    assert [sessions.find(engine, one) is not None for one in started] == [False] * 2 + [True] * 3
    assert sessions.find(engine, other) is not None


@pytest.mark.parametrize("how", ["sign-out", "disable", "remove", "role", "password"])
def test_an_administrator_ends_all_sessions_of_a_user_at_once(
    shared_service: ServiceProcess, user: User, how: str
) -> None:
    browsers = [browser_of(shared_service, user.name) for _ in range(2)]
    other = browser_of(shared_service, make_user(shared_service, {"default": "viewer"}).name)
    assert all(is_in(shared_service, browser) for browser in [*browsers, other])
    where = shared_service.database_options
    if how == "role":
        (workspace,) = users.workspaces_of(shared_service.engine, user.id)
        done = daskscope("user", "role", user.name, "none", "--workspace", workspace, *where)
    elif how == "password":
        users.set_password(shared_service.engine, user, OTHER)
        done = daskscope("user", "list", *where)
    else:
        done = daskscope("user", how, user.name, *where)
    assert done.returncode == 0, done.stderr
    assert not any(is_in(shared_service, browser) for browser in browsers)
    assert is_in(shared_service, other)
    if how == "disable":
        assert "disabled" in daskscope("user", "list", *where).stdout
        assert daskscope("user", "enable", user.name, *where).returncode == 0
        assert not any(is_in(shared_service, browser) for browser in browsers)  # for good
        assert is_in(shared_service, browser_of(shared_service, user.name))


def test_a_change_of_role_takes_effect_on_the_next_request(
    shared_service: ServiceProcess, user: User
) -> None:
    browser = browser_of(shared_service, user.name)
    (workspace,) = users.workspaces_of(shared_service.engine, user.id)
    account = f"{shared_service.url}/account"
    assert f"a member of the workspace {workspace}" in words(browser.get(account, timeout=30).text)
    users.set_role(shared_service.engine, user, workspace, "viewer")
    assert f"a viewer of the workspace {workspace}" in words(browser.get(account, timeout=30).text)


def test_the_page_lists_ones_own_sessions_and_ends_each(
    shared_service: ServiceProcess, user: User
) -> None:
    here, there, elsewhere = (browser_of(shared_service, user.name) for _ in range(3))
    stranger = browser_of(shared_service, make_user(shared_service, {"default": "owner"}).name)

    def ends(browser: requests.Session) -> list[str]:
        page = browser.get(f"{shared_service.url}/account", timeout=30).text
        assert "Firefox 144, Linux" in page
        return re.findall(r'action="(/account/sessions/[0-9a-f]{64}/end)"', page)

    assert len(ends(here)) == 3
    (foreign,) = ends(stranger)
    for path in (foreign, "/account/sessions/00/end", "/account/sessions/no-hex/end"):
        assert post(shared_service, here, path).status_code == 404
    assert is_in(shared_service, stranger)

    assert (
        there.cookies[sessions.COOKIE]
        not in here.get(f"{shared_service.url}/account", timeout=30).text
    )
    row = sessions.find(shared_service.engine, there.cookies[sessions.COOKIE])
    assert row is not None
    assert post(shared_service, here, f"/account/sessions/{row.id_hash.hex()}/end").ok
    assert not is_in(shared_service, there)
    assert is_in(shared_service, here)
    assert is_in(shared_service, elsewhere)

    assert post(shared_service, here, "/account/sessions/end").ok
    assert not is_in(shared_service, here)
    assert not is_in(shared_service, elsewhere)


def test_a_new_password_needs_the_old_one_and_ends_the_other_sessions(
    shared_service: ServiceProcess, user: User
) -> None:
    here, there = (browser_of(shared_service, user.name) for _ in range(2))

    def change(old: str, new: str) -> requests.Response:
        return here.post(
            f"{shared_service.url}/account/password", data={"old": old, "new": new}, timeout=30
        )

    assert change("wrong horse battery", OTHER).status_code == 403
    short = change(PASSWORD, "short")
    assert short.status_code == 400
    assert "at least 12" in short.text
    assert is_in(shared_service, there)
    done = change(PASSWORD, OTHER)
    assert done.ok
    assert "The password is changed" in done.text
    assert is_in(shared_service, here)
    assert not is_in(shared_service, there)
    assert try_to_sign_in(shared_service, user.name, PASSWORD).status_code == 403
    assert is_in(shared_service, browser_of(shared_service, user.name, OTHER))


def test_the_old_password_cannot_be_guessed_from_a_browser_that_was_left(
    service: ServiceProcess,
) -> None:
    user = make_user(service, {"default": "owner"})
    browser = browser_of(service, user.name)
    form = {"old": "wrong", "new": OTHER}
    answers = [
        browser.post(f"{service.url}/account/password", data=form, timeout=30) for _ in range(11)
    ]
    assert [answer.status_code for answer in answers] == [403] * 10 + [429]
    assert int(answers[-1].headers["Retry-After"]) > 0


def test_signing_in_again_leaves_no_session_behind(
    shared_service: ServiceProcess, user: User
) -> None:
    browser = browser_of(shared_service, user.name)
    form = {"name": user.name, "password": PASSWORD}
    assert browser.post(f"{shared_service.url}/sign-in", data=form, timeout=30).ok
    assert len(sessions.list_of(shared_service.engine, user.id)) == 1


def test_signing_out_ends_the_session_for_good(shared_service: ServiceProcess, user: User) -> None:
    browser = browser_of(shared_service, user.name)
    copied = requests.Session()
    copied.cookies.update(browser.cookies)
    assert post(shared_service, browser, "/sign-out").ok
    assert not is_in(shared_service, copied)


@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_session_by_a_token_ends_with_the_token(shared_service: ServiceProcess, how: str) -> None:
    engine, workspace = shared_service.engine, f"w-{uuid.uuid4().hex[:8]}"
    token = shared_service.token(["read"], workspace)
    browser = requests.Session()
    answer = browser.post(f"{shared_service.url}/sign-in", data={"token": token}, timeout=30)
    assert answer.ok
    assert is_in(shared_service, browser)
    if how == "revoked":
        assert tokens.revoke(engine, workspace, token.split("_")[1])
    else:
        with engine.begin() as connection:
            connection.execute(
                update(schema.token)
                .where(schema.token.c.workspace == workspace)
                .values(expires_at=1.0)
            )
    assert not is_in(shared_service, browser)


@pytest.mark.parametrize(("how", "role"), [("link", "owner"), ("token", "viewer")])
def test_who_comes_without_a_user_has_no_account(
    shared_service: ServiceProcess, how: str, role: str
) -> None:
    engine, browser = shared_service.engine, requests.Session()
    if how == "link":
        sign_in_by_link(shared_service, browser)
    else:
        form = {"token": shared_service.token(["read"])}
        assert browser.post(f"{shared_service.url}/sign-in", data=form, timeout=30).ok
    session = sessions.find(engine, browser.cookies[sessions.COOKIE])
    assert session is not None
    assert (session.user, session.role) == (None, role)
    page = browser.get(f"{shared_service.url}/account", timeout=30)
    assert page.status_code == 403
    assert "daskscope user create" in page.text
    for path in ("/account/password", "/account/sessions/end", "/workspace"):
        assert post(shared_service, browser, path).status_code == 403
    assert is_in(shared_service, browser)


def test_when_a_session_was_last_seen_is_written_down_but_not_each_time(
    shared_service: ServiceProcess, user: User
) -> None:
    engine, table = shared_service.engine, schema.session
    browser = browser_of(shared_service, user.name)

    def last_seen() -> float:
        with engine.connect() as connection:
            found = connection.execute(select(table.c.last_seen_at).where(table.c.user == user.id))
            return float(found.scalar_one())

    first = last_seen()
    assert is_in(shared_service, browser)
    assert last_seen() == first
    with writing(engine) as connection:
        connection.execute(
            update(table).where(table.c.user == user.id).values(last_seen_at=first - 3600)
        )
    assert is_in(shared_service, browser)
    assert last_seen() >= first


@pytest.mark.parametrize(
    ("agent", "short"),
    [
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
            "Chrome/141.0.0.0 Safari/537.36 Edg/141.0.0.0",
            "Edge 141, Windows",
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 "
            "(KHTML, like Gecko) Version/18.6 Safari/605.1.15",
            "Safari 18, macOS",
        ),
        (
            "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) "
            "Chrome/141.0.0.0 Mobile Safari/537.36",
            "Chrome 141, Android",
        ),
        ("python-requests/2.32", None),
        ("", None),
    ],
)
def test_a_browser_is_told_in_two_words(agent: str, short: str | None) -> None:
    assert sessions.browser(agent) == short


def test_of_a_browsers_name_for_itself_only_the_beginning_is_looked_at() -> None:
    # To look for a version among 60,000 digits took a minute, in which no other thread went on.
    assert sessions.browser("Firefox/144.0 (Linux)" + 60_000 * "1") == "Firefox 144, Linux"
    assert sessions.browser(60_000 * "1" + "Firefox/144.0 (Linux)") is None


def age(service: ServiceProcess, browser: requests.Session, **seconds: float) -> None:
    """Let so many seconds have passed since these times of the browser's session."""
    table = schema.session
    row = sessions.find(service.engine, browser.cookies[sessions.COOKIE])
    assert row is not None
    with writing(service.engine) as connection:
        connection.execute(
            update(table)
            .where(table.c.id_hash == row.id_hash)
            .values({name: table.c[name] - passed for name, passed in seconds.items()})
        )


def test_a_session_ends_in_which_nothing_was_asked_for_days(
    shared_service: ServiceProcess, user: User
) -> None:
    used, idle = (browser_of(shared_service, user.name) for _ in range(2))
    week = 7 * 86400.0
    age(shared_service, used, created_at=2 * week, last_seen_at=week - 3600)
    age(shared_service, idle, created_at=week, last_seen_at=week)
    assert not is_in(shared_service, idle)
    assert is_in(shared_service, used)
    page = used.get(f"{shared_service.url}/account", timeout=30).text
    assert page.count("Firefox 144, Linux") == 1


def test_what_gives_rights_or_removes_for_good_needs_a_fresh_sign_in(
    shared_service: ServiceProcess,
) -> None:
    workspace = f"w-{uuid.uuid4().hex[:8]}"
    owner, other = (make_user(shared_service, {workspace: "owner"}) for _ in range(2))
    browser, url = browser_of(shared_service, owner.name), shared_service.url
    api, member = f"{url}/api/v1/workspaces/{workspace}", f"/members/{other.id}"
    scopes: tuple[list[Scope], ...] = (["admin"], ["read"])
    asked = [
        device_login.begin(shared_service.engine, host="x", scopes=one, address="192.0.2.1")
        for one in scopes
    ]
    target = {"name": "by page", "address": "json://8.8.8.8", "kinds": ["idle"]}
    policy = {"name": "by page", "action": "shutdown"}
    invited = {"name": f"li-{uuid.uuid4().hex[:8]}", "role": "viewer"}

    def by_page(path: str, form: dict[str, Any]) -> requests.Response:
        headers = {"Referer": f"{url}/settings/members"}
        return browser.post(f"{url}{path}", data=form, headers=headers, timeout=30)

    def by_api(method: str, path: str, body: object = None) -> requests.Response:
        return browser.request(method, path, json=body, timeout=30)

    acts: tuple[Callable[[], requests.Response], ...] = (
        lambda: by_page("/settings/tokens", {"scope": "admin", "days": "30"}),
        lambda: by_page("/settings/tokens", {"scope": "read"}),
        lambda: by_page("/settings/tokens", {"scope": "ingest", "days": "90"}),
        lambda: by_page("/settings/notifications", target),
        lambda: by_page("/settings/policies", policy | {"minutes": "30"}),
        lambda: by_page("/settings/invitations", invited),
        lambda: by_page(f"/settings{member}", {"role": "viewer"}),
        lambda: by_page("/settings/retention", {"log": "1"}),
        *(
            partial(by_page, "/activate", {"code": one.user_code, "answer": "allow"})
            for one in asked
        ),
        lambda: by_api("POST", f"{url}/api/v1/tokens", {"label": "x", "scopes": ["admin"]}),
        lambda: by_api("POST", f"{url}/api/v1/tokens", {"scopes": ["read"]}),
        lambda: by_api("POST", f"{url}/api/v1/tokens", {"scopes": ["read"], "days": 31}),
        lambda: by_api("POST", f"{url}/api/v1/targets", target | {"name": "by API"}),
        lambda: by_api(
            "POST", f"{url}/api/v1/policies", policy | {"name": "by API", "after": 1800}
        ),
        lambda: by_api("POST", f"{api}/invitations", invited),
        lambda: by_api("PUT", f"{api}{member}", {"role": "viewer"}),
        lambda: by_api("DELETE", f"{api}{member}"),
        lambda: by_api("PUT", f"{url}/api/v1/retention", {"days": {}}),
        lambda: by_page("/settings/tokens/revoke", {"which": "all"}),
        lambda: by_api("DELETE", f"{url}/api/v1/tokens"),
        lambda: by_api("DELETE", f"{url}/api/v1/tokens?user={other.name}"),
    )
    age(shared_service, browser, created_at=2 * 3600.0)
    for act in acts:
        refused = act()
        assert refused.status_code == 403
        assert "needs a sign-in within the last hour" in refused.text
    page = acts[0]().text
    assert f'value="{owner.name}"' in page  # and whose password it takes
    assert 'name="next" value="/settings/members"' in page
    assert "With a token" not in page  # which may do none of it
    assert tokens.list_in(shared_service.engine, workspace) == []
    assert users.roles_of(shared_service.engine, other.id) == {workspace: "owner"}
    # What ends no later than a session, is one's own, or only sends a notice, is done.
    assert by_page("/settings/tokens/revoke", {"which": "mine"}).ok
    assert by_api("DELETE", f"{url}/api/v1/tokens?user={owner.name}").ok
    assert by_page("/settings/tokens", {"scope": "read", "days": "30"}).ok
    made = by_api("POST", f"{url}/api/v1/policies", {"name": "n", "after": 60, "action": "notice"})
    assert made.ok
    changed = {"name": "n", "after": 60, "action": "shutdown"}
    put = f"{url}/api/v1/policies/{made.json()['id']}"
    assert by_api("PUT", put, changed).status_code == 403
    # All the rest is done after another sign-in.
    acts += (lambda: by_api("PUT", put, changed),)
    form = {"name": owner.name, "password": PASSWORD}
    assert browser.post(f"{url}/sign-in", data=form, timeout=30).ok
    for act in acts:
        assert act().ok
