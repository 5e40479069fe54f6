"""Why there is no answer, how long one asks to wait, and that all requests end."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path

import pytest
import requests
import trustme

from daskscope.delivery import http_errors
from daskscope.delivery.http import Session, asked_to_wait, watched
from tests.exporter.recorder import Recorder

Talk = Callable[[socket.socket], None]


@contextlib.contextmanager
def server(talk: Talk) -> Iterator[int]:
    """Serve connections one by one; return the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):  # it is closed
                while True:
                    connection, _ = listening.accept()
                    with connection, contextlib.suppress(OSError):
                        talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def trouble(url: str) -> str:
    """Return what is said of a request that is not answered."""
    with watched(Session(overdue=60)) as session:
        with pytest.raises(requests.RequestException) as error:
            session.post(url, data=b"x", timeout=20)
    return http_errors.why(error.value)[1]


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "authority.pem"))
    return authority


def context(
    authority: trustme.CA, host: str = "localhost", not_after: datetime | None = None
) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host, not_after=not_after).configure_cert(context)
    return context


def test_https_where_http_is_spoken_is_told_as_that(recorder: Recorder) -> None:
    told = trouble(recorder.url.replace("http://", "https://"))
    assert "does not speak TLS" in told
    assert "http://" in told
    assert "REQUESTS_CA_BUNDLE" not in told


def test_a_certificate_for_another_name_is_told_as_that(authority: trustme.CA) -> None:
    with Recorder(context(authority, "elsewhere.example")) as recorder:
        told = trouble(recorder.url)
    assert "is for another name" in told
    assert "daskscope.endpoint" in told
    assert "REQUESTS_CA_BUNDLE" not in told


def test_a_certificate_that_has_expired_is_told_as_that(authority: trustme.CA) -> None:
    with Recorder(context(authority, not_after=datetime.now(UTC) - timedelta(days=1))) as recorder:
        told = trouble(recorder.url)
    assert "certificate has expired" in told
    assert "renew it" in told
    assert "REQUESTS_CA_BUNDLE" not in told


def test_a_certificate_of_another_authority_is_told_as_that(authority: trustme.CA) -> None:
    with Recorder(context(trustme.CA())) as recorder:
        told = trouble(recorder.url)
    assert "is not trusted" in told
    assert "REQUESTS_CA_BUNDLE" in told


def test_a_file_without_an_authority_is_told_as_that(
    authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.pem").write_text("none\n")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "empty.pem"))
    with Recorder(context(authority)) as recorder:
        told = trouble(recorder.url)
    assert "contains no certificate; check REQUESTS_CA_BUNDLE" in told


def test_a_service_that_ends_tls_without_a_word_is_told_as_that(authority: trustme.CA) -> None:
    def end(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass

    with server(end) as port:
        assert "the TLS handshake failed (the other side closed the connection" in trouble(
            f"https://localhost:{port}"
        )


def test_a_service_that_wants_a_client_certificate_is_told_as_that(authority: trustme.CA) -> None:
    wants_one = context(authority)
    wants_one.verify_mode = ssl.CERT_REQUIRED

    def refuse(connection: socket.socket) -> None:
        with wants_one.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        ) as secure:
            with contextlib.suppress(ssl.SSLError):
                secure.do_handshake()
            # What is not read would reset the connection, and the reason with it.
            secure.shutdown(socket.SHUT_WR)
            while socket.socket.recv(secure, 1 << 16):
                pass

    with server(refuse) as port:
        told = trouble(f"https://localhost:{port}")
    assert "requires a client certificate" in told


# --- proxies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proxy", "said"),
    [
        ("http://", "the proxy's address is invalid"),
        ("ftp://127.0.0.1:9", "the proxy's address is invalid"),
        ("http://ada:secret@127.0.0.1:9", "the proxy refuses the request"),
    ],
)
def test_a_proxy_that_cannot_be_one_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch, proxy: str, said: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    told = trouble("http://service.invalid")
    assert said in told
    assert "check HTTP_PROXY" in told
    assert "secret" not in told


def test_a_socks_proxy_without_its_package_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("requests.adapters.SOCKSProxyManager", _without_pysocks)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    told = trouble("http://service.invalid")
    assert "PySocks" in told
    assert "check HTTP_PROXY" in told


def _without_pysocks(*args: object, **kwargs: object) -> None:
    # As requests has it where that is missing.
    raise requests.exceptions.InvalidSchema("Missing dependencies for SOCKS support.")


def test_a_proxy_whose_leave_drips_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while not over.wait(0.05):
            connection.sendall(b"x")

    with server(drip) as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        try:
            with watched(Session(overdue=0.3)) as session, pytest.raises(requests.ReadTimeout):
                session.get("https://service.invalid", timeout=20)
        finally:
            over.set()


# --- Retry-After ----------------------------------------------------------------------------------


@pytest.mark.parametrize("own_date", ["", "yesterday", "now"])
def test_a_date_to_come_again_is_read_whatever_the_other_date_is(own_date: str) -> None:
    response = requests.Response()
    response.headers["Retry-After"] = formatdate(time.time() + 300, usegmt=True)
    response.headers["Date"] = own_date.replace("now", formatdate(usegmt=True))
    assert 200 < asked_to_wait(response) <= 301


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the process's time zone cannot be set here")
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_a_date_whose_zone_is_not_told_is_utc(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    response = requests.Response()
    response.headers["Retry-After"] = formatdate(time.time() + 300)
    assert response.headers["Retry-After"].endswith("-0000")
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        waits = asked_to_wait(response)
    time.tzset()
    assert 200 < waits <= 301


@pytest.mark.parametrize("asked", ["soon", "", "-1", "nan", "Mon, 99 Foo 99999 00:00:00 GMT"])
def test_what_asks_for_no_time_is_not_waited_for(asked: str) -> None:
    response = requests.Response()
    response.headers["Retry-After"] = asked
    assert asked_to_wait(response) == 0
