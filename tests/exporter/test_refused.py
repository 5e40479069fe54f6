"""Refused means absent: markers are planted all over a workload, and every byte is searched.

The workload is a script of its own, so that a marker stands where it is planted and nowhere else:
what is no part of the script's text is written there in hex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from distributed import Client

from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

Workload = Callable[[Client], None]

#: What a switch refuses.
CODE = "planted-in-code"
TEXT = "planted-in-the-text-of-an-exception"
SOURCE = "planted-in-a-source-line-of-a-traceback"
EVENT = "planted-in-an-event"
LOG = "planted-in-a-log-line"

#: What never leaves.
KEY = "planted-in-a-key"
ARGUMENT = "planted-in-an-argument"
RESULT = "planted-in-a-result"
PASSWORD = "planted-as-a-password"
NEVER = (KEY, ARGUMENT, RESULT, PASSWORD)


def _hex(text: str) -> str:
    return f"bytes.fromhex({text.encode().hex()!r}).decode()"


SCRIPT = f"""\
import logging

import dask
import dask.array as da
from distributed import get_worker, wait

KEY, ARGUMENT, RESULT = {_hex(KEY)}, {_hex(ARGUMENT)}, {_hex(RESULT)}
TEXT, EVENT, LOG = {_hex(TEXT)}, {_hex(EVENT)}, {_hex(LOG)}
PASSWORD = {_hex(PASSWORD)}


def work(argument):
    logging.getLogger("the.users.own").warning("%s password=%s1", LOG, PASSWORD)
    return RESULT + argument


def fail(argument):
    key = get_worker().get_current_task()
    raise ValueError(f"{{TEXT}} of the task {{key}}, password={{PASSWORD}}1")  # {SOURCE}


def fail_and_name_another(argument):
    from distributed.client import FutureCancelledError

    raise FutureCancelledError(KEY, "lost dependencies")


def block(number, argument):
    return number + len(argument)


def run(client):
    password = "{PASSWORD}"  # {CODE}
    secret = {{"password": PASSWORD, "text": EVENT}}
    annotated = dask.annotate(note=f"password={{PASSWORD}}", secret_token=PASSWORD)
    with annotated:
        futures = [
            client.submit(work, ARGUMENT, key=KEY),
            client.submit(work, ARGUMENT, key=(KEY, 0)),
            client.submit(fail, ARGUMENT, key=(KEY, 1)),
            client.submit(fail, ARGUMENT, key=KEY + "1"),
            client.submit(fail, ARGUMENT, key=KEY + "2", retries=1),
            client.submit(fail_and_name_another, ARGUMENT, key=KEY + "3"),
        ]
        wait(futures)
    lazy = dask.delayed(work)(ARGUMENT, dask_key_name=KEY + "-4")
    client.compute(lazy).result()
    array = da.ones(4, chunks=2, name=KEY + "-5").map_blocks(block, ARGUMENT, name=KEY + "-6")
    array.compute()
    client.persist(da.ones(4, chunks=2, name=KEY + "-7"))
    client.submit(print_on_worker, ARGUMENT, key=KEY + "-8").result()
    client.scatter({{KEY + "-9": ARGUMENT}})
    client.run(work, ARGUMENT)
    client.log_event("planted", secret)


def print_on_worker(argument):
    from distributed import print

    print(argument)
    get_worker().log_event(["all", "stealing"], ("request", KEY, {{KEY: 1.0}}))
