"""Users: how they are made, how they sign in with a password, and how often they may try."""

from __future__ import annotations

import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests
from sqlalchemy import Engine, select, text, update

from daskscope_service.accounts import login_rate_limit, passwords, sessions, sign_in, users
from daskscope_service.accounts.login_rate_limit import TooManyAttempts
from daskscope_service.db import schema
from tests.service.pages import words
from tests.service.people import PASSWORD, browser_of, is_in, make_user, try_to_sign_in
from tests.service.test_command_line import daskscope
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


def create(
    service: ServiceProcess, *arguments: str, password: str = PASSWORD
) -> subprocess.CompletedProcess[str]:
    command = ["user", "create", *arguments, "--password-stdin", *service.database_options]
    return daskscope(*command, input=f"{password}\n")


def test_a_user_is_made_signs_in_whatever_the_capitals_and_is_listed(
    shared_service: ServiceProcess,
) -> None:
    name = f"Möller-{uuid.uuid4().hex[:8]}@Example.org"
    made = create(shared_service, name, "--workspace", "finance", "--role", "owner")
    assert made.returncode == 0, made.stderr
    assert PASSWORD not in made.stdout + made.stderr

    browser = browser_of(shared_service, name.upper())
    page = browser.get(shared_service.url, timeout=30).text
    assert "finance" in page
    assert name in page
    listed = daskscope("user", "list", *shared_service.database_options).stdout
    (line,) = [line for line in listed.splitlines() if name in line]
    assert line.split()[1:] == ["active", "owner", "of", "finance"]

    again = create(shared_service, name.lower())
    assert again.returncode == 1
    assert "already" in again.stderr
    with shared_service.engine.connect() as connection:
        stored = connection.execute(
            select(schema.user.c.password_hash).where(schema.user.c.name == name)
        ).scalar_one()
    assert stored.startswith("$argon2id$")


@pytest.mark.parametrize(
    ("name", "password", "said"),
    [
        ("maria", "short", "at least 12"),
        ("maria", "x" * 1001, "1000"),
        ("maria.lindqvist", "Maria.Lindqvist", "is part of the name"),
        ("maria", " " * 12, "is part of the name"),
        (" maria", PASSWORD, "spaces"),
        ("ma\tria", PASSWORD, "printable"),
        ("", PASSWORD, "1 to 200"),
    ],
)
def test_a_weak_password_or_an_odd_name_is_refused_and_why(
    shared_service: ServiceProcess, name: str, password: str, said: str
) -> None:
    made = create(shared_service, name, password=password)
    assert made.returncode == 1
    assert said in made.stderr
    assert "Traceback" not in made.stderr
    assert users.find(shared_service.engine, name) is None


