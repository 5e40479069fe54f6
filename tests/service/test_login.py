"""``daskscope login``: who may let a program in, what it gets, and what goes wrong."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.config
import pytest
import requests
from sqlalchemy import Engine, select, update

from daskscope import login
from daskscope.errors import (
    AccessDenied,
    ConfigurationError,
    DaskscopeError,
    ServiceError,
    ServiceUnreachable,
)
from daskscope_service.accounts import device_login, login_rate_limit, tokens, users
from daskscope_service.accounts.login_rate_limit import TooManyAttempts
from daskscope_service.accounts.users import Role
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from tests.ports import free_port
from tests.service.beats import make_beat, post
from tests.service.people import browser_of, make_user, sign_in_by_link, try_to_sign_in
from tests.service.test_command_line import daskscope
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

USUAL = ("ingest", "read")


@pytest.fixture
def workspace(shared_service: ServiceProcess) -> str:
    with writing(shared_service.engine) as connection:  # all tests have one address
        connection.execute(schema.device_login.delete())
    return f"w-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Dask's configuration for this test alone."""
    folder = tmp_path / "dask"
    monkeypatch.setattr(dask.config, "PATH", str(folder))
    monkeypatch.setattr(dask.config, "paths", [str(folder)])
    return folder / "daskscope.yaml"


def begin(service: ServiceProcess, **form: str) -> dict[str, Any]:
    answer = requests.post(f"{service.url}/api/v1/login/device", data=form, timeout=30)
    assert answer.status_code == 200, answer.text
    begun: dict[str, Any] = answer.json()
    return begun


GRANT = "urn:ietf:params:oauth:grant-type:device_code"


def poll(service: ServiceProcess, code: str, grant_type: str = GRANT) -> requests.Response:
    form = {"device_code": code, "grant_type": grant_type}
    return requests.post(f"{service.url}/api/v1/login/token", data=form, timeout=30)


def look_up(service: ServiceProcess, browser: requests.Session, code: str) -> requests.Response:
    """Go on from the page that the address of a code opens, to who asks."""
    return browser.post(f"{service.url}/activate", data={"code": code}, timeout=30)


def say(
    service: ServiceProcess,
    browser: requests.Session,
    user_code: str,
    answer: str = "allow",
    **form: str,
) -> requests.Response:
    data = {"code": user_code, "answer": answer, **form}
    return browser.post(f"{service.url}/activate", data=data, timeout=30)


def person(service: ServiceProcess, workspace: str, role: Role = "member") -> requests.Session:
    return browser_of(service, make_user(service, {workspace: role}).name)


def actions(service: ServiceProcess, workspace: str) -> list[tuple[str, str, str]]:
    entry = schema.audit_entry
    statement = (
        select(entry.c.action, entry.c.actor, entry.c.detail)
        .where(entry.c.workspace == workspace)
        .order_by(entry.c.at)
    )
    with service.engine.connect() as connection:
        return [(row.action, row.actor, row.detail) for row in connection.execute(statement)]


