"""Sign-in by OpenID Connect under attack: forged tokens, odd answers, planted sessions."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import Flask
from sqlalchemy import func, select
from werkzeug.test import TestResponse

from daskscope_service.accounts import members, users
from daskscope_service.accounts.caller import Caller
from daskscope_service.application import close_app, create_app
from daskscope_service.db import schema
from daskscope_service.services import services
from daskscope_service.settings import Settings
from tests import sqlite_template
from tests.oidc_provider import CLIENT_ID, SECRET, Provider, provider

pytestmark = pytest.mark.sqlite

OWN = "https://monitor.example"


@pytest.fixture(scope="module")
def idp() -> Iterator[Provider]:
    with provider() as running:
        yield running


@pytest.fixture(scope="module")
def inner() -> Iterator[Provider]:
    """A server within the service's own network."""
    with provider() as running:
        yield running


def settings_for(idp: Provider, folder: Path, **more: Any) -> Settings:
    sqlite_template.copy_to(folder)
    return Settings(
        data_dir=folder,
        public_url=OWN,
        oidc_issuer=idp.issuer,
        oidc_client_id=CLIENT_ID,
        oidc_client_secret=SECRET,
        **{"oidc_role": "viewer"} | more,
    )


@pytest.fixture(scope="module")
def app(idp: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    made = create_app(settings_for(idp, tmp_path_factory.mktemp("attacked")))
    yield made
    close_app(made)


@pytest.fixture
def fresh(idp: Provider, tmp_path: Path) -> Iterator[Flask]:
    """A service that has not asked the provider yet."""
    made = create_app(settings_for(idp, tmp_path))
    yield made
    close_app(made)


@pytest.fixture
def person() -> dict[str, Any]:
    id = uuid.uuid4().hex[:8]
    return {"sub": id, "email": f"maria-{id}@example.org", "email_verified": True, "name": "Maria"}


def back(browser: Any, target: str = "/") -> str:
    """Go to the provider, and return the path to which it sends the browser back."""
    there = browser.get("/sign-in/openid", query_string={"next": target}, base_url=OWN)
    assert there.status_code == 303, there.text
    answer = requests.get(there.headers["Location"], allow_redirects=False, timeout=30)
    return answer.headers["Location"].removeprefix(OWN)


def sign_in(app: Flask) -> TestResponse:
    browser = app.test_client()
    return browser.get(back(browser), base_url=OWN)


def signed_in(answer: TestResponse) -> bool:
    return any("daskscope_session=" in one for one in answer.headers.getlist("Set-Cookie"))


def users_here(app: Flask) -> int:
    with app.app_context(), services().engine.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(schema.user)).scalar_one())


def refuses(app: Flask, says: str = "This sign-in failed or expired") -> None:
    """See that the next sign-in is refused in words, and leaves no user behind."""
    before = users_here(app)
    answer = sign_in(app)
    assert (answer.status_code, signed_in(answer)) == (403, False), answer.text[:500]
    assert says in answer.text
    assert users_here(app) == before


@pytest.mark.parametrize(
    "wrong",
    [
        *("public key as a secret", "own key", "future"),
        *("no iss", "no sub", "no aud", "no exp", "no iat", "no nonce"),
    ],
)
def test_a_token_that_is_forged_or_incomplete_lets_no_one_in(
    app: Flask, idp: Provider, person: dict[str, Any], wrong: str
) -> None:
    idp.next(wrong=wrong, **person)
    refuses(app)


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": 7},
        {"sub": True},
        {"sub": ["7"]},
        {"sub": {"id": "7"}},
        {"sub": ""},
        {"sub": "x" * 1_000},
        {"sub": "x" * 700_000},
        {"sub": "seven\x00"},
        {"sub": "seven\ud800"},
        {"sub": "seven\n"},
        {"iss": ["x"]},
        {"aud": {CLIENT_ID: 1}},
        {"aud": [[CLIENT_ID]]},
        {"aud": [CLIENT_ID, "another"]},
        {"azp": "another"},
        {"azp": ["daskscope"]},
        {"nonce": ["x"]},
        {"exp": "tomorrow"},
        {"exp": None},
        {"exp": [1]},
        {"iat": {}},
        {"nbf": 4102444800},
        {"nbf": "x"},
        {"auth_time": "now"},
        {"amr": "pwd"},
        {"at_hash": ["x"]},
        {"at_hash": 7},
        {"at_hash": "\u00e9"},
    ],
    ids=lambda claims: f"{next(iter(claims))}-{str(next(iter(claims.values())))[:12]!a}",
)
def test_claims_of_odd_kinds_are_no_valid_answer(
    app: Flask, idp: Provider, person: dict[str, Any], claims: dict[str, Any]
) -> None:
    idp.next(**person | claims)
    refuses(app)