def test_a_user_that_is_not_there_is_said(local_service: ServiceProcess) -> None:
    where = local_service.database_options
    for command in ("disable", "enable", "remove", "sign-out", "password"):
        done = daskscope("user", command, "nobody", *where)
        assert done.returncode == 1
        assert "daskscope user list" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_wrong_name_and_a_wrong_password_are_answered_alike(
    service: ServiceProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, disabled = (make_user(service, {"default": "owner"}) for _ in range(2))
    users.set_disabled(service.engine, disabled, True)
    attempts = (
        (user.name, "wrong horse battery"),
        ("nobody@example.org", PASSWORD),
        ("\0", PASSWORD),
        ("x" * 10_000, PASSWORD),
        (disabled.name, PASSWORD),
    )
    answers = [try_to_sign_in(service, *attempt) for attempt in attempts]
    assert {(answer.status_code, answer.text) for answer in answers} == {
        (403, answers[0].text),
    }
    assert not any("Set-Cookie" in answer.headers for answer in answers)
    # In the same time, too: each costs one slow comparison.
    hasher = passwords._hasher
    compared: list[str] = []

    class Hasher:
        hash = staticmethod(hasher.hash)

        @staticmethod
        def verify(stored: str, password: bytes) -> bool:
            compared.append(stored)
            return hasher.verify(stored, password)

    monkeypatch.setattr(passwords, "_hasher", Hasher)
    for attempt in attempts:
        assert sign_in.by_password(service.engine, *attempt, address="192.0.2.1") is None
    assert len(compared) == len(attempts)
    # … with the same parameters, which decide how slow it is.
    assert len({stored.rsplit("$", 2)[0] for stored in compared}) == 1


def test_a_password_costs_much_to_guess() -> None:
    program = "from daskscope_service.accounts import passwords; print(passwords.hash_of('a b c'))"
    command = [sys.executable, "-c", program]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # The least that OWASP recommends. This process has light hashes.
    assert made.startswith("$argon2id$v=19$m=19456,t=2,p=1$")


def test_attempts_for_one_name_are_throttled_by_all_processes(service: ServiceProcess) -> None:
    user, other = (make_user(service, {"default": "owner"}) for _ in range(2))
    for _ in range(login_rate_limit.FOR_NAME):
        assert try_to_sign_in(service, user.name, "wrong").status_code == 403
    # The right password does not help, nor do other capitals, nor another address or process.
    refused = try_to_sign_in(service, user.name.upper())
    assert refused.status_code == 429
    assert 0 < int(refused.headers["Retry-After"]) <= login_rate_limit.WINDOW + 1
    assert "Try again at" in refused.text
    with pytest.raises(TooManyAttempts):
        sign_in.by_password(service.engine, user.name, PASSWORD, address="192.0.2.1")
    assert try_to_sign_in(service, other.name).status_code == 303

    with service.engine.begin() as connection:  # time goes by
        attempt = schema.sign_in_attempt
        connection.execute(update(attempt).values(at=attempt.c.at - login_rate_limit.WINDOW))
    assert try_to_sign_in(service, user.name).status_code == 303


def test_attempts_from_one_address_are_throttled_whatever_the_name(engine: Engine) -> None:
    for number in range(login_rate_limit.FROM_ADDRESS):
        login_rate_limit.begin(engine, f"name {number}", f"2001:db8:1:1::{number:x}", kind="name")
    with pytest.raises(TooManyAttempts):
        login_rate_limit.begin(
            engine, "another", "2001:db8:1:1:ffff::1", kind="name"
        )  # the same network
    login_rate_limit.begin(engine, "another", "2001:db8:1:2::1", kind="name")
    login_rate_limit.begin(engine, "another", "192.0.2.1", kind="name")


def test_of_many_attempts_at_once_no_more_pass(engine: Engine) -> None:
    def passes(_: int) -> bool:
        try:
            login_rate_limit.begin(engine, "maria", "192.0.2.1", kind="name")
        except TooManyAttempts:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        passed = sum(pool.map(passes, range(3 * login_rate_limit.FOR_NAME)))
    assert passed <= login_rate_limit.FOR_NAME
    while (
        passed < login_rate_limit.FOR_NAME
    ):  # of those at the same moment, all may have stood back
        login_rate_limit.begin(engine, "maria", "192.0.2.1", kind="name")
        passed += 1
    with pytest.raises(TooManyAttempts):
        login_rate_limit.begin(engine, "maria", "192.0.2.1", kind="name")


def test_who_signs_in_has_all_attempts_again(engine: Engine) -> None:
    for _ in range(login_rate_limit.FOR_NAME - 1):
        login_rate_limit.begin(engine, "maria", "192.0.2.1", kind="name")
    last = login_rate_limit.begin(engine, "maria", "192.0.2.1", kind="name")
    login_rate_limit.succeeded(engine, last)
    with engine.connect() as connection:
        kept = connection.execute(select(schema.sign_in_attempt.c.key_hash)).scalars().all()
    assert len(kept) == login_rate_limit.FOR_NAME - 1  # those of the address
    for _ in range(login_rate_limit.FOR_NAME):
        login_rate_limit.begin(engine, "maria", "192.0.2.1", kind="name")


def test_a_name_that_was_tried_is_not_kept(service: ServiceProcess) -> None:
    try_to_sign_in(service, "my-password-in-the-wrong-field")
    with service.engine.connect() as connection:
        rows = connection.execute(text("SELECT * FROM sign_in_attempt")).all()
    assert rows
    assert "wrong-field" not in str(rows)


def test_a_user_of_several_workspaces_chooses(shared_service: ServiceProcess) -> None:
    mine, theirs = (f"{letter}-{uuid.uuid4().hex[:8]}" for letter in "ab")
    user = make_user(shared_service, {theirs: "viewer", mine: "owner"})
    browser = browser_of(shared_service, user.name)

    def choose(workspace: str) -> requests.Response:
        return browser.post(
            f"{shared_service.url}/workspace", data={"workspace": workspace}, timeout=30
        )

    def account() -> str:
        return words(browser.get(f"{shared_service.url}/account", timeout=30).text)

    assert f"You are an owner of the workspace {mine}" in account()  # the first by its name
    assert choose(theirs).ok
    assert f"You are a viewer of the workspace {theirs}" in account()
    for other in ("default", "nowhere", "\0", ""):
        assert choose(other).status_code in (400, 404)
    assert f"of the workspace {theirs}" in account()


def test_a_user_in_no_workspace_is_told_so(shared_service: ServiceProcess) -> None:
    user = make_user(shared_service, {"default": "member"})
    where = shared_service.database_options
    assert daskscope("user", "role", user.name, "none", *where).returncode == 0
    refused = try_to_sign_in(shared_service, user.name)
    assert refused.status_code == 403
    assert "daskscope user role" in refused.text
    twice = daskscope("user", "role", user.name, "none", *where)
    assert twice.returncode == 1
    assert "no role in default" in twice.stderr
    assert daskscope("user", "role", user.name, "viewer", *where).returncode == 0
    assert is_in(shared_service, browser_of(shared_service, user.name))


def test_sign_in_leads_where_one_wanted_to_go(shared_service: ServiceProcess) -> None:
    user = make_user(shared_service, {"default": "member"})
    answer = try_to_sign_in(shared_service, user.name, next="/exceptions")
    assert (answer.status_code, answer.headers["Location"]) == (303, "/exceptions")
    cookie = answer.headers["Set-Cookie"]
    assert sessions.COOKIE in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
