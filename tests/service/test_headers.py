"""What answers say of how they may be kept and shown, and which hosts are answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask

from daskscope_service.accounts import sessions, sign_in
from daskscope_service.application import close_app, create_app
from daskscope_service.services import services
from daskscope_service.settings import Settings
from tests import sqlite_template

OWN = "https://monitor.example"


def make(folder: Path, **settings: str) -> Flask:
    values = Settings(data_dir=folder, **settings)  # type: ignore[arg-type]
    sqlite_template.copy_to(folder)
    return create_app(values)


@pytest.fixture(scope="module")
def by_https(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    app = make(tmp_path_factory.mktemp("https"), public_url=OWN)
    yield app
    close_app(app)


@pytest.fixture(scope="module")
def in_clear(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flask]:
    app = make(tmp_path_factory.mktemp("clear"))
    yield app
    close_app(app)


@pytest.mark.parametrize("path", ["/sign-in", "/", "/clusters.csv", "/nope", "/api/v1/clusters"])
def test_nothing_of_a_users_is_kept_by_browsers_or_proxies(by_https: Flask, path: str) -> None:
    answer = by_https.test_client().get(path, base_url=OWN)
    assert answer.headers["Cache-Control"] == "private, no-store"


def test_what_is_the_same_for_all_is_kept(by_https: Flask) -> None:
    page = by_https.test_client().get("/sign-in", base_url=OWN).text
    style = page.partition('rel="stylesheet" href="')[2].partition('"')[0]
    answer = by_https.test_client().get(style, base_url=OWN)
    assert answer.headers["Cache-Control"].startswith("public")


def test_other_sites_are_kept_out(by_https: Flask, in_clear: Flask) -> None:
    for app in (by_https, in_clear):
        headers = app.test_client().get("/sign-in", base_url=app.config["SETTINGS"].url).headers
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "camera=()" in headers["Permissions-Policy"]
        # A browser remembers it for the whole host, whatever else is served there in clear.
        assert ("Strict-Transport-Security" in headers) == (app is by_https)


def test_by_https_no_other_host_can_plant_a_session(by_https: Flask, in_clear: Flask) -> None:
    for app, name in ((by_https, f"__Host-{sessions.COOKIE}"), (in_clear, sessions.COOKIE)):
        own = app.config["SETTINGS"].url
        engine = services(app).engine
        client = app.test_client()
        link = sign_in.make_link(engine, own, "default")
        code = {"code": link.partition("code=")[2]}
        answer = client.post("/sign-in", data=code, base_url=own)
        (cookie,) = answer.headers.getlist("Set-Cookie")
        assert cookie.startswith(f"{name}=")
        assert ("; Secure" in cookie) == (app is by_https)
        assert "; Path=/" in cookie
        assert "Domain" not in cookie
        assert client.get("/", base_url=own).status_code == 200
        planted = app.test_client()
        session = cookie.partition("=")[2].partition(";")[0]
        planted.set_cookie(sessions.COOKIE, session, domain="monitor.example")
        if app is by_https:
            assert planted.get("/", base_url=own).status_code == 303
        (gone,) = client.post("/sign-out", base_url=own).headers.getlist("Set-Cookie")
        assert gone.startswith(f"{name}=;")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("monitor.example", 200),
        ("MONITOR.example:443", 200),
        ("127.0.0.1:8690", 421),
        ("evil.example", 421),
        ("monitor.example,evil.example", 400),
        ("", 400),
    ],
)
def test_pages_are_for_the_host_of_the_public_url_alone(
    by_https: Flask, host: str, status: int
) -> None:
    client = by_https.test_client(use_cookies=False)
    assert client.get("/sign-in", headers={"Host": host}).status_code == status
    shown = {"Host": host, "Cookie": "a=1"}
    assert client.get("/api/v1/openapi.json", headers=shown).status_code == status
    # Programs, and those that ask whether it lives, use the addresses of the network.
    for path in ("/healthz", "/readyz", "/api/v1/openapi.json"):
        assert client.get(path, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (OWN, 303),
        (f"{OWN}:443", 303),
        ("http://monitor.example", 403),  # what anyone on the way can have put there
        ("https://monitor.example:8443", 403),
        ("https://", 403),
        ("http://[", 403),
    ],
)
def test_of_old_browsers_only_a_page_of_the_public_url_may_change_something(
    by_https: Flask, origin: str, status: int
) -> None:
    client = by_https.test_client()
    answer = client.post("/sign-out", base_url=OWN, headers={"Origin": origin})
    assert answer.status_code == status


def test_without_a_public_url_any_host_is_answered_that_is_one(in_clear: Flask) -> None:
    client = in_clear.test_client()
    assert client.get("/sign-in", headers={"Host": "tunnel.example:8690"}).status_code == 200
    assert client.get("/sign-in", headers={"Host": "a,b"}).status_code == 400


def test_a_header_that_is_too_long_counts_as_not_sent(in_clear: Flask) -> None:
    # Whoever reads it takes time that grows with the square of its length.
    client = in_clear.test_client()
    excludes = {"Accept": f"text/html;{' ' * 900}q=1"}
    assert client.get("/api/v1/openapi.json", headers=excludes).status_code == 406
    long = {"Accept": f"text/html;{' ' * 1_000}q=1"}
    assert client.get("/api/v1/openapi.json", headers=long).status_code == 200


@pytest.mark.parametrize("host", ["a" * 64, "a..b", "[::1", "a:b", "a" * 400, "ä.example"])
def test_what_is_no_host_is_refused_in_words(in_clear: Flask, host: str) -> None:
    answer = in_clear.test_client().get("/sign-in", environ_overrides={"HTTP_HOST": host})
    assert answer.status_code == 400
    assert "one Host header" in answer.text


@pytest.mark.parametrize("host", ["a_b:8690", "localhost", "[::1]:8690", "10.0.0.7", "a.example."])
def test_what_is_a_host_is_served(in_clear: Flask, host: str) -> None:
    answer = in_clear.test_client().get("/sign-in", environ_overrides={"HTTP_HOST": host})
    assert answer.status_code == 200