def test_a_program_gets_a_token_once_a_user_allows_it(
    shared_service: ServiceProcess, workspace: str
) -> None:
    user = make_user(shared_service, {workspace: "member"})
    browser = browser_of(shared_service, user.name)
    begun = begin(shared_service, host="laptop <b>")
    code = begun["device_code"]
    assert begun["verification_uri"] == f"{shared_service.url}/activate"
    assert re.fullmatch("[B-Z]{4}-[B-Z]{4}", begun["user_code"])
    assert poll(shared_service, code).json()["error"] == "authorization_pending"

    page = browser.get(begun["verification_uri_complete"], timeout=30)
    assert begun["user_code"] in page.text
    page = look_up(shared_service, browser, begun["user_code"])
    assert "laptop &lt;b&gt;" in page.text
    assert workspace in page.text
    assert "Allowed" in say(shared_service, browser, begun["user_code"].lower()).text

    answer = poll(shared_service, code)
    granted = answer.json()
    assert answer.headers["Cache-Control"] == "no-store"
    assert granted["workspace"] == workspace
    assert granted["scope"] == "ingest read"
    assert post(shared_service.url, granted["access_token"], make_beat()).ok

    (token,) = tokens.list_in(shared_service.engine, workspace)
    assert (token.label, token.made_by) == ("daskscope login on laptop <b>", user.name)
    listed = browser.get(f"{shared_service.url}/settings/tokens", timeout=30).text
    assert token.id in listed
    assert user.name in listed
    assert granted["access_token"] not in listed
    assert poll(shared_service, code).json()["error"] == "expired_token"  # once only
    made = [entry for entry in actions(shared_service, workspace) if "made" not in entry[0]]
    assert ("login allowed", user.name, "laptop <b>, from 127.0.0.1") in made


def test_a_program_that_is_denied_gets_nothing(
    shared_service: ServiceProcess, workspace: str
) -> None:
    begun = begin(shared_service)
    browser = person(shared_service, workspace)
    assert "Denied" in say(shared_service, browser, begun["user_code"], "deny").text
    for _ in range(2):
        answer = poll(shared_service, begun["device_code"])
        assert (answer.status_code, answer.json()["error"]) == (400, "access_denied")
        assert answer.headers["Content-Type"] == "application/problem+json"
    assert say(shared_service, browser, begun["user_code"]).status_code == 404  # no second thoughts
    assert tokens.list_in(shared_service.engine, workspace) == []
    assert "login denied" in [action for action, _, _ in actions(shared_service, workspace)]


@pytest.mark.usefixtures("workspace")
def test_a_poll_of_another_kind_is_refused_as_oauth_says(shared_service: ServiceProcess) -> None:
    code = begin(shared_service)["device_code"]
    for form, error in (
        ((code, "authorization_code"), "unsupported_grant_type"),
        (("", "password"), "unsupported_grant_type"),
        ((code, ""), "invalid_request"),
        (("", GRANT), "invalid_request"),
        (("made-up", GRANT), "expired_token"),
    ):
        answer = poll(shared_service, *form)
        assert (answer.status_code, answer.json()["error"]) == (400, error), form
        assert answer.headers["Cache-Control"] == "no-store"
    assert poll(shared_service, code).json()["error"] == "authorization_pending"


@pytest.mark.parametrize(
    ("role", "told"), [("owner", "members, tokens"), ("member", "shut clusters down")]
)
def test_who_is_asked_for_scope_admin_is_told_what_that_allows(
    shared_service: ServiceProcess, workspace: str, role: Role, told: str
) -> None:
    begun = begin(shared_service, scope="admin read")
    browser = person(shared_service, workspace, role)
    page = look_up(shared_service, browser, begun["user_code"]).text
    warning = page.partition('class="alert"')[2].partition("</p>")[0]
    assert told in warning
    assert ("members, tokens" in warning) == (role == "owner")
    assert "to see its data and make changes" in page
    assert "Allowed" in say(shared_service, browser, begun["user_code"]).text
    granted = poll(shared_service, begun["device_code"]).json()
    assert granted["scope"] == "admin read"
    headers = {"Authorization": f"Bearer {granted['access_token']}"}
    url = f"{shared_service.url}/api/v1/tokens"
    assert requests.get(url, headers=headers, timeout=30).ok


def test_a_viewer_gives_no_scope_admin_away(shared_service: ServiceProcess, workspace: str) -> None:
    begun = begin(shared_service, scope="admin read")
    browser = person(shared_service, workspace, "viewer")
    page = look_up(shared_service, browser, begun["user_code"]).text
    assert 'class="alert"' not in page
    assert "as a viewer you cannot give it more" in page
    say(shared_service, browser, begun["user_code"])
    assert poll(shared_service, begun["device_code"]).json()["scope"] == "read"


