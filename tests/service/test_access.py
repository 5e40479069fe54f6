"""Who gets in: tokens, sign-in, sessions, and requests from other sites."""

from __future__ import annotations

import http.client
import socket
import time
import uuid
from collections.abc import Iterable
from urllib.parse import urlsplit

import pytest
import requests
from sqlalchemy import Engine, select, update

from daskscope.protocol import MAX_BEAT_BYTES
from daskscope_service.accounts import access, sessions, sign_in, tokens
from daskscope_service.accounts.tokens import Scope
from daskscope_service.db import schema
from tests.patience import PATIENCE
from tests.service.beats import make_beat, make_cluster, post
from tests.service.people import follow, sign_in_by_link
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


@pytest.fixture
def workspace() -> str:
    return f"w-{uuid.uuid4().hex[:8]}"


def ask(service: ServiceProcess, token: str | None, path: str = "/clusters") -> requests.Response:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return requests.get(f"{service.url}/api/v1{path}", headers=headers, timeout=30)


def assert_refused(answer: requests.Response, status: int, *words: str) -> None:
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    for word in words:
        assert word in answer.json()["detail"]


def test_without_a_token_nothing_is_taken_or_told(shared_service: ServiceProcess) -> None:
    assert_refused(post(shared_service.url, None, make_beat()), 401, "daskscope token create")
    assert_refused(ask(shared_service, None), 401, "Authorization: Bearer")


@pytest.mark.parametrize("change", ["secret", "id", "garbage", "empty", "cut"])
def test_a_wrong_token_is_refused(shared_service: ServiceProcess, change: str) -> None:
    token = shared_service.token()
    wrong = {
        "secret": token[:-1] + ("0" if token[-1] != "0" else "1"),
        "id": token.replace(token.split("_")[1], "aaaaaaaaaa"),
        "garbage": "letmein",
        "empty": "",
        "cut": token[:-1],
    }[change]
    assert_refused(post(shared_service.url, wrong, make_beat()), 401)


def test_a_large_body_with_a_wrong_token_still_gets_its_answer(
    shared_service: ServiceProcess,
) -> None:
    # Unlike requests, http.client does not look for an answer once sending has failed.
    connection = http.client.HTTPConnection("127.0.0.1", shared_service.port, timeout=30)
    body = b"x" * (MAX_BEAT_BYTES - 1)
    connection.request("POST", "/api/v1/heartbeats", body, {"Authorization": "Bearer dsk_wrong"})
    assert connection.getresponse().status == 401
    connection.close()


@pytest.mark.parametrize(("scope", "other"), [("read", "ingest"), ("ingest", "read")])
def test_a_token_does_only_what_its_scope_says(
    shared_service: ServiceProcess, scope: Scope, other: Scope
) -> None:
    token = shared_service.token(scopes=[scope])
    beat, read = post(shared_service.url, token, make_beat()), ask(shared_service, token)
    allowed, refused = (read, beat) if scope == "read" else (beat, read)
    assert allowed.status_code == 200
    assert_refused(refused, 403, other, f"--scope {other}")
    for signal in ("metrics", "traces", "logs"):
        answer = requests.post(
            f"{shared_service.url}/v1/{signal}",
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/x-protobuf"},
            timeout=30,
        )
        assert answer.status_code == (403 if scope == "read" else 200)


def test_a_revoked_token_is_refused_at_once(shared_service: ServiceProcess, workspace: str) -> None:
    token = shared_service.token(workspace=workspace)
    assert post(shared_service.url, token, make_beat()).ok
    assert not tokens.revoke(shared_service.engine, "default", token.split("_")[1])
    assert post(shared_service.url, token, make_beat()).ok  # another workspace's is not touched
    assert tokens.revoke(shared_service.engine, workspace, token.split("_")[1])
    late = make_beat(make_cluster("late"))
    assert_refused(post(shared_service.url, token, late), 401, "revoked")
    # Its owner learns that first, and not what was wrong with what it sent.
    nothing = requests.post(
        f"{shared_service.url}/api/v1/heartbeats",
        headers={"Authorization": f"Bearer {token}"},
        timeout=30,
    )
    assert_refused(nothing, 401, "revoked")
    of = select(schema.cluster.c.id).where(schema.cluster.c.workspace == workspace)
    with shared_service.engine.connect() as connection:
        assert "late" not in connection.execute(of).scalars().all()


def test_an_expired_token_is_refused(shared_service: ServiceProcess, workspace: str) -> None:
    token = tokens.create(
        shared_service.engine, workspace=workspace, label="old", expires_at=time.time() - 1
    )
    assert_refused(post(shared_service.url, token, make_beat()), 401, "expired", "old")


