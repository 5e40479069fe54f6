"""A service that is missing or misbehaves changes nothing for the user but one warning."""

from __future__ import annotations

import gzip
import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from distributed import Client, LocalCluster

from daskscope import codec, protocol, session
from daskscope.delivery import backoff, spool_worker
from daskscope.delivery.sender import MAX_REPLY
from daskscope.session import CLOSE_DEADLINE
from tests.exporter.conftest import Register, close_plugin
from tests.exporter.recorder import Recorder
from tests.ports import free_port


def inc(x: int) -> int:
    return x + 1


def _heartbeats(how: int | str) -> Callable[[str], int | str | None]:
    return lambda path: how if path == "/api/v1/heartbeats" else None


def _warnings(caplog: pytest.LogCaptureFixture, endpoint: str) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING
        and record.name.startswith(("daskscope", "opentelemetry", "urllib3"))
        and endpoint in record.getMessage()
    ]


@pytest.mark.parametrize("how", [500, 503, 429, "drop"])
def test_beats_are_kept_and_sent_again_when_the_service_is_back(
    client: Client,
    register: Register,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
    how: int | str,
) -> None:
    register()
    recorder.misbehave = _heartbeats(how)
    client.submit(inc, 1).result()
    refused = recorder.refused
    recorder.wait_for(lambda: recorder.refused > refused + 1, "two refused beats")
    assert not recorder.computations()

    recorder.misbehave = lambda path: None
    assert recorder.computation().status == "finished"
    (warning,) = _warnings(caplog, recorder.url)
    assert "only warning" in warning


def test_a_beat_that_gets_no_answer_is_sent_again(
    client: Client, register: Register, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    register(otlp__enabled=False)
    answers = iter(["hang"])
    recorder.misbehave = lambda path: next(answers, None)
    refused = recorder.refused
    recorder.wait_for(lambda: recorder.refused > refused, "a beat that hangs")
    assert client.submit(inc, 1).result() == 2

    assert recorder.computation().status == "finished"
    (warning,) = _warnings(caplog, recorder.url)
    assert "no answer in time" in warning


def test_a_beat_that_was_refused_is_sent_again_though_beats_are_an_hour_apart(
    register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "MAX_PAUSE", 0.2)
    monkeypatch.setattr(session, "TICK", 0.05)
    recorder.misbehave = _heartbeats(503)
    register(interval="1h", otlp__enabled=False)
    recorder.wait_for(lambda: recorder.refused > 2, "beats that are refused again")
    recorder.misbehave = lambda path: None
    recorder.wait_for(lambda: recorder.beats, "the first beat that is taken")


@pytest.mark.uncounted("no service takes its rows")
@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_told_once_with_what_to_do(
    client: Client,
    register: Register,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
    status: int,
) -> None:
    recorder.misbehave = lambda path: status
    registration = register()
    recorder.wait_for(lambda: recorder.refused >= 3, "three refused beats")

    assert client.submit(inc, 1).result() == 2
    assert "daskscope token create" in repr(registration)
    (warning,) = _warnings(caplog, recorder.url)
    assert "daskscope token create" in warning


@pytest.mark.uncounted("no service takes its rows")
def test_no_service_at_all(
    client: Client, register: Register, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    registration = register(endpoint=endpoint)

    assert client.submit(inc, 1).result() == 2
    assert "daskscope serve" in repr(registration)
    (warning,) = _warnings(caplog, endpoint)
    assert "is right. The cluster runs on" in warning


@pytest.mark.uncounted("no service takes its rows")
def test_something_else_at_the_address(
    client: Client, register: Register, recorder: Recorder
) -> None:
    recorder.misbehave = lambda path: 200
    registration = register(otlp__enabled=False)
    assert "is not a daskscope service" in repr(registration)
    assert client.submit(inc, 1).result() == 2


def _answers(status: int, body: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, DEEP, "is not a daskscope service"),
        (200, b'{"server_time": 1, "interval": 1%s}' % (b"0" * 400), "is not a daskscope service"),
        (502, DEEP, "answered 502"),
    ],
    ids=["deep", "huge", "deep 502"],
)
def test_an_answer_that_cannot_be_decoded_is_a_refusal_like_any_other(
    client: Client,
    register: Register,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    status: int,
    body: bytes,
    problem: str,
) -> None:
    recorder.misbehave = lambda path: _answers(status, body) if "heartbeats" in path else None
    registration = register(spool__directory=str(tmp_path))
    assert problem in (registration.problem or "")
    client.submit(inc, 1).result()
    refused = recorder.refused
    recorder.wait_for(lambda: recorder.refused > refused, "another refused beat")
    close_plugin(client)
    (warning,) = _warnings(caplog, recorder.url)
    assert problem in warning

    # What was not acknowledged is in the spool: the next one delivers it.
    recorder.misbehave = lambda path: None
    register(spool__directory=str(tmp_path))
    recorder.wait_for(
        lambda: "finished" in {row.status for row in recorder.computations().values()},
        "what the last one could not deliver",
    )
    assert "internal error" not in recorder.beats[-1].drops