@pytest.mark.usefixtures("workspace")
def test_a_hasty_program_is_slowed_down(shared_service: ServiceProcess) -> None:
    code = begin(shared_service)["device_code"]
    said = [poll(shared_service, code).json() for _ in range(3)]
    assert [(answer["error"], answer["interval"]) for answer in said] == [
        ("authorization_pending", 5),
        ("slow_down", 10),
        ("slow_down", 15),
    ]
    with shared_service.engine.begin() as connection:  # time goes by
        table = schema.device_login
        connection.execute(update(table).values(polled_at=table.c.polled_at - 16))
    assert poll(shared_service, code).json()["error"] == "authorization_pending"


def test_a_code_that_is_too_old_or_unknown_opens_nothing(
    shared_service: ServiceProcess, workspace: str
) -> None:
    begun = begin(shared_service)
    browser = person(shared_service, workspace)
    with shared_service.engine.begin() as connection:
        connection.execute(update(schema.device_login).values(expires_at=1.0))
    assert poll(shared_service, begun["device_code"]).json()["error"] == "expired_token"
    assert poll(shared_service, "made-up").json()["error"] == "expired_token"
    for code in (begun["user_code"], "\0", "BCDF-GHJK", "x" * 10_000):
        answer = say(shared_service, browser, code)
        assert answer.status_code == 404
        assert "No program is waiting" in answer.text


def test_a_viewer_gives_a_token_that_only_reads(
    shared_service: ServiceProcess, workspace: str
) -> None:
    begun = begin(shared_service)
    say(shared_service, person(shared_service, workspace, "viewer"), begun["user_code"])
    assert poll(shared_service, begun["device_code"]).json()["scope"] == "read"


def test_no_program_asks_for_a_scope_that_there_is_not(shared_service: ServiceProcess) -> None:
    for scope in ("owner", "", "read everything"):
        answer = requests.post(
            f"{shared_service.url}/api/v1/login/device", data={"scope": scope}, timeout=30
        )
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_scope")


def test_the_user_chooses_among_their_workspaces_alone(
    shared_service: ServiceProcess, workspace: str
) -> None:
    theirs = f"{workspace}-2"
    user = make_user(shared_service, {workspace: "member", theirs: "owner"})
    browser = browser_of(shared_service, user.name)
    begun = begin(shared_service)
    code = begun["user_code"]
    assert theirs in browser.get(begun["verification_uri_complete"], timeout=30).text
    for other in ("default", "nowhere", "\0"):
        assert say(shared_service, browser, code, workspace=other).status_code in (400, 403)
    assert say(shared_service, browser, code, "perhaps").status_code == 400
    assert say(shared_service, browser, code, workspace=theirs).ok
    assert poll(shared_service, begun["device_code"]).json()["workspace"] == theirs


def test_who_came_with_a_link_may_allow_it_and_who_came_with_a_token_may_not(
    shared_service: ServiceProcess, workspace: str
) -> None:
    begun = begin(shared_service)
    by_token, by_link = requests.Session(), requests.Session()
    form = {"token": shared_service.token(workspace=workspace)}
    assert by_token.post(f"{shared_service.url}/sign-in", data=form, timeout=30).ok
    refused = say(shared_service, by_token, begun["user_code"])
    assert refused.status_code == 403
    assert "a token cannot create others" in refused.text

    sign_in_by_link(shared_service, by_link, workspace)
    # Wherever the form says that it is for, it is for the workspace of the link.
    assert say(shared_service, by_link, begun["user_code"], workspace="default").ok
    assert poll(shared_service, begun["device_code"]).json()["workspace"] == workspace


@pytest.mark.usefixtures("workspace")
def test_who_is_not_signed_in_is_sent_to_sign_in_and_back(shared_service: ServiceProcess) -> None:
    page = begin(shared_service)["verification_uri_complete"]
    answer = requests.get(page, allow_redirects=False, timeout=30)
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith("/sign-in?next=%2Factivate%3Fcode%3D")


