"""Events of Dask's log: which ones leave, and what of their messages."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from distributed import Client, Future

from daskscope import names
from daskscope.messages import LEFT_OUT, MAX_DEPTH, MAX_ITEMS, Safe, json_safe, of_dask
from daskscope.observe.messages.events import MISSPELT
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

MARKER = "mark" + "er7"

pytestmark = [pytest.mark.usefixtures("sends_soon"), pytest.mark.contract]


# --- Dask's own failures --------------------------------------------------------------------------

(MISSPELT_TOPIC,) = MISSPELT

#: What each topic's message tells, beside the worker's address: no key.
DASKS_FAILURES = {
    "invalid-worker-task-state": {"key": LEFT_OUT, "state": "released"},
    "invalid-worker-transition": {"key": LEFT_OUT, "start": "forgotten", "finish": "released"},
    "worker-fail-hard": {"status": "error", "exception_text": "InvalidTransition"},
}


def make(number: int) -> int:
    return number


def fail_inside_of_dask(client: Client) -> Future[int]:
    """Let a worker of the cluster come across all that Dask may find wrong with itself.

    Returns what is to be kept: a message of the scheduler's that it is not needed any more would
    fail on the worker too, and close the connection before the worker has told of it.
    """
    future = client.submit(make, 1, key=MARKER)
    future.result()
    client.log_event(MISSPELT_TOPIC, {"by": "an older Dask"})
    client.log_event("of-the-users-own", MARKER)
    client.run(_break, MARKER)
    return future


def _break(key: str, dask_worker: Any) -> None:
    from contextlib import suppress

    from distributed.worker_state_machine import FreeKeysEvent, InvalidTaskState

    task = dask_worker.state.tasks[key]
    task.state = "released"  # while its result is there
    dask_worker.state.validate = True
    with suppress(InvalidTaskState):
        dask_worker.validate_state()
    dask_worker.state.validate = False
    task.state = "forgotten"
    event = FreeKeysEvent(keys=[key], stimulus_id="a test")
    dask_worker.loop.add_callback(dask_worker.handle_stimulus, event)


@pytest.mark.own_cluster
def test_without_a_setting_just_dasks_own_failures_are_told(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    kept = fail_inside_of_dask(client)

    recorder.wait_for(recorder.losses, "the worker's end")
    told = {event.topic: json.loads(event.message) for event in recorder.events()}
    assert set(told) == {*DASKS_FAILURES, MISSPELT_TOPIC}
    assert len(recorder.events()) == len(told)
    for topic, fields in DASKS_FAILURES.items():
        assert fields.items() <= told[topic].items(), topic
        assert told[topic]["worker"].startswith("tcp://")
    assert MARKER.encode() not in recorder.bytes
    del kept
    # Over OTLP, too.
    recorder.wait_for(lambda: len(_by_topic(recorder)) >= len(told), "the log events")
    assert set(_by_topic(recorder)) == set(told)


@pytest.mark.own_cluster
def test_the_misspelt_topic_stands_for_what_dask_calls_it(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(events__allow=[MISSPELT_TOPIC])
    kept = fail_inside_of_dask(client)

    recorder.wait_for(recorder.losses, "the worker's end")
    found = sorted(event.topic for event in recorder.events())
    assert found == [MISSPELT_TOPIC, "invalid-worker-task-state"]
    del kept


@pytest.mark.own_cluster
def test_of_what_users_write_into_dasks_own_fields_nothing_is_told(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(events__allow=["*"], computation__exceptions__transmit=False)
    client.run(_close_because_of, f"ValueError({MARKER!r})")

    recorder.wait_for(recorder.losses, "the worker's end")
    told = [json.loads(event.message) for event in recorder.events() if "://" in event.topic]
    assert {"action": "closing-worker", "reason": LEFT_OUT} in told
    assert {"action": LEFT_OUT, "client": LEFT_OUT, "status": "OK", "start": LEFT_OUT} in [
        {name: text for name, text in message.items() if name != "worker"} for message in told
    ]
    assert MARKER.encode() not in recorder.bytes


def _close_because_of(text: str, dask_worker: Any) -> None:
    message = {"action": text, "client": text, "status": "OK", "start": text}
    dask_worker.log_event(dask_worker.address, message)
    dask_worker.loop.add_callback(dask_worker.close, reason=text)


@pytest.mark.parametrize(
    "reason",
    [
        "worker-close",
        "worker-handle-scheduler-connection-broken",
        "worker-execute-fail-hard",
        "restart-workers-1795222975.0277",
        "signal-15",
        "lost dependencies",
    ],
)
def test_dasks_own_reasons_are_told(reason: str) -> None:
    assert of_dask({"reason": reason}, str, tracebacks=False).value == {"reason": reason}


@pytest.mark.parametrize(
    "reason", ["worker-maria-fail-hard", "nanny-plugin-maria-restart", "close of maria", "4711"]
)
def test_other_reasons_are_not(reason: str) -> None:
    assert of_dask({"reason": reason}, str, tracebacks=False).value == {"reason": LEFT_OUT}


# --- messages -------------------------------------------------------------------------------------


def log_events(messages: dict[str, Any], dask_scheduler: Any) -> None:
    for topic, message in messages.items():
        dask_scheduler.log_event(topic, message)


def deep(levels: int) -> Any:
    """Return lists in lists: so many levels."""
    message: Any = "the end"
    for _ in range(levels):
        message = [message]
    return message


#: By topic, a message, what is told of it, and whether that is all.
MESSAGES: dict[str, tuple[Any, Any, bool]] = {
    "set": ({1}, [1], False),
    "frozen set": (frozenset({"a"}), ["a"], False),
    "bytes": (b"abc", "<3 bytes>", False),
    "tuple": ((1, ("a", None)), [1, ["a", None]], False),
    "numpy float": (np.float32(0.5), 0.5, False),
    "numpy integer": (np.int64(2**60 + 1), 2**60 + 1, False),
    "numpy boolean": (np.bool_(True), True, False),
    "numpy array": (np.zeros((3, 4)), "<numpy.ndarray (3, 4)>", False),
    "as many as may be": (list(range(100)), list(range(100)), False),
    "one too many": (list(range(101)), list(range(100)), True),
    "names": ({str(n): n for n in range(101)}, {str(n): n for n in range(100)}, True),
    "many below": ({"a": [set(range(500))]}, {"a": [list(range(100))]}, True),
    "as deep as may be": (deep(6), deep(6), False),
    "too deep": (deep(7), [[[[[[LEFT_OUT]]]]]], True),
}


def test_messages_are_told_as_json_and_say_when_they_were_cut(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(events__allow=["*"])
    client.run_on_scheduler(log_events, {topic: given for topic, (given, _, _) in MESSAGES.items()})

    def all_come() -> bool:
        return {event.topic for event in recorder.events()} >= set(MESSAGES)

    recorder.wait_for(all_come, "the events")
    events = {event.topic: event for event in recorder.events()}
    for topic, (_, told, cut) in MESSAGES.items():
        found = events[topic]
        assert (json.loads(found.message), found.cut) == (told, cut), topic
    recorder.wait_for(lambda: _by_topic(recorder).keys() >= MESSAGES.keys(), "the log events")
    records = _by_topic(recorder)
    for topic, (_, _, cut) in MESSAGES.items():
        assert records[topic][names.EVENT_CUT] is cut, topic


def _by_topic(recorder: Recorder) -> dict[str, dict[str, Any]]:
    found = map(_attributes, recorder.log_records(names.LOG_EVENT.name))
    return {attributes[names.EVENT_TOPIC]: attributes for attributes in found}


def _attributes(record: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in record.attributes
    }


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ({"who_has": {f"tcp://10.0.0.1:{n}": n for n in range(101)}}, None),
        ({str(n): n for n in range(101)}, None),
        ({"story": [[0]] * 101}, {"story": [[0]] * 100}),
        ({"story": deep(6)}, None),
    ],
)
def test_a_cut_of_dasks_own_messages_is_marked(message: Any, told: Any) -> None:
    found = of_dask(message, str, tracebacks=True)
    assert found.cut
    assert told is None or found.value == told


def test_what_is_told_as_its_number_is_not_cut() -> None:
    keys = {"keys": [f"key-{n}" for n in range(101)], "who_has": {f"k-{n}": n for n in range(500)}}
    assert of_dask(keys, str, tracebacks=True) == Safe({"keys": 101, "who_has": 500}, False)


def test_the_bounds_are_what_these_tests_take_them_for() -> None:
    assert (MAX_ITEMS, MAX_DEPTH) == (100, 6)
    assert not json_safe({"a": 1}, str).cut