@pytest.mark.parametrize("value", [7, True, ["Maria"], {"a": 1}, "", "x" * 700_000, "M\x00\ud800a"])
@pytest.mark.parametrize("claim", ["name", "preferred_username", "email", "email_verified"])
def test_what_else_the_provider_says_never_breaks_a_sign_in(
    app: Flask, idp: Provider, person: dict[str, Any], claim: str, value: Any
) -> None:
    idp.next(**person | {"name": None, claim: value})
    answer = sign_in(app)
    assert answer.status_code in (303, 403)
    if answer.status_code == 303:
        with app.app_context(), services().engine.connect() as connection:
            for row in connection.execute(select(schema.user.c.name, schema.user.c.display_name)):
                assert all(text.isprintable() and 0 < len(text) <= 200 for text in row)


@pytest.mark.parametrize("email", ["maria@STRASSE.example", "maria@straße.example"])
def test_a_domain_that_looks_like_one_that_is_let_in_is_another(
    idp: Provider, person: dict[str, Any], tmp_path: Path, email: str
) -> None:
    app = create_app(settings_for(idp, tmp_path, oidc_domains=("Strasse.example",)))
    try:
        idp.next(**person | {"email": email})
        if email.isascii():
            assert signed_in(sign_in(app))
        else:
            refuses(app, "not allowed here")
    finally:
        close_app(app)


@pytest.mark.parametrize("claimed", [None, True, 1.0, {"None": 1}, [None, True], [["None"]]])
def test_a_rule_is_met_by_no_text_that_python_makes(
    idp: Provider, person: dict[str, Any], tmp_path: Path, claimed: Any
) -> None:
    rules = ("None=owner", "True=owner", "1.0=owner", "{'None': 1}=owner", "['None']=owner")
    app = create_app(settings_for(idp, tmp_path, oidc_role="none", oidc_roles=rules))
    try:
        idp.next(**person, groups=claimed)
        refuses(app, "You have no account here yet")
    finally:
        close_app(app)


@pytest.mark.parametrize("milliseconds", [False, True])
def test_a_proof_of_identity_that_is_yet_to_come_is_none(
    app: Flask, idp: Provider, person: dict[str, Any], milliseconds: bool
) -> None:
    idp.next(**person, auth_time=time.time() * (1000 if milliseconds else 1))
    browser = app.test_client()
    there = browser.get("/sign-in/openid?again=1", base_url=OWN)
    url = there.headers["Location"]
    location = requests.get(url, allow_redirects=False, timeout=30).headers["Location"]
    answer = browser.get(location.removeprefix(OWN), base_url=OWN)
    assert answer.status_code == (403 if milliseconds else 303)


DISCOVERY = "/.well-known/openid-configuration"


def _documents(idp: Provider) -> dict[str, Any]:
    right = {
        "issuer": idp.issuer,
        "authorization_endpoint": f"{idp.issuer}/authorize",
        "token_endpoint": f"{idp.issuer}/token",
        "jwks_uri": f"{idp.issuer}/keys",
    }
    return {
        "a list": [right],
        "another issuer": right | {"issuer": "https://elsewhere.example"},
        "a huge issuer": right | {"issuer": "x" * 900_000},
        "an issuer of another kind": right | {"issuer": {"a": 1}},
        "no page": {"issuer": idp.issuer},
        "a page of another kind": right | {"authorization_endpoint": 7},
        "a page that is no address": right | {"authorization_endpoint": "https://[x"},
        "a page without TLS": right | {"authorization_endpoint": "http://elsewhere.example/"},
        "a page that is a script": right | {"authorization_endpoint": "javascript:alert(1)"},
        "a page with line ends": right | {"authorization_endpoint": "https://a.example/\r\nX: 1"},
        "methods of another kind": right | {"token_endpoint_auth_methods_supported": 7},
    }


