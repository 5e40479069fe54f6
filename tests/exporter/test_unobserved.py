"""Our own requests are none of the user's: instrumentation and tests' mocks of HTTP miss them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import requests
from distributed import Client
from opentelemetry import context
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool

from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder


def test_instrumentation_is_asked_to_leave_heartbeats_out_and_nothing_else(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where instrumentation of urllib3 has its own function, which looks there.
    urlopen, seen = HTTPConnectionPool.urlopen, list[object]()

    def instrumented(pool: HTTPConnectionPool, *how: Any, **options: Any) -> Any:
        seen.append(context.get_value(context._SUPPRESS_INSTRUMENTATION_KEY))
        return urlopen(pool, *how, **options)

    monkeypatch.setattr(HTTPConnectionPool, "urlopen", instrumented)
    register(otlp__enabled=False)
    recorder.wait_for(lambda: len(recorder.beats) > 1, "heartbeats")
    assert seen
    assert all(seen)
    requests.get(f"{recorder.url}/healthz", timeout=10)
    assert seen[-1] is None


def test_a_tests_mock_of_http_neither_sees_nor_answers_what_the_plugin_sends(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def replaced(owner: type, name: str) -> None:
        def mock(*_: Any, **__: Any) -> requests.Response:
            seen.append(name)
            return requests.Response()

        monkeypatch.setattr(owner, name, mock)

    # As responses, requests_mock and unittest.mock do.
    for name in ("request", "post", "send", "get_adapter"):
        replaced(requests.Session, name)
    replaced(HTTPAdapter, "send")
    register()
    for path in ("/api/v1/heartbeats", "/v1/metrics"):
        recorder.wait_for(partial(_has_got, recorder, path), path)
    assert not seen
    requests.get(f"{recorder.url}/healthz", timeout=10)
    assert seen == ["request"]


def _has_got(recorder: Recorder, path: str) -> bool:
    return any(request.path == path for request in recorder.requests)


def test_no_cookie_is_kept(client: Client, register: Register, recorder: Recorder) -> None:
    def answer(handler: Any) -> None:
        handler.send_response(503)
        handler.send_header("Set-Cookie", f"a{len(recorder.arrived)}=b")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    recorder.misbehave = lambda path: answer
    register()
    recorder.misbehave = lambda path: None
    recorder.wait_for(lambda: len(recorder.beats) > 1, "heartbeats")
    assert not any("Cookie" in request.headers for request in recorder.arrived)
