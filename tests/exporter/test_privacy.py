"""What a switch refuses is in no byte that leaves; secrets are scrubbed in any case."""

from __future__ import annotations

import json
import logging
import re
from functools import partial

import dask
import dask.config
from distributed import Client, span, wait

from daskscope import codec
from daskscope.scrubbing import SCRUBBED
from tests.exporter.conftest import Register, wait_for_worker_logs
from tests.exporter.recorder import Recorder

# Put together at run time, so that the markers stand in data and not in this file's own code.
MARKER = "mark" + "er7"


def raise_text(text: str) -> None:
    raise ValueError(text)


def echo(text: str) -> str:
    return text


def test_code_that_is_refused_is_absent(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__code__transmit=False)
    # Another client, or the user's own configuration, may make Dask send code to the scheduler.
    with dask.config.set({"distributed.diagnostics.computations.nframes": 2}):
        future = client.submit(raise_text, "a text")  # this_line_of_code
    wait(future)

    failure = recorder.wait_for(lambda: next(iter(recorder.failures()), None), "the failure")
    computation = recorder.computation()
    assert computation.frames is None
    assert failure.message == "ValueError('a text')"
    assert failure.traceback is not None
    assert "in raise_text" in failure.traceback
    assert b"raise ValueError(text)" not in recorder.bytes
    assert b"this_line_of_code" not in recorder.bytes


def test_texts_of_exceptions_that_are_refused_are_absent(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__exceptions__transmit=False)
    wait(client.submit(raise_text, f"text-{MARKER}"))

    failure = recorder.wait_for(lambda: next(iter(recorder.failures()), None), "the failure")
    recorder.wait_for(
        lambda: [r for r in recorder.requests if r.path == "/v1/logs" and b"ValueError" in r.body],
        "the log event",
    )
    assert (failure.type, failure.count) == ("ValueError", 1)
    assert failure.message is None
    assert failure.traceback is None
    assert f"text-{MARKER}".encode() not in recorder.bytes


def fail_to_compile() -> None:
    exec("the secret = 1")


def test_with_code_that_is_refused_a_syntax_error_shows_no_line_of_it(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__code__transmit=False)
    wait(client.submit(fail_to_compile))

    failure = recorder.wait_for(lambda: next(iter(recorder.failures()), None), "the failure")
    assert failure.message == "SyntaxError('invalid syntax', …)"
    assert b"the secret" not in recorder.bytes


def log_it(text: str) -> None:
    logging.getLogger("mine").warning(text)


def test_what_a_pattern_of_the_users_own_finds_leaves_in_no_text(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(scrub=[r"CUST-\d+"], events__allow=["*"], tags={"of": "CUST-4711"})
    wait_for_worker_logs(client)
    with dask.annotate(of="CUST-4711"), span("CUST-4711"):  # type: ignore[attr-defined]
        wait(client.submit(raise_text, "about CUST-4711"))
    client.submit(log_it, "seen: CUST-4711").result()
    client.log_event("orders of CUST-4711", "CUST-4711")

    recorder.wait_for(recorder.failures, "the failure")
    recorder.wait_for(lambda: "orders of" in str(recorder.events()), "the event")
    for path, text in (("logs", b"seen: "), ("metrics", b"orders of "), ("traces", b"raise_text")):
        told = partial(_told, recorder, f"/v1/{path}", text)
        recorder.wait_for(told, f"{text!r} in {path}")
    assert b"CUST-4711" not in recorder.bytes
    assert SCRUBBED.encode() in recorder.bytes


def _told(recorder: Recorder, path: str, text: bytes) -> bool:
    return any(text in request.body for request in recorder.requests if request.path == path)


def test_no_secret_leaves_in_the_name_of_a_cluster(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(name=f"etl password=hunter{2}x")
    client.submit(echo, "x").result()
    for path in ("/api/v1/heartbeats", "/v1/metrics", "/v1/logs", "/v1/traces"):
        text = f"etl password={SCRUBBED}".encode()
        recorder.wait_for(lambda path=path, text=text: _told(recorder, path, text), path)  # type: ignore[misc]
    assert f"hunter{2}x".encode() not in recorder.bytes


def test_only_allowed_events_leave_and_hold_what_json_can(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(events__allow=["mine-*"])
    client.log_event("other", f"event-{MARKER}")
    client.run_on_scheduler(_log_odd_event)

    (event,) = recorder.wait_for(recorder.events, "the event")
    assert event.topic == "mine-1"
    message = json.loads(event.message)
    assert message["set"] == [1]
    assert message["bytes"] == "<3 bytes>"
    assert message["object"] == "<builtins.object>"
    assert message["nan"] == "nan"
    assert message["password"] == SCRUBBED
    assert f"event-{MARKER}".encode() not in recorder.bytes


def _log_odd_event(dask_scheduler: object) -> None:
    dask_scheduler.log_event(  # type: ignore[attr-defined]
        "mine-1",
        {
            "set": {1},
            "bytes": b"abc",
            "object": object(),
            "nan": float("nan"),
            "password": "x",
        },
    )


def test_a_long_event_is_cut_and_says_so(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(events__allow=["mine"])
    client.log_event("mine", "long " * 2_000)

    (event,) = recorder.wait_for(recorder.events, "the event")
    assert event.cut
    assert len(event.message) == 2_000


def test_the_hash_of_code_is_that_of_what_is_sent(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.submit(echo, "x").result()  # password = "hunter2"

    computation = recorder.computation()
    code = recorder.wait_for(
        lambda: recorder.code().get((computation.frames or ())[-1].code or ""), "the code"
    )
    assert code.hash == codec.code_hash(code.file, code.first_line, code.cut, code.text)
    assert "hunter" + "2" not in code.text
    assert re.search(rf"password = {re.escape(SCRUBBED)}", code.text)