def test_the_database_does_not_hold_the_secret(
    shared_service: ServiceProcess, workspace: str
) -> None:
    token = shared_service.token(workspace=workspace)
    secret = token.split("_")[2]
    with shared_service.engine.connect() as connection:
        (row,) = connection.execute(
            select(schema.token).where(schema.token.c.workspace == workspace)
        )
    assert secret not in str(row)
    assert bytes.fromhex(secret) not in row.secret_hash


def test_use_of_a_token_is_noted_but_not_for_every_request(
    shared_service: ServiceProcess, workspace: str
) -> None:
    engine = shared_service.engine
    token = shared_service.token(workspace=workspace)

    def last_used() -> float | None:
        (one,) = tokens.list_in(engine, workspace)
        return one.last_used_at

    assert last_used() is None
    post(shared_service.url, token, make_beat())
    first = last_used()
    assert first is not None
    post(shared_service.url, token, make_beat())
    assert last_used() == first
    long_ago = time.time() - 3600
    with engine.begin() as connection:
        connection.execute(
            update(schema.token)
            .where(schema.token.c.workspace == workspace)
            .values(last_used_at=long_ago)
        )
    ask(shared_service, token)  # of a beat, the process remembers that it was noted
    assert (last_used() or 0) > long_ago


def test_a_reader_sees_only_its_own_workspace(
    shared_service: ServiceProcess, workspace: str
) -> None:
    mine = shared_service.token(workspace=workspace)
    theirs = shared_service.token(workspace=f"{workspace}-2")
    beat = make_beat(make_cluster())
    post(shared_service.url, mine, beat)

    assert [c["id"] for c in ask(shared_service, mine).json()["items"]] == [beat.cluster.id]
    assert ask(shared_service, theirs).json()["items"] == []
    assert ask(shared_service, theirs, f"/clusters/{beat.cluster.id}").status_code == 404


def workspace_of(engine: Engine, session_id: str) -> str | None:
    session = sessions.find(engine, session_id)
    return None if session is None else session.workspace


def signed_in(service: ServiceProcess, workspace: str) -> requests.Session:
    session = requests.Session()
    sign_in_by_link(service, session, workspace)
    return session


def test_a_sign_in_link_opens_pages_and_reads_of_its_workspace(
    shared_service: ServiceProcess, workspace: str
) -> None:
    url = shared_service.url
    session = signed_in(shared_service, workspace)

    cookie = next(c for c in session.cookies if c.name == sessions.COOKIE)
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "Lax"
    assert not cookie.secure  # the service is reached by http
    assert session.get(url, timeout=30).ok
    assert session.get(f"{url}/api/v1/clusters", timeout=30).json()["items"] == []
    answer = session.post(f"{url}/api/v1/heartbeats", data=b"{}", timeout=30)
    assert_refused(answer, 401)  # a session sends no data


def test_the_link_that_serve_prints_works(shared_service: ServiceProcess) -> None:
    session = requests.Session()
    link = shared_service.sign_in_link
    for _ in range(2):  # to look at it does nothing: chat and mail programs do so first
        assert "Sign in" in requests.get(link, timeout=30).text
    assert not session.cookies
    assert follow(link, session).ok
    assert session.get(f"{shared_service.url}/api/v1/clusters", timeout=30).ok


def test_an_old_or_unknown_code_or_session_opens_nothing(
    shared_service: ServiceProcess, workspace: str
) -> None:
    engine, url = shared_service.engine, shared_service.url
    code = sign_in.make_link(engine, url, workspace).partition("code=")[2]
    session_id = sign_in.by_code(engine, code, address="192.0.2.1")
    assert session_id is not None
    assert workspace_of(engine, session_id) == workspace
    assert sign_in.by_code(engine, code, address="192.0.2.1") is None  # it works once
    used = requests.post(f"{url}/sign-in", data={"code": code}, timeout=30)
    assert (used.status_code, "used already" in used.text) == (403, True)
    code = sign_in.make_link(engine, url, workspace).partition("code=")[2]
    with engine.begin() as connection:
        for table in (schema.sign_in_link, schema.session):
            connection.execute(
                update(table).where(table.c.workspace == workspace).values(expires_at=time.time())
            )
    assert sign_in.by_code(engine, code, address="192.0.2.1") is None
    assert sign_in.by_code(engine, "guess", address="192.0.2.1") is None
    assert workspace_of(engine, session_id) is None
    assert workspace_of(engine, "guess") is None
    cookies = {sessions.COOKIE: session_id}
    assert requests.get(f"{url}/api/v1/clusters", cookies=cookies, timeout=30).status_code == 401


