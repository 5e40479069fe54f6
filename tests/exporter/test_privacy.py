"""What a switch refuses is in no byte that leaves; secrets are scrubbed in any case."""

from __future__ import annotations

import json
import re

import dask.config
import hypothesis
import pytest
from distributed import Client, wait
from hypothesis import given
from hypothesis import strategies as st

from daskscope import protocol
from daskscope.config import settings
from daskscope.privacy import SCRUBBED, Privacy
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

# Put together at run time, so that the markers stand in data and not in this file's own code.
MARKER = "mark" + "er7"


def raise_text(text: str) -> None:
    raise ValueError(text)


def echo(text: str) -> str:
    return text


def test_arguments_results_and_keys_never_leave(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(events__allow="*")
    client.submit(echo, f"argument-{MARKER}", key=f"echo-{MARKER}1").result()
    recorder.computation()
    client.log_event("done", "all")
    recorder.wait_for(lambda: [e for e in recorder.events() if e.topic == "done"], "the event")

    assert f"argument-{MARKER}".encode() not in recorder.bytes


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


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("password='hunter2'", "password="),
        ('{"api_key": "abc"}', '{"api_key": '),
        ("AWS_SECRET_ACCESS_KEY=abc123/def", "AWS_SECRET_ACCESS_KEY="),
        ("Authorization: Bearer abcdefgh123", "Authorization: Bearer "),
        ("curl -H 'X: bearer abcdefgh123'", "bearer "),
        ("https://bob:hunter2@host/x", "https://[scrubbed]@host/x"),
        ("postgresql+psycopg://u:p@h:5432/db", "postgresql+psycopg://[scrubbed]@h:5432/db"),
        ("run --daskscope-token dsk_ab_0123456789", "run --daskscope-token "),
        ("found dsk_ab_0123456789abcdef here", "found "),
        ("ghp_" + "a" * 36, ""),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END", "-----BEGIN PRIVATE KEY-----"),
    ],
)
def test_secrets_are_scrubbed(text: str, kept: str) -> None:
    scrubbed = Privacy(settings()).scrub(text)
    assert SCRUBBED in scrubbed
    assert kept in scrubbed
    for secret in ("hunter2", "abc", "0123456789", "aaaa", "MIIE", ":p@"):
        assert secret not in scrubbed


@pytest.mark.parametrize(
    "text",
    [
        "tokens = tokenize(text)",
        "for token in tokens: count[token] += 1",
        "login(password=password, user=user)",
        "see https://example.org/a:b",
        "x = first / second",
    ],
)
def test_plain_code_is_left_alone(text: str) -> None:
    assert Privacy(settings()).scrub(text) == text


def test_users_add_patterns_of_their_own() -> None:
    assert Privacy(settings(scrub=[r"EMP-\d+"])).scrub("of EMP-4711") == f"of {SCRUBBED}"


@hypothesis.settings(deadline=None)
@given(st.text(max_size=300))
def test_scrubbed_text_is_never_longer_than_the_wire_allows(text: str) -> None:
    assert len(Privacy(settings()).scrub(text * 100)) <= protocol.MAX_TEXT


def test_the_hash_of_code_is_that_of_what_is_sent(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.submit(echo, "x").result()  # password = "hunter2"

    computation = recorder.computation()
    code = recorder.wait_for(
        lambda: recorder.code().get((computation.frames or ())[-1].code or ""), "the code"
    )
    assert code.hash == protocol.code_hash(code.file, code.first_line, code.cut, code.text)
    assert "hunter" + "2" not in code.text
    assert re.search(rf"password = {re.escape(SCRUBBED)}", code.text)
