"""Sign-in by OpenID Connect, by a provider in a process of its own."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import requests
from sqlalchemy import select, update

from daskscope.errors import ConfigurationError
from daskscope_service.accounts import members, openid, users
from daskscope_service.accounts.caller import Caller
from daskscope_service.accounts.openid_answer import OpenIDError
from daskscope_service.application import close_app, create_app
from daskscope_service.db import schema
from daskscope_service.db.engine import make_workspace, writing
from daskscope_service.settings import Settings
from tests import sqlite_template
from tests.certificates import Certificates
from tests.oidc_provider import CLIENT_ID, SECRET, Provider, provider
from tests.patience import PATIENCE, wait_until
from tests.service.conftest import NewDatabase
from tests.service.pages import words
from tests.service.people import PASSWORD, browser_of, is_in, make_user
from tests.service.test_command_line import daskscope
from tests.service.test_sessions import age
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


@pytest.fixture(scope="module")
def idp() -> Iterator[Provider]:
    with provider() as running:
        yield running


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("secret") / "oidc"
    file.write_text(f"{SECRET}\n")
    return file


@pytest.fixture(scope="module")
def open_service(
    tmp_path_factory: pytest.TempPathFactory,
    new_database: NewDatabase,
    idp: Provider,
    secret: Path,
) -> Iterator[ServiceProcess]:
    """A service that makes a viewer of everyone of example.org whom the provider lets in."""
    with ServiceProcess(
        tmp_path_factory.mktemp("openid"),
        database_url=new_database(),
        oidc_issuer=idp.issuer,
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=secret,
        oidc_name="the provider",
        oidc_role="viewer",
        oidc_domains=("example.org", "example.net"),
    ) as service:
        yield service


@pytest.fixture
def person() -> dict[str, Any]:
    """What the provider says of someone who has not been here before."""
    id = uuid.uuid4().hex[:8]
    return {"sub": id, "email": f"Maria-{id}@Example.org", "email_verified": True, "name": "Maria"}


@pytest.fixture(autouse=True)
def no_one_waits(open_service: ServiceProcess) -> None:
    with open_service.engine.begin() as connection:  # all tests have one address
        connection.execute(schema.openid_attempt.delete())


def sign_in(
    service: ServiceProcess, browser: requests.Session | None = None, target: str = "/"
) -> tuple[requests.Session, requests.Response]:
    """Go to the provider and back."""
    browser = browser or requests.Session()
    url = f"{service.url}/sign-in/openid?{urlencode({'next': target})}"
    return browser, browser.get(url, timeout=30)


def callback(service: ServiceProcess, browser: requests.Session) -> str:
    """Go to the provider, and return the address to which it sends the browser back."""
    there = browser.get(f"{service.url}/sign-in/openid", allow_redirects=False, timeout=30)
    assert there.status_code == 303
    back = browser.get(there.headers["Location"], allow_redirects=False, timeout=30)
    assert back.status_code == 302
    return back.headers["Location"]


def actions(service: ServiceProcess, actor: str) -> list[tuple[str, str]]:
    entry = schema.audit_entry
    statement = (
        select(entry.c.action, entry.c.detail).where(entry.c.actor == actor).order_by(entry.c.at)
    )
    with service.engine.connect() as connection:
        return [(row.action, row.detail) for row in connection.execute(statement)]


def test_someone_new_is_let_in_and_known_again_whatever_their_name_is(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any]
) -> None:
    to_sign_in = requests.get(f"{open_service.url}/sign-in", timeout=30).text
    assert "Sign in with the provider" in words(to_sign_in)
    idp.next(**person)
    browser, page = sign_in(open_service, target="/account")
    assert page.url == f"{open_service.url}/account"
    assert "You are a viewer of the workspace default" in words(page.text)
    assert str(person["email"]) in page.text
    assert is_in(open_service, browser)

    idp.next(**person | {"email": "another@example.net"})
    _, again = sign_in(open_service, target="/account")
    assert str(person["email"]) in again.text
    made = [name for name, _ in actions(open_service, str(person["email"]))]
    assert made == ["account connected", "signed in", "signed in"]


def test_the_provider_is_asked_with_a_challenge_and_with_nothing_that_is_known(
    open_service: ServiceProcess,
) -> None:
    asked = [
        requests.get(f"{open_service.url}/sign-in/openid", allow_redirects=False, timeout=30)
        for _ in range(2)
    ]
    said = [parse_qs(urlsplit(answer.headers["Location"]).query) for answer in asked]
    assert said[0]["code_challenge_method"] == ["S256"]
    assert said[0]["redirect_uri"] == [f"{open_service.url}/sign-in/openid/callback"]
    for name in ("state", "nonce", "code_challenge"):
        assert len(said[0][name][0]) >= 43
        assert said[0][name] != said[1][name]
    cookie = asked[0].headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Path=/sign-in/openid" in cookie


def test_by_https_no_other_host_can_plant_a_sign_in(
    idp: Provider, person: dict[str, Any], tmp_path: Path
) -> None:
    own = "https://monitor.example"
    settings = Settings(
        data_dir=tmp_path,
        public_url=own,
        oidc_issuer=idp.issuer,
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=SECRET,
        oidc_role="viewer",
    )
    sqlite_template.copy_to(tmp_path)
    app = create_app(settings)
    try:
        idp.next(**person)
        browser, victim = app.test_client(), app.test_client()
        there = browser.get("/sign-in/openid", base_url=own)
        (cookie,) = there.headers.getlist("Set-Cookie")
        assert cookie.startswith("__Host-daskscope_openid=")
        assert {"Secure", "HttpOnly", "Path=/"} <= set(cookie.split("; "))
        assert "Domain" not in cookie
        back = requests.get(there.headers["Location"], allow_redirects=False, timeout=30)
        callback = back.headers["Location"].removeprefix(own)
        # All that another host of the domain can plant is a cookie of another name.
        ticket = cookie.partition("=")[2].partition(";")[0]
        victim.set_cookie("daskscope_openid", ticket, domain="monitor.example")
        assert victim.get(callback, base_url=own).status_code == 403
        # That attempt used up neither the state nor the code.
        let_in = browser.get(callback, base_url=own)
        assert let_in.status_code == 303
        gone, session = let_in.headers.getlist("Set-Cookie")[::-1]
        assert gone.startswith("__Host-daskscope_openid=;")
        assert "Secure" in gone
        assert session.startswith("__Host-daskscope_session=")
    finally:
        close_app(app)


@pytest.mark.parametrize(
    "wrong",
    ["nonce", "no nonce", "audience", "issuer", "expiry", "signature", "algorithm"],
)
def test_an_answer_that_is_not_as_it_should_be_lets_no_one_in(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any], wrong: str
) -> None:
    idp.next(wrong=wrong, **person)
    browser, page = sign_in(open_service)
    assert page.status_code == 403
    assert "failed or expired" in page.text
    assert not is_in(open_service, browser)
    assert users.find(open_service.engine, str(person["email"])) is None
    idp.next(**person)
    assert is_in(open_service, sign_in(open_service)[0])


def test_an_answer_counts_once_and_in_the_browser_that_asked(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any]
) -> None:
    idp.next(**person)
    browser, other = requests.Session(), requests.Session()
    back = callback(open_service, browser)
    cookies = dict(browser.cookies)
    assert other.get(back, timeout=30).status_code == 403  # who was made to follow a link
    callback(open_service, other)
    assert other.get(back, timeout=30).status_code == 403  # who has asked for another
    assert browser.get(back, timeout=30).ok
    again = requests.get(back, cookies=cookies, allow_redirects=False, timeout=30)
    assert again.status_code == 403
    # Nor does another code help, with a state that was used.
    fresh = parse_qs(urlsplit(callback(open_service, requests.Session())).query)["code"][0]
    stale = re.sub(r"code=[^&]+", f"code={fresh}", back)
    assert requests.get(stale, cookies=cookies, timeout=30).status_code == 403


def test_an_answer_that_comes_too_late_or_from_elsewhere_does_not_count(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any]
) -> None:
    idp.next(**person)
    browser = requests.Session()
    back = callback(open_service, browser)
    elsewhere = f"{back}&{urlencode({'iss': 'https://elsewhere.example'})}"
    assert browser.get(elsewhere, timeout=30).status_code == 403
    with open_service.engine.begin() as connection:
        connection.execute(update(schema.openid_attempt).values(expires_at=1.0))
    assert browser.get(back, timeout=30).status_code == 403
    for query in ("", "state=x&code=y", "error=access_denied", "state=%00&code=%00"):
        answer = browser.get(f"{open_service.url}/sign-in/openid/callback?{query}", timeout=30)
        assert answer.status_code == 403


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"email": "maria@evil.example"}, "not allowed here"),
        ({"email": "maria@evil.example.org"}, "not allowed here"),
        ({"email": "maria@example.org@evil.example"}, "not allowed here"),
        ({"email_verified": False}, "has not verified"),
        ({"email_verified": "true"}, "has not verified"),
        ({"email": None}, "has not verified"),
    ],
)
def test_only_the_domains_named_are_let_in(
    open_service: ServiceProcess,
    idp: Provider,
    person: dict[str, Any],
    claims: dict[str, Any],
    said: str,
) -> None:
    idp.next(**person | claims)
    _, page = sign_in(open_service)
    assert page.status_code == 403
    assert said in page.text


def test_an_account_is_not_taken_over_by_its_name(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any]
) -> None:
    user = make_user(open_service, {"default": "owner"})
    idp.next(**person | {"email": user.name.upper()})
    stranger, page = sign_in(open_service)
    assert page.status_code == 403
    assert "sign in with your password" in page.text
    assert not is_in(open_service, stranger)

    browser = browser_of(open_service, user.name)
    account = f"{open_service.url}/account/openid"
    crossing = {"Sec-Fetch-Site": "cross-site"}
    assert browser.get(account, headers=crossing, timeout=30).status_code == 403
    assert browser.get(account, timeout=30).ok  # there and back
    _, page = sign_in(open_service, target="/account")
    assert user.name in page.text
    assert "You are an owner" in page.text

    another = make_user(open_service, {"default": "owner"})  # whose is it?
    refused = browser_of(open_service, another.name).get(account, timeout=30)
    assert refused.status_code == 403
    assert "already connected" in refused.text


def test_an_invitation_to_a_name_keeps_out_no_one_whose_name_it_is(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any]
) -> None:
    name = str(person["email"])
    host = make_user(open_service, {"default": "owner"})
    who = Caller(host.name, "default", "owner", host.id, False, "192.0.2.1")
    _, code = members.invite(open_service.engine, who, name, "member")
    form = {"code": code, "password": PASSWORD}
    impostor = requests.Session()
    assert impostor.post(f"{open_service.url}/invitation", data=form, timeout=30).ok
    assert is_in(open_service, impostor)

    idp.next(**person)
    _, page = sign_in(open_service, target="/account")
    assert f"{name} (127.0.0.1)" in page.text
    assert "You are a viewer of the workspace default" in words(
        page.text
    )  # and not what was invited
    invited, known = (users.find(open_service.engine, n) for n in (name, f"{name} (127.0.0.1)"))
    assert invited is not None
    assert known is not None
    assert invited.id != known.id
    _, again = sign_in(open_service, target="/account")
    assert f"{name} (127.0.0.1)" in again.text


def test_who_signs_in_again_is_asked_by_the_provider_who_they_are(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any]
) -> None:
    idp.next(**person)
    browser, _ = sign_in(open_service)
    idp.next(**person, auth_time=round(time.time()))
    user = users.find(open_service.engine, str(person["email"]))
    assert user is not None
    with writing(open_service.engine) as connection:
        users.give_role(connection, user.id, "default", "owner", actor="test", address=None)

    def act() -> requests.Response:
        return browser.post(
            f"{open_service.url}/settings/tokens",
            data={"scope": "admin"},
            headers={"Referer": f"{open_service.url}/settings/tokens"},
            timeout=30,
        )

    # The provider may have let in whoever found this browser.
    page = act()
    assert page.status_code == 403
    assert "Sign in again" in page.text
    assert 'name="password"' not in page.text  # they have none
    [link] = re.findall(r'href="(/sign-in/openid\?[^"]*)"', page.text)
    there = browser.get(open_service.url + unescape(link), allow_redirects=False, timeout=30)
    asked = parse_qs(urlsplit(there.headers["Location"]).query)
    assert (asked["prompt"], asked["max_age"]) == (["login"], ["0"])
    back = browser.get(there.headers["Location"], timeout=30)
    assert back.url == f"{open_service.url}/settings/tokens"
    assert act().ok
    age(open_service, browser, created_at=2 * 3600.0)
    assert act().status_code == 403
    # Else the provider decides whether it asks.
    usual = requests.get(f"{open_service.url}/sign-in/openid", allow_redirects=False, timeout=30)
    asked = parse_qs(urlsplit(usual.headers["Location"]).query)
    assert not {"prompt", "max_age"} & asked.keys()


@pytest.mark.parametrize("passed", [None, 600, True])
def test_a_sign_in_counts_as_proof_only_if_the_provider_says_so(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any], passed: Any
) -> None:
    # Whoever sits at the browser can take "prompt=login" out of the address that leads there.
    is_late = type(passed) is int
    idp.next(**person, auth_time=round(time.time()))
    browser, _ = sign_in(open_service)  # where the provider has asked just now, that is enough
    user = users.find(open_service.engine, str(person["email"]))
    assert user is not None
    with writing(open_service.engine) as connection:
        users.give_role(connection, user.id, "default", "owner", actor="test", address=None)
    form = {"scope": "admin"}
    page = f"{open_service.url}/settings/tokens"
    assert browser.post(page, data=form, timeout=30).ok

    said = {} if passed is None else {"auth_time": time.time() - passed if is_late else passed}
    idp.next(**person, **said)
    before = browser.cookies.get_dict()
    again = browser.get(f"{open_service.url}/sign-in/openid?again=1", timeout=30)
    assert again.status_code == 403
    assert "did not confirm that you have just proved your identity" in again.text
    assert browser.cookies.get_dict() == before  # the session is as it was
    another, _ = sign_in(open_service)
    assert is_in(open_service, another)
    assert another.post(page, data=form, timeout=30).status_code == 403


def test_only_who_began_it_connects_their_account(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any]
) -> None:
    first, second = (make_user(open_service, {"default": "owner"}) for _ in range(2))
    browser = browser_of(open_service, first.name)
    idp.next(**person)
    there = browser.get(
        f"{open_service.url}/account/openid", allow_redirects=False, timeout=30
    ).headers["Location"]
    back = browser.get(there, allow_redirects=False, timeout=30).headers["Location"]
    form = {"name": second.name, "password": PASSWORD}  # meanwhile, at the same machine
    assert browser.post(f"{open_service.url}/sign-in", data=form, timeout=30).ok
    assert browser.get(back, timeout=30).status_code == 403
    _, page = sign_in(open_service, target="/account")  # as someone new
    assert first.name not in page.text


def test_an_account_is_connected_only_after_a_fresh_sign_in(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any]
) -> None:
    # Who finds an open browser could sign in at the provider as themselves, and be its user here.
    user = make_user(open_service, {"default": "owner"})
    browser = browser_of(open_service, user.name)
    idp.next(**person)

    def connect() -> requests.Response:
        url = f"{open_service.url}/account/openid"
        return browser.get(url, allow_redirects=False, timeout=30)

    age(open_service, browser, created_at=2 * 3600.0)
    refused = connect()
    assert refused.status_code == 403
    assert "needs a sign-in within the last hour" in refused.text
    with open_service.engine.connect() as connection:
        assert connection.execute(select(schema.openid_attempt)).all() == []  # it led nowhere
    form = {"name": user.name, "password": PASSWORD}
    assert browser.post(f"{open_service.url}/sign-in", data=form, timeout=30).ok
    assert connect().status_code == 303


def test_who_has_no_password_gets_in_by_none(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any]
) -> None:
    idp.next(**person)
    _, page = sign_in(open_service, target="/account")
    assert "Old password" not in page.text
    assert "This account is connected" in page.text
    for password in ("", "anything at all"):
        form = {"name": person["email"], "password": password}
        answer = requests.post(f"{open_service.url}/sign-in", data=form, timeout=30)
        assert answer.status_code == 403


def test_who_is_disabled_or_removed_is_not_let_in(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any]
) -> None:
    idp.next(**person)
    browser, _ = sign_in(open_service)
    user = users.find(open_service.engine, str(person["email"]))
    assert user is not None
    users.set_disabled(open_service.engine, user, True)
    assert not is_in(open_service, browser)
    _, page = sign_in(open_service)
    assert (page.status_code, "is disabled" in page.text) == (403, True)
    users.remove(open_service.engine, user)
    assert is_in(open_service, sign_in(open_service)[0])  # as someone new


def test_a_claim_decides_on_the_role_at_each_sign_in(
    tmp_path: Path,
    new_database: NewDatabase,
    idp: Provider,
    secret: Path,
    person: dict[str, Any],
) -> None:
    with ServiceProcess(
        tmp_path / "data",
        database_url=new_database(),
        oidc_issuer=idp.issuer,
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=secret,
        oidc_workspace="lab",
        oidc_roles=("data=member", "cn=admins,dc=x=owner"),
    ) as service:
        for groups, role in (
            (["other", "data"], "a member"),
            (["data", "cn=admins,dc=x"], "an owner"),
            ("data", "a member"),
        ):
            idp.next(**person, groups=groups)
            _, page = sign_in(service, target="/account")
            assert f"You are {role} of the workspace lab" in words(page.text)
        idp.next(**person, groups=["other"])
        _, page = sign_in(service)
        assert page.status_code == 403
        user = users.find(service.engine, str(person["email"]))
        assert user is not None
        assert users.roles_of(service.engine, user.id) == {}
        stranger = person | {"sub": "stranger", "email": "s@example.org"}
        idp.next(**stranger, groups=[])
        _, page = sign_in(service)
        assert "no account here yet" in page.text

        owner = Caller("link", "office", "owner", None, False, "192.0.2.1")
        with writing(service.engine) as connection:
            make_workspace(connection, "office")
        for who in (stranger, person):  # who is new, and who was taken out
            _, code = members.invite(service.engine, owner, str(who["email"]), "viewer")
            link = members.link("", code)
            idp.next(**who, groups=[])
            browser, page = sign_in(service, target=link)
            assert page.url == f"{service.url}/"
            account = browser.get(f"{service.url}/account", timeout=30).text
            assert "You are a viewer of the workspace office" in words(account)


def test_a_provider_that_is_away_is_said(local_service: ServiceProcess, tmp_path: Path) -> None:
    assert requests.get(f"{local_service.url}/sign-in/openid", timeout=30).status_code == 404
    assert "single sign-on" not in requests.get(f"{local_service.url}/sign-in", timeout=30).text
    with ServiceProcess(
        tmp_path / "away", oidc_issuer=local_service.url, oidc_client_id="x"
    ) as service:
        answer = requests.get(f"{service.url}/sign-in/openid", timeout=30)
        assert answer.status_code == 502
        assert "cannot be reached" in answer.text


def test_another_site_uses_up_no_ones_places(
    open_service: ServiceProcess, idp: Provider, person: dict[str, Any]
) -> None:
    url = f"{open_service.url}/sign-in/openid"
    for headers in (
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "image"},
    ):
        answer = requests.get(url, headers=headers, allow_redirects=False, timeout=30)
        assert answer.status_code == 403
        assert "Sign in with the provider" in words(answer.text)
    with open_service.engine.connect() as connection:
        assert connection.execute(select(schema.openid_attempt)).first() is None
    own = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "document"}
    assert requests.get(url, headers=own, allow_redirects=False, timeout=30).status_code == 303
    idp.next(**person)
    assert is_in(open_service, sign_in(open_service)[0])


@pytest.mark.slow
def test_a_provider_that_hangs_takes_nothing_else_along(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=64) as hanging,
        ServiceProcess(
            tmp_path,
            threads=4,
            oidc_issuer=f"http://127.0.0.1:{hanging.getsockname()[1]}",
            oidc_client_id="x",
        ) as service,
        ThreadPoolExecutor(24) as pool,
    ):
        begun = [
            pool.submit(requests.get, f"{service.url}/sign-in/openid", timeout=300)
            for _ in range(24)
        ]
        while not all(one.done() for one in begun):
            assert requests.get(f"{service.url}/healthz", timeout=30).ok
        assert {one.result().status_code for one in begun} == {502}
        # It was asked once, and who could not be sent there has their place back.
        hanging.settimeout(0)
        hanging.accept()[0].close()
        with pytest.raises(BlockingIOError):
            hanging.accept()
        with service.engine.connect() as connection:
            assert connection.execute(select(schema.openid_attempt)).first() is None


@pytest.mark.parametrize("how", ["endless", "drip", "drip of a head"])
def test_no_more_is_taken_of_an_answer_than_there_is_room_and_time_for(how: str) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"\r\n" * (how != "drip of a head"))
        with suppress(OSError):
            while True:
                connection.sendall(b"x" * (65536 if how == "endless" else 1))
                time.sleep(0 if how == "endless" else 0.1)

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                answer(server.accept()[0])

        threading.Thread(target=serve, daemon=True).start()
        issuer = f"http://127.0.0.1:{server.getsockname()[1]}"
        provider = openid.Provider(issuer, "us", "", "http://127.0.0.1/back")
        with pytest.raises(OpenIDError):
            provider.address(state="a", nonce="b", verifier="c" * 43)
        # Nothing goes on reading.
        assert wait_until(
            lambda: not any(one.name == "daskscope-openid" for one in threading.enumerate())
        )


@pytest.mark.parametrize("trusted", [True, False])
def test_a_provider_by_https_is_the_one_that_its_certificate_names(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(tmp_path)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    if trusted:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificates.authority))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.cert, certificates.key)
    with socket.create_server(("127.0.0.1", 0)) as server:
        issuer = f"https://127.0.0.1:{server.getsockname()[1]}"
        document = {"issuer": issuer, "authorization_endpoint": f"{issuer}/authorize"}
        answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + json.dumps(document).encode()

        def serve() -> None:
            with suppress(OSError), context.wrap_socket(server.accept()[0], True) as peer:
                peer.recv(65536)
                peer.sendall(answer)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        provider = openid.Provider(issuer, "us", "", "https://127.0.0.1/back")
        if trusted:
            url = provider.address(state="a", nonce="b", verifier="c" * 43)
            assert url.startswith(f"{issuer}/authorize?")
        else:
            with pytest.raises(OpenIDError, match="SSLError"):
                provider.address(state="a", nonce="b", verifier="c" * 43)
        serving.join(PATIENCE)


@pytest.mark.parametrize("keys", [b"{}", b'{"keys": 7}', b'{"keys": ' + b"[" * 100_000])
def test_keys_that_are_none_are_no_valid_answer(keys: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        issuer = f"http://127.0.0.1:{server.getsockname()[1]}"
        document = json.dumps({"issuer": issuer, "jwks_uri": f"{issuer}/keys"}).encode()

        def serve() -> None:
            for body in (document, keys):
                with server.accept()[0] as connection:
                    connection.recv(65536)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body)

        threading.Thread(target=serve, daemon=True).start()
        provider = openid.Provider(issuer, "us", "", "http://127.0.0.1/back")
        with pytest.raises(OpenIDError, match="answer is not valid"):
            provider._claims("a.b.c", "nonce", None)


def test_a_provider_that_answers_with_an_error_is_asked_again() -> None:
    provider = openid.Provider("https://idp.example", "id", "secret", "https://x/callback")
    broken = requests.Response()
    broken.status_code = 500

    def ask(error: Exception, says: str) -> None:
        def fail() -> None:
            raise error

        with pytest.raises(OpenIDError, match=says):
            provider._ask(fail)

    ask(requests.HTTPError(response=broken), "answer is not valid: HTTPError")
    ask(TypeError("rubbish"), "answer is not valid: TypeError")
    assert provider._ask(lambda: "an answer") == "an answer"
    ask(requests.ReadTimeout(), "did not answer: ReadTimeout")
    with pytest.raises(OpenIDError, match="a moment ago"):
        provider._ask(lambda: "an answer")


def test_settings_that_make_no_sense_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="DASKSCOPE_OIDC_CLIENT_ID"):
        Settings(oidc_issuer="https://id.example")
    with pytest.raises(ConfigurationError, match="VALUE=owner"):
        Settings(oidc_roles=("data=king",))
    missing = tmp_path / "missing"
    options = ["--oidc-issuer", "https://id.example", "--oidc-client-id", "x"]
    done = daskscope(
        "serve", *options, "--oidc-client-secret-file", missing, "--data-dir", tmp_path
    )
    assert done.returncode == 1
    assert "DASKSCOPE_OIDC_CLIENT_SECRET_FILE" in done.stderr