@pytest.mark.parametrize("which", list(_documents(Provider(""))))
def test_a_document_of_the_providers_that_is_odd_sends_no_one_away(
    fresh: Flask, idp: Provider, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    document = _documents(idp)[which]
    idp.next(answers={DISCOVERY: {"body": json.dumps(document)}})
    answer = fresh.test_client().get("/sign-in/openid", base_url=OWN)
    location = answer.headers.get("Location", "")
    if which == "methods of another kind":  # the standard's default is used
        assert location.startswith(f"{idp.issuer}/authorize?")
        return
    assert (answer.status_code, location) == (502, "")
    assert max(len(record.getMessage()) for record in caplog.records) < 1_000


@pytest.mark.parametrize("path", [DISCOVERY, "/token", "/keys"])
@pytest.mark.parametrize("status", [302, 307, 308])
def test_the_provider_leads_the_service_nowhere_else(
    fresh: Flask, idp: Provider, inner: Provider, person: dict[str, Any], path: str, status: int
) -> None:
    # The secret of the client, and the service's own network, are not for whoever it names.
    idp.next(**person)
    browser = fresh.test_client()
    where = "" if path == DISCOVERY else back(browser)
    away = {"status": status, "headers": {"Location": f"{inner.issuer}{path}"}}
    idp.next(answers={path: away}, **person)
    if path == DISCOVERY:
        assert browser.get("/sign-in/openid", base_url=OWN).status_code == 502
    else:
        answer = browser.get(where, base_url=OWN)
        assert (answer.status_code, signed_in(answer)) == (403, False)
    assert inner.asked() == []


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "7",
        '"x"',
        "{}",
        '{"id_token": 7}',
        '{"id_token": ["a"]}',
        '{"id_token": ""}',
        '{"id_token": "a.b"}',
        '{"id_token": "a.b.c.d.e"}',
        '{"id_token": "' + "x" * 900_000 + '"}',
        "[" * 200_000,
        '{"error": "' + "x" * 900_000 + '"}',
        '{"error": "x\\u0000\\ud800\\n"}',
        '{"error": {"a": [1]}}',
        '{"error": 7, "error_description": ["x"]}',
        # A header that nests: {"alg":[[[[…
        '{"id_token": "' + "W1tb" * 200_000 + '.e30.x"}',
        '{"id_token": "eyJhbGciOlsiUlMyNTYiXX0.e30.x"}',  # "alg": ["RS256"]
        '{"id_token": "eyJhbGciOiJSUzI1NiIsImtpZCI6W119.e30.x"}',  # "kid": []
        '{"id_token": "eyJhbGciOiJSUzI1NiIsImtpZCI6e319.e30.x"}',  # "kid": {}
        '{"id_token": "eyJhbGciOiJSUzI1NiIsImNyaXQiOjd9.e30.x"}',  # "crit": 7
        '{"id_token": "W10.e30.x"}',
        '{"id_token": "bnVsbA.bnVsbA.x"}',
    ],
    ids=lambda body: repr(body[:30]),
)
def test_an_odd_answer_to_the_code_lets_no_one_in(
    app: Flask, idp: Provider, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = {"/token": {"body": body, "headers": {"Content-Type": "application/json"}}}
    idp.next(sub="1", answers=answers)
    refuses(app)
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert max(len(record.getMessage()) for record in caplog.records) < 1_000
    with app.app_context(), services().engine.connect() as connection:
        for detail in connection.execute(select(schema.audit_entry.c.detail)).scalars():
            assert len(detail) <= 300
            assert "\x00" not in detail
            detail.encode()


@pytest.mark.parametrize("times", [1, 2])
def test_an_answer_that_unpacks_to_too_much_is_not_read_to_its_end(
    fresh: Flask, idp: Provider, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": ", ".join(["gzip"] * times)}
    answer = {"body": " " * 3_000_000 + "{}", "headers": headers, "gzip": times}
    idp.next(sub="1", answers={"/token": answer})
    refuses(fresh)
    assert "the provider did not answer" in caplog.text


def test_a_session_that_was_there_before_is_not_the_one_after(
    app: Flask, idp: Provider, person: dict[str, Any]
) -> None:
    idp.next(**person)
    name = "__Host-daskscope_session"
    attacker, victim = app.test_client(), app.test_client()
    attacker.get(back(attacker), base_url=OWN)
    cookie = attacker.get_cookie(name, domain="monitor.example")
    assert cookie is not None
    victim.set_cookie(name, cookie.value, domain="monitor.example", secure=True)
    idp.next(**person | {"sub": "the victim", "email": "victim@example.org"})
    victim.get(back(victim), base_url=OWN)
    after = victim.get_cookie(name, domain="monitor.example")
    assert after is not None
    assert after.value != cookie.value
    # The planted one has ended, so it leads to neither.
    assert attacker.get("/account", base_url=OWN).status_code == 303


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "/\t/evil.example",
        "javascript:x",
    ],
)
def test_a_sign_in_ends_on_this_site(
    app: Flask, idp: Provider, person: dict[str, Any], target: str
) -> None:
    idp.next(**person)
    browser = app.test_client()
    answer = browser.get(back(browser, target), base_url=OWN)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")


def test_names_that_someone_else_has_taken_keep_no_one_out(
    app: Flask, idp: Provider, person: dict[str, Any]
) -> None:
    host = "127.0.0.1"
    with app.app_context():
        engine = services().engine
        owner = Caller("owner", "default", "owner", None, False, "192.0.2.1")
        for name in (person["email"], f"{person['email']} ({host})", f"{person['sub']} ({host})"):
            _, code = members.invite(engine, owner, name, "viewer")
            members.accept_as_new(
                engine, code, "a long password of the impostor", address="192.0.2.1"
            )
        before = len(users.list_all(engine))
        for verified in (True, False):
            idp.next(**person | {"email_verified": verified, "sub": f"{person['sub']}"})
            assert signed_in(sign_in(app))
        assert len(users.list_all(engine)) == before + 1
        idp.next(**person | {"email_verified": False, "sub": "another"})
        assert signed_in(sign_in(app))