@pytest.mark.parametrize(
    ("scopes", "works"), [(("read",), True), (("ingest", "read"), True), (("ingest",), False)]
)
def test_a_token_that_may_read_signs_in(
    shared_service: ServiceProcess, workspace: str, scopes: Iterable[Scope], works: bool
) -> None:
    engine = shared_service.engine
    token = shared_service.token(scopes, workspace)
    session_id = sign_in.by_token(engine, f" {token}\n", address="192.0.2.1")
    assert (session_id is not None) == works
    if session_id is not None:
        assert workspace_of(engine, session_id) == workspace


def test_a_page_sends_strangers_to_sign_in_and_back(shared_service: ServiceProcess) -> None:
    answer = requests.get(
        f"{shared_service.url}/clusters/x?tab=1", allow_redirects=False, timeout=30
    )
    assert answer.status_code == 303
    assert answer.headers["Location"] == "/sign-in?next=%2Fclusters%2Fx%3Ftab%3D1"


@pytest.mark.parametrize("signed_in", [False, True])
def test_what_redirects_has_headers_that_proxies_accept(
    shared_service: ServiceProcess, signed_in: bool
) -> None:
    session = requests.Session()
    if signed_in:
        form = {"token": shared_service.token(["read"])}
        assert session.post(f"{shared_service.url}/sign-in", data=form, timeout=30).ok
    for path in ("/clusters", "/computations", "/exceptions", "/jobs", "/findings", "/profile"):
        for name in (100 * "x", 6_000 * "x", 3_000 * "é"):
            address = f"{shared_service.url}{path}?user={name}&cluster="
            answer = session.get(address, allow_redirects=False, timeout=30)
            assert answer.status_code < 500
            assert sum(map(len, answer.headers.values())) < 3_500


@pytest.mark.parametrize(
    ("target", "safe"),
    [
        ("/clusters?x=1", "/clusters?x=1"),
        (None, "/"),
        ("", "/"),
        ("https://evil.example/", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\\b", "/"),
        ("/\t/evil.example", "/"),
        ("javascript:alert(1)", "/"),
        # Proxies accept some kilobytes of headers.
        ("/clusters?name=" + 2_000 * "x", "/"),
        ("/clusters?name=" + 500 * "é", "/"),
    ],
)
def test_sign_in_leads_nowhere_else(target: str | None, safe: str) -> None:
    assert access.safe_next(target) == safe


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 401),
        ({}, 401),
    ],
)
def test_a_post_from_another_site_is_refused(
    shared_service: ServiceProcess, headers: dict[str, str], status: int
) -> None:
    url = f"{shared_service.url}/api/v1/heartbeats"
    assert requests.post(url, headers=headers, timeout=30).status_code == status
    own = {"Origin": shared_service.url}
    assert requests.post(url, headers=own, timeout=30).status_code == 401
    bearer = headers | {"Authorization": f"Bearer {shared_service.token()}"}
    assert requests.post(url, headers=bearer, data=b"{}", timeout=30).status_code == 400
    # Pages look at the cookie, whatever token is beside it.
    page = requests.post(f"{shared_service.url}/sign-out", headers=bearer, timeout=30)
    assert page.status_code == (403 if status == 403 else 200)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"Host: a.example\r\nHost: a.example\r\n", 400),
        (b"Host: a.example\r\nhost: b.example\r\n", 400),
        (b"Host: \r\n", 400),
        (b"", 400),
        (b"Host: a.example\r\n", 200),
    ],
)
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_a_page_is_for_one_host(
    shared_service: ServiceProcess, lines: bytes, status: int, version: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", urlsplit(shared_service.url).port or 0)) as sent:
        sent.settimeout(PATIENCE)
        end = b"Connection: close\r\n\r\n"
        sent.sendall(b"GET /sign-in HTTP/%b\r\n%b%b" % (version, lines, end))
        answer = b"".join(iter(lambda: sent.recv(65536), b""))
    assert int(answer.split()[1]) == status


def test_every_answer_carries_the_security_headers(shared_service: ServiceProcess) -> None:
    for path in ("/", "/healthz", "/sign-in", "/api/v1/clusters", "/nothing"):
        headers = requests.get(shared_service.url + path, timeout=30).headers
        assert "default-src 'self'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "unsafe-inline" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"


def test_errors_are_problem_documents_for_programs_and_pages_for_people(
    shared_service: ServiceProcess,
) -> None:
    url = shared_service.url
    for answer in (
        requests.get(f"{url}/api/v1/nothing", timeout=30),
        requests.get(f"{url}/api/v1/heartbeats", timeout=30),
    ):
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code
    page = requests.get(f"{url}/nothing", timeout=30)
    assert page.status_code == 404
    assert page.headers["Content-Type"].startswith("text/html")
    assert "404" in page.text