def test_a_fault_of_its_own_is_told_and_loses_nothing(
    client: Client,
    register: Register,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = itertools.count()

    def decode(body: bytes, drops: Counter[str] | None = None) -> protocol.Reply:
        if next(tries) < 2:
            raise ZeroDivisionError("as it should")
        return decode_reply(body, drops)

    decode_reply = codec.decode_reply
    monkeypatch.setattr(codec, "decode_reply", decode)
    registration = register()
    assert "ZeroDivisionError" in (registration.problem or "")
    client.submit(inc, 1).result()

    beat = recorder.wait_for(
        lambda: next((b for b in recorder.beats if b.drops.get("internal error") == 2), None),
        "a beat that counts both",
    )
    assert beat.seq > recorder.beats[0].seq
    assert recorder.computation().status == "finished"
    (warning,) = _warnings(caplog, recorder.url)
    assert "report it" in warning


def test_a_beat_that_is_never_understood_holds_up_nothing(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    recorder.misbehave = _heartbeats(400)
    client.submit(inc, 1).result()
    # It is cut down first, in case one row is at fault.
    recorder.wait_for(lambda: recorder.refused >= 6, "refused beats")
    recorder.misbehave = lambda path: None

    beat = recorder.wait_for(
        lambda: next((b for b in recorder.beats if b.drops.get("refused row")), None),
        "a beat that counts what was refused",
    )
    assert beat.drops["refused row"] >= 1
    client.submit(inc, 2).result()
    recorder.computation()


def test_what_the_service_could_not_store_is_counted_and_told_once(
    client: Client,
    register: Register,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder.corrections = (protocol.Correction("$.events[0].id", "it is\x1b[2J too\nlong", True),)
    with caplog.at_level(logging.WARNING, "daskscope"):
        register()
        client.submit(inc, 1).result()
        recorder.wait_for(
            lambda: next((b for b in recorder.beats if b.drops.get("refused row", 0) > 1), None),
            "a beat that counts the rows of two others",
        )
    (warning,) = _warnings(caplog, recorder.url)
    assert "left out $.events[0].id: it is [2J too long" in warning


def test_an_answer_that_is_too_long_is_not_read(
    client: Client,
    register: Register,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    recorder.commands = [{"id": "x" * MAX_REPLY}]  # parsing it would keep all threads waiting
    with caplog.at_level(logging.WARNING, "daskscope"):
        register()
        recorder.wait_for(lambda: len(recorder.beats) > 1 or None, "a second beat")
    (warning,) = _warnings(caplog, recorder.url)
    assert "its answer cannot be read" in warning
    recorder.commands = []
    assert client.submit(inc, 1).result() == 2
    recorder.computation()


def test_one_row_that_is_refused_does_not_take_all_others_along(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(otlp__enabled=False, events__allow=["mine"])
    recorder.misbehave = _heartbeats(500)
    client.log_event("mine", "bad row")
    for number in range(40):
        client.log_event("mine", number)
    refused = recorder.refused
    recorder.wait_for(lambda: recorder.refused > refused + 1, "a refused beat with all of them")
    recorder.misbehave_on = b"bad row"
    recorder.misbehave = lambda path: None

    recorder.wait_for(lambda: len(recorder.events()) >= 35, "the others")
    assert "bad row" not in [event.message for event in recorder.events()]


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ("$.task_groups[3].output_bytes", "one part of a heartbeat, $.task_groups[3].output_bytes"),
        ("$.protocol", "install the same version on both sides"),
    ],
)
def test_why_a_beat_was_refused_is_told_once(
    client: Client,
    register: Register,
    recorder: Recorder,
    caplog: pytest.LogCaptureFixture,
    field: str,
    says: str,
) -> None:
    detail = f"Not a heartbeat,\x1b\n at {field}."  # which no terminal shall obey
    document = {"title": "Bad Request", "detail": detail, "field": field}
    answer = _answers(400, json.dumps(document).encode())
    recorder.misbehave = lambda path: answer if "heartbeats" in path else None
    registration = register()
    assert says in (registration.problem or "")
    recorder.wait_for(lambda: recorder.refused >= 3, "more refused beats")
    close_plugin(client)
    (warning,) = _warnings(caplog, recorder.url)
    assert says in warning
    assert f"Not a heartbeat, at {field}." in warning
    assert warning.isprintable()
    assert ("that part is dropped" in warning) == ("version" not in says)


def test_a_service_that_finds_beats_too_large_gets_smaller_ones(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    recorder.misbehave = _heartbeats(500)
    for number in range(12):
        client.submit(inc, number, pure=False).result()
    refused = recorder.refused
    recorder.wait_for(lambda: recorder.refused > refused, "another refused beat")
    sizes = iter([413, 413])
    recorder.misbehave = lambda path: next(sizes, None) if "heartbeats" in path else None

    recorder.wait_for(
        lambda: sum(row.completed for row in recorder.computations().values()) == 12,
        "all computations",
    )


def test_a_service_that_is_away_is_tried_with_a_few_rows(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(events__allow=["mine"])
    recorder.misbehave = _heartbeats(503)
    for number in range(100):
        client.log_event("mine", number)

    def tried_with_few() -> bool:
        body = recorder.last_refused
        return bool(body) and len(msgspec.json.decode(body, type=protocol.Heartbeat).events) == 25

    recorder.wait_for(tried_with_few, "a beat with 25 of the events")
    recorder.misbehave = lambda path: None
    recorder.wait_for(lambda: len(recorder.events()) == 100, "all events")


@pytest.mark.uncounted("a part of it does not arrive before the plugin is closed")
@pytest.mark.own_cluster
@pytest.mark.parametrize("how", ["hang", 500])
def test_closing_ends_within_its_deadline_whatever_hangs(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder, how: int | str
) -> None:
    register()
    recorder.misbehave = lambda path: how
    client.submit(inc, 1).result()
    refused = recorder.refused
    recorder.wait_for(lambda: recorder.refused > refused, "a beat that hangs")
    client.close()

    began = time.monotonic()
    cluster.close()
    # Not how fast: only that what hangs (for ten seconds and more) is not waited for.
    assert time.monotonic() - began < CLOSE_DEADLINE + 4


@pytest.mark.own_cluster
def test_the_last_beat_tells_that_the_cluster_has_stopped(
    cluster: LocalCluster, client: Client, register: Register, recorder: Recorder
) -> None:
    register(interval="1h")
    client.submit(inc, 1).result()
    client.close()
    cluster.close()

    assert next(beat.phase for beat in recorder.beats) == "start"
    last = max(recorder.beats, key=lambda beat: beat.seq)
    assert last.phase == "stop"
    assert last.status.stopped_at is not None
    assert last.status.peak_workers == 1
    assert last.cluster.kind == "LocalCluster"
    assert last.protocol == protocol.PROTOCOL


@pytest.mark.parametrize("clock", [-1.0, 1e10])
def test_a_beat_is_compressed_whatever_the_clock_says(
    register: Register, recorder: Recorder, clock: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(interval="100ms")
    beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
    # That of gzip alone: the scheduler goes on in this process.
    monkeypatch.setattr(gzip, "time", SimpleNamespace(time=lambda: clock))
    assert gzip.decompress(spool_worker.body_of(beat)) == codec.encode(beat)