@pytest.mark.parametrize("how", ["disable", "remove", "role"])
def test_a_user_who_is_gone_by_then_gives_no_token(
    shared_service: ServiceProcess, workspace: str, how: str
) -> None:
    user = make_user(shared_service, {workspace: "member"})
    begun = begin(shared_service)
    say(shared_service, browser_of(shared_service, user.name), begun["user_code"])
    if how == "disable":
        users.set_disabled(shared_service.engine, user, True)
    elif how == "remove":
        users.remove(shared_service.engine, user)
    else:
        users.take_role(shared_service.engine, user, workspace)
    assert poll(shared_service, begun["device_code"]).json()["error"] == "access_denied"
    assert tokens.list_in(shared_service.engine, workspace) == []


def test_codes_cannot_be_guessed_one_after_the_other(
    shared_service: ServiceProcess, workspace: str
) -> None:
    browser = person(shared_service, workspace)
    right = begin(shared_service)["user_code"]
    for _ in range(login_rate_limit.FOR_NAME):
        assert say(shared_service, browser, "BBBB-BBBB").status_code == 404
    refused = say(shared_service, browser, right)
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) > 0
    # An address with a code neither counts nor tells whether it is right.
    page = browser.get(f"{shared_service.url}/activate?code={right}", timeout=30)
    assert (page.status_code, "on this-machine" in page.text) == (200, False)
    with writing(shared_service.engine) as connection:  # others come from this address too
        connection.execute(schema.sign_in_attempt.delete())


def test_no_one_uses_up_the_codes_of_others_by_failing_to_sign_in(
    shared_service: ServiceProcess, workspace: str
) -> None:
    browser = requests.Session()
    sign_in_by_link(shared_service, browser, workspace)
    begun = begin(shared_service)
    for _ in range(login_rate_limit.FOR_NAME):
        try_to_sign_in(shared_service, "code of link", "not the password")
    try_to_sign_in(shared_service, "", "not the password")
    assert say(shared_service, browser, begun["user_code"]).ok
    assert poll(shared_service, begun["device_code"]).ok
    with writing(shared_service.engine) as connection:  # others come from this address too
        connection.execute(schema.sign_in_attempt.delete())


def test_logins_that_wait_are_bounded_for_each_address(engine: Engine) -> None:
    for number in range(device_login.FROM_ADDRESS):
        device_login.begin(engine, host="x", address=f"2001:db8:1:1::{number:x}")
    with pytest.raises(TooManyAttempts):
        device_login.begin(engine, host="x", address="2001:db8:1:1:ffff::1")
    device_login.begin(engine, host="x", address="192.0.2.1")
    with engine.begin() as connection:
        connection.execute(update(schema.device_login).values(expires_at=1.0))
    device_login.begin(engine, host="x", address="2001:db8:1:1::1")


