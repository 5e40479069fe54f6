"""Our own requests are none of the user's: instrumentation of HTTP leaves them out."""

from __future__ import annotations

import pytest
import requests
from distributed import Client
from opentelemetry import context

from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder


def test_instrumentation_is_asked_to_leave_heartbeats_out_and_nothing_else(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where instrumentation of requests has its own function, which looks there.
    send, seen = requests.Session.send, list[object]()

    def instrumented(session: requests.Session, request: requests.PreparedRequest, **how: object):  # type: ignore[no-untyped-def]
        seen.append(context.get_value(context._SUPPRESS_INSTRUMENTATION_KEY))
        return send(session, request, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(requests.Session, "send", instrumented)
    register(otlp__enabled=False)
    recorder.wait_for(lambda: len(recorder.beats) > 1, "heartbeats")
    assert seen
    assert all(seen)
    requests.get(f"{recorder.url}/healthz", timeout=10)
    assert seen[-1] is None