"""


@pytest.fixture
def workload() -> Iterator[Workload]:
    # Not in pytest's folder: Dask takes no code from files there.
    with TemporaryDirectory() as folder:
        path = Path(folder) / "workload.py"
        path.write_text(SCRIPT)
        # No module of its name can be imported, so that Dask sends its functions by value.
        script: dict[str, Any] = {"__name__": "workload", "__file__": str(path)}
        exec(compile(SCRIPT, str(path), "exec"), script)
        yield script["run"]


@pytest.fixture
def everything_that_left(
    client: Client, register: Register, recorder: Recorder, workload: Workload
) -> Callable[..., str]:
    """Register with what is refused, work, and return all that was sent until the last."""

    def left(**refused: Any) -> str:
        register(**{"events__allow": "*", **refused})
        client.run_on_scheduler(_log_what_names_keys)
        workload(client)
        assert client.run_on_scheduler(_keys), "nothing was there to be refused"
        if not refused.get("disabled"):
            # Code comes last: it is sent when it was asked for.
            beats = len(recorder.beats)
            recorder.wait_for(lambda: len(recorder.beats) >= beats + 3, "three more beats")
        client.run_on_scheduler(_end)
        return recorder.bytes.decode(errors="replace")

    return left


def _found(left: str, markers: Iterable[str]) -> list[str]:
    """Each marker that is there, with what is around it."""
    places = ((left.find(marker), len(marker)) for marker in markers)
    return [left[max(at - 150, 0) : at + length + 50] for at, length in places if at >= 0]


def _keys(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks if KEY in str(key)]


async def _end(dask_scheduler: Any) -> None:
    plugin = dask_scheduler.plugins.get("daskscope")
    if plugin is not None:
        await plugin.close()


def _log_what_names_keys(dask_scheduler: Any) -> None:
    """Write what Dask's own parts write when something goes wrong."""
    from distributed.core import error_message
    from distributed.worker_state_machine import (
        InvalidTaskState,
        InvalidTransition,
        TransitionCounterMaxExceeded,
    )

    story = [(KEY, "released", "waiting", "waiting", {KEY: "ready"}, f"compute-{KEY}", 1.5)]
    worker = next(iter(dask_scheduler.workers))
    for error in (
        InvalidTransition(KEY, "released", "memory", story),
        TransitionCounterMaxExceeded(KEY, "released", "memory", story),
        InvalidTaskState(KEY, "memory", story),
    ):
        dask_scheduler.log_event(*error.to_event())
        dask_scheduler.log_event("worker-fail-hard", {**error_message(error), "worker": worker})
    dask_scheduler.log_event(worker, {"action": "remove-worker-data", "keys": [KEY]})
    dask_scheduler.log_event("all", {"action": "rebalance", "who_has": {KEY: [worker]}})
    dask_scheduler.log_event("scheduler", {"action": "no-workers-timeout-exceeded", "keys": {KEY}})
    dask_scheduler.log_event("transitions", {"key": KEY, "transition_log": [(KEY, "a", "b")]})
    dask_scheduler.log_event("all", KEY)


def test_with_everything_on_keys_arguments_results_and_secrets_never_leave(
    everything_that_left: Callable[..., str],
) -> None:
    left = everything_that_left()
    assert _found(left, NEVER) == []
    # What is not refused is there, or the tests below would hold for nothing.
    assert [marker for marker in (CODE, TEXT, SOURCE, EVENT, LOG) if marker not in left] == []


@pytest.mark.parametrize(
    ("switch", "value", "absent", "present"),
    [
        ("computation__code__transmit", False, {CODE, SOURCE}, {TEXT, EVENT, LOG}),
        ("computation__exceptions__transmit", False, {TEXT, SOURCE}, {CODE, EVENT, LOG}),
        ("events__allow", [], {EVENT}, {CODE, TEXT, SOURCE}),
        ("events__allow", ["worker-fail-hard"], {EVENT}, {CODE, TEXT, SOURCE}),
        ("logs__transmit", False, {LOG}, {CODE, TEXT, SOURCE, EVENT}),
        ("logs__level", "ERROR", {LOG}, {CODE, TEXT, SOURCE, EVENT}),
    ],
)
def test_what_a_switch_refuses_is_in_no_byte(
    everything_that_left: Callable[..., str],
    switch: str,
    value: object,
    absent: set[str],
    present: set[str],
) -> None:
    left = everything_that_left(**{switch: value})
    assert _found(left, (*absent, *NEVER)) == []
    assert [marker for marker in present if marker not in left] == []


def test_without_otlp_nothing_is_sent_over_it(
    everything_that_left: Callable[..., str], recorder: Recorder
) -> None:
    left = everything_that_left(otlp__enabled=False)
    assert {request.path for request in recorder.requests} == {"/api/v1/heartbeats"}
    assert _found(left, NEVER) == []


def test_disabled_sends_nothing_at_all(
    everything_that_left: Callable[..., str], recorder: Recorder
) -> None:
    assert everything_that_left(disabled=True) == ""
    assert recorder.requests == []


def test_the_script_holds_only_the_markers_of_its_code() -> None:
    assert _found(SCRIPT, (TEXT, EVENT, LOG, KEY, ARGUMENT, RESULT)) == []