def test_the_command_writes_the_token_where_dask_finds_it(
    local_service: ServiceProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "dask"
    folder.mkdir()
    file = folder / "daskscope.yaml"
    (folder / "dask.yaml").write_text("daskscope:\n  interval: 5s\n  token: old\n")
    command = ["login", "--url", local_service.url, "--no-browser"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DASK")}
    process = subprocess.Popen(
        [sys.executable, "-m", "daskscope_service.cli", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment | {"DASK_CONFIG": str(folder), "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.search(r"http\S+code=(\S+)", first)
        assert found is not None, first + process.stdout.read()
        browser = requests.Session()
        sign_in_by_link(local_service, browser)
        assert say(local_service, browser, found[1]).ok
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    (token,) = tokens.list_in(local_service.engine, "default")
    assert process.returncode == 0, output
    assert "Logged in to the workspace default." in output
    assert f"The token {token.id} (ingest, read) is stored in {file}" in output
    assert "Warning" not in output

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    written = dask.config.collect([str(folder)], env={})["daskscope"]
    assert written["interval"] == "5s"
    assert written["endpoint"] == local_service.url
    assert tokens.id_of(written["token"]) == token.id
    assert written["token"] not in output
    assert post(local_service.url, written["token"], make_beat()).ok


def allow(
    service: ServiceProcess, browser: requests.Session, answer: str = "allow"
) -> Callable[[login.Invitation], None]:
    """Return a user who answers as soon as they are told."""
    return lambda invitation: say(service, browser, invitation.code, answer).raise_for_status()


def at_once(_: float) -> None:
    """Wait no time at all between polls."""


def test_the_client_says_what_it_got_and_who_has_the_last_word(
    shared_service: ServiceProcess,
    workspace: str,
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    browser = person(shared_service, workspace)
    tell = allow(shared_service, browser)
    done = login.log_in(shared_service.url, show=tell, sleep=at_once)
    assert (done.workspace, done.scopes, done.file) == (workspace, USUAL, config)
    assert not done.overruled
    monkeypatch.setenv("DASK_DASKSCOPE__TOKEN", "dsk_another")
    assert login.log_in(shared_service.url, show=tell, sleep=at_once).overruled


def test_the_client_waits_as_long_as_it_is_asked_to(
    shared_service: ServiceProcess, workspace: str, config: Path
) -> None:
    waits: list[float] = []
    codes: list[str] = []
    browser = person(shared_service, workspace)

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            say(shared_service, browser, codes[0])

    login.log_in(shared_service.url, show=lambda told: codes.append(told.code), sleep=sleep)
    assert waits == [5, 5, 10]  # as no time went by, the second was too soon
    assert config.exists()


def test_the_client_says_why_there_is_no_token_and_leaves_the_file(
    shared_service: ServiceProcess, workspace: str, config: Path
) -> None:
    def fails(
        kind: type[DaskscopeError],
        said: str,
        tell: Callable[[login.Invitation], None] = lambda _: None,
        url: str = shared_service.url,
    ) -> None:
        with pytest.raises(kind, match=said):
            login.log_in(url, show=tell, sleep=at_once)
        assert not config.exists()

    def expire(_: login.Invitation) -> None:
        with shared_service.engine.begin() as connection:
            connection.execute(update(schema.device_login).values(expires_at=1.0))

    browser = person(shared_service, workspace)
    fails(AccessDenied, "denied; nothing changed", allow(shared_service, browser, "deny"))
    fails(AccessDenied, "not approved in time", expire)
    fails(ServiceUnreachable, "check that the service runs", url=f"http://127.0.0.1:{free_port()}")
    fails(ServiceError, "older than this daskscope", url=f"{shared_service.url}/elsewhere")
    fails(ConfigurationError, "http://", url="monitor.example")
    config.parent.mkdir()
    config.write_text("daskscope:\n  interval: 5s\n")
    with pytest.raises(ConfigurationError, match="another file of that folder"):
        login.log_in(shared_service.url, show=lambda _: pytest.fail("asked in vain"))


def test_the_client_outlives_a_restart_of_the_service(
    local_service: ServiceProcess, config: Path
) -> None:
    browser = requests.Session()
    sign_in_by_link(local_service, browser)
    waits: list[float] = []
    codes: list[str] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            local_service.stop()
        elif len(waits) == 2:
            local_service.start()
            say(local_service, browser, codes[0])

    login.log_in(local_service.url, show=lambda told: codes.append(told.code), sleep=sleep)
    assert waits == [5, 10]
    assert config.exists()


def test_the_command_says_what_is_wrong_in_one_line() -> None:
    done = daskscope("login", "--url", f"http://127.0.0.1:{free_port()}", "--no-browser")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: cannot reach the service at http://127.0.0.1:")
    assert "Traceback" not in done.stderr
