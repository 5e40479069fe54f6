"""Beats are answered the same on the short way as by Flask, which has those of unknown length."""

from __future__ import annotations

import gzip
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
from sqlalchemy import select

from daskscope.codec import encode
from daskscope_service.accounts import tokens
from daskscope_service.db import schema
from tests.patience import wait_until
from tests.service.beats import make_beat, make_cluster, post
from tests.service.test_logs import PROXIED, line_of
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

#: What is of one request alone.
_OWN_HEADERS = {"date", "x-request-id"}
_OWN_FIELDS = {"time", "milliseconds", "request_id"}


def by_flask(service: ServiceProcess, token: str, body: bytes, **headers: str) -> requests.Response:
    def parts() -> Iterator[bytes]:
        yield body

    return _post(service, token, parts(), headers)


def at_once(service: ServiceProcess, token: str, body: bytes, **headers: str) -> requests.Response:
    return _post(service, token, body, headers)


def _post(
    service: ServiceProcess, token: str, body: bytes | Iterator[bytes], headers: Mapping[str, str]
) -> requests.Response:
    return requests.post(
        f"{service.url}/api/v1/heartbeats",
        data=body,
        headers={
            "Authorization": f"Bearer {token}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        },
        timeout=30,
    )


@pytest.fixture
def workspace() -> str:
    """One of its own: the service is shared with other tests."""
    return f"at-once-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def token(shared_service: ServiceProcess, workspace: str) -> str:
    """A token that has been shown: the short way is for those."""
    token = shared_service.token(workspace=workspace)
    assert post(shared_service.url, token, make_beat()).ok
    return token


def headers_of(answer: requests.Response) -> dict[str, str]:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    assert len(headers["x-request-id"]) >= 16
    return {name: value for name, value in headers.items() if name not in _OWN_HEADERS}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_beat_is_answered_and_kept_the_same(
    shared_service: ServiceProcess, token: str, workspace: str, pack: Callable[[bytes], bytes]
) -> None:
    encoding = "gzip" if pack is gzip.compress else "identity"
    ids, answers = [], []
    for way in (by_flask, at_once):
        beat = make_beat(make_cluster())
        ids.append(beat.cluster.id)
        answers.append(way(shared_service, token, pack(encode(beat)), Content_Encoding=encoding))
    first, second = answers
    assert first.status_code == second.status_code == 200
    assert headers_of(first).keys() == headers_of(second).keys()
    assert first.headers["Content-Type"] == second.headers["Content-Type"] == "application/json"
    replies: list[dict[str, Any]] = [answer.json() for answer in answers]
    for reply, id in zip(replies, ids, strict=True):
        assert abs(reply.pop("server_time") - time.time()) < 60
        assert reply.pop("url") == f"{shared_service.url}/clusters/{id}"
    assert replies[0] == replies[1]
    kept = select(schema.cluster.c.id).where(schema.cluster.c.workspace == workspace)
    with shared_service.engine.connect() as connection:
        assert set(ids) <= set(connection.execute(kept).scalars())


def test_what_is_wrong_is_told_the_same(shared_service: ServiceProcess, token: str) -> None:
    beat = encode(make_beat())
    wrong: list[tuple[bytes, dict[str, str]]] = [
        (b"", {}),
        (b"{", {}),
        (b'{"protocol": "1.0"}', {}),
        (beat.replace(b'"protocol":"1', b'"protocol":"9'), {}),
        (encode(make_beat(make_cluster(workspace="theirs"))), {}),
        (beat, {"Content_Encoding": "gzip"}),
        (gzip.compress(beat)[:-1], {"Content_Encoding": "gzip"}),
        (beat, {"Content_Encoding": "deflate"}),
        (beat + b" " * 30_000_000, {}),
        (b"\xff" + beat, {}),
    ]
    for body, headers in wrong:
        documents = []
        for way in (by_flask, at_once):
            answer = way(shared_service, token, body, **headers)
            assert answer.status_code in (400, 403, 413, 415), answer.text
            assert answer.headers["Content-Type"] == "application/problem+json"
            document = answer.json()
            assert document.pop("request_id") == answer.headers["X-Request-ID"]
            documents.append((document, headers_of(answer)))
        assert documents[0] == documents[1]


def test_a_token_that_expires_is_refused_from_then_on(
    shared_service: ServiceProcess, workspace: str
) -> None:
    token = tokens.create(
        shared_service.engine, workspace=workspace, label="short", expires_at=time.time() + 2
    )
    answer = post(shared_service.url, token, make_beat())
    assert answer.ok
    # In a list: an answer that is an error counts as false.
    (answer,) = wait_until(
        lambda: None if (answer := post(shared_service.url, token, make_beat())).ok else [answer]
    )
    assert answer.status_code == 401
    assert "expired" in answer.json()["detail"]


def test_a_token_of_another_scope_is_refused_each_time(
    shared_service: ServiceProcess, workspace: str
) -> None:
    token = shared_service.token(["read"], workspace)
    for _ in range(2):
        assert post(shared_service.url, token, make_beat()).status_code == 403


def test_it_is_logged_the_same(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, **PROXIED) as service:
        token = service.token()
        assert post(service.url, token, make_beat()).ok  # the token has been shown
        for body, status in ((encode(make_beat()), 200), (b"{", 400)):
            lines = []
            for way in (by_flask, at_once):
                told = f"from-the-proxy-{way.__name__}-{status}"
                answer = way(service, token, body, X_Request_ID=told)
                assert (answer.headers["X-Request-ID"], answer.status_code) == (told, status)
                line = line_of(service, answer)
                lines.append({name: line[name] for name in line.keys() - _OWN_FIELDS})
            assert lines[0] == lines[1]


def test_a_sender_that_goes_away_is_no_error_of_the_service(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path, threads=1) as service:  # one request after the other
        token = service.token()
        assert post(service.url, token, make_beat()).ok
        with socket.create_connection(("127.0.0.1", service.port)) as peer:
            peer.sendall(
                f"POST /api/v1/heartbeats HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}"
                "\r\nContent-Length: 1000\r\n\r\n{".encode()
            )
        assert post(service.url, token, make_beat()).ok
    assert "Traceback" not in service.output
    assert " 500" not in service.output
