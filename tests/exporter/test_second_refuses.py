"""What a client refuses is not sent though another, which does not refuse it, registered first."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from distributed import Client, LocalCluster, wait
from distributed.metrics import time

import daskscope
from daskscope import dask_setup, names
from daskscope.config import settings
from daskscope.observe.cluster.opt_outs import MAX_CLIENTS, MAX_COMPUTATIONS, OptOuts
from daskscope.observe.cluster.users import Registrant
from daskscope.plugin import NAME, Plugin
from tests.exporter.conftest import TOKEN, Register, close_plugin, wait_for_worker_logs
from tests.exporter.recorder import Recorder

# What is looked for, written so that the code of these tests, which is sent too, does not hold it.
FIRSTS_TEXT, SECONDS_TEXT = (f"text_of_the_{who}" for who in ("first", "second"))
FIRSTS_LINE, SECONDS_LINE = (f"a_line_of_the_{who}s" for who in ("first", "second"))
PROFILED, LOGGED = (f"a_{what}_line" for what in ("profiled", "logged"))


def fail_for_the_first(text: str) -> None:
    logging.getLogger("mine").warning("about to say %s", ValueError(text))
    raise ValueError(text)  # a_line_of_the_firsts


def fail_for_the_second(text: str) -> None:
    logging.getLogger("mine").warning("about to say %s", ValueError(text))
    raise ValueError(text)  # a_line_of_the_seconds


def spin(seconds: float) -> None:
    ends = time() + seconds
    while time() < ends:
        sum(range(1000))  # a_profiled_line


def log(text: str) -> None:
    logging.getLogger("mine").warning("it says %s", text)


@pytest.fixture
def second(cluster: LocalCluster, client: Client, sends_soon: None) -> Iterator[Client]:
    with Client(cluster) as second:
        yield second
        close_plugin(client)


def refuse(second: Client, recorder: Recorder, **refused: Any) -> None:
    daskscope.register(second, endpoint=recorder.url, token=TOKEN, interval="100ms", **refused)


def fail_for_both(client: Client, second: Client) -> None:
    wait(client.submit(fail_for_the_first, FIRSTS_TEXT, pure=False))
    wait(second.submit(fail_for_the_second, SECONDS_TEXT, pure=False))


def test_source_lines_in_tracebacks_of_who_refuses_code(
    client: Client, second: Client, register: Register, recorder: Recorder
) -> None:
    register()
    refuse(second, recorder, computation__code__transmit=False)
    fail_for_both(client, second)
    recorder.wait_for(lambda: len(recorder.failures()) == 2, "both failures")
    close_plugin(client)
    told = {row.function: row.traceback or "" for row in recorder.failures()}
    assert FIRSTS_LINE in told["fail_for_the_first"]
    assert "in fail_for_the_second" in told["fail_for_the_second"]
    assert SECONDS_LINE.encode() not in recorder.bytes


def test_texts_of_exceptions_of_who_refuses_them_also_in_logs(
    client: Client, second: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait_for_worker_logs(client)
    refuse(second, recorder, computation__exceptions__transmit=False)
    fail_for_both(client, second)
    recorder.wait_for(lambda: len(recorder.failures()) == 2, "both failures")
    recorder.wait_for(
        lambda: len(recorder.log_records(names.LOG_RECORD.name)) >= 2, "both log records"
    )
    close_plugin(client)
    told = {row.function: (row.message, row.traceback) for row in recorder.failures()}
    assert FIRSTS_TEXT in str(told["fail_for_the_first"][0])
    assert told["fail_for_the_second"] == (None, None)
    assert f"about to say {FIRSTS_TEXT}".encode() in recorder.bytes
    assert SECONDS_TEXT.encode() not in recorder.bytes
    assert b"[refused]" in recorder.bytes


def test_the_profile_has_no_source_lines_once_one_client_refuses_code(
    client: Client, second: Client, register: Register, recorder: Recorder
) -> None:
    register(profile__interval="500ms")
    refuse(second, recorder, computation__code__transmit=False)
    client.submit(spin, 3, pure=False).result()
    recorder.wait_for(
        lambda: [
            line
            for beat in recorder.beats
            for profile in beat.profiles
            for line in profile.lines
            if line.function == "spin"
        ],
        "a profile",
    )
    close_plugin(client)
    assert PROFILED.encode() not in recorder.bytes


def test_profile_and_logs_are_nobodys_once_one_client_refuses_them(
    client: Client, second: Client, register: Register, recorder: Recorder
) -> None:
    register(profile__interval="500ms")
    wait_for_worker_logs(client)
    refuse(
        *(second, recorder),
        profile__transmit=False,
        stream__transmit=False,
        logs__transmit=False,
        instances__transmit=False,
    )
    client.submit(log, LOGGED, pure=False).result()
    client.submit(spin, 3, pure=False).result()
    explanation = daskscope.explain(client)
    assert not explanation["profile.transmit"].on
    assert not explanation["stream.transmit"].on
    assert not explanation["logs.transmit"].on
    assert not explanation["instances.transmit"].on
    close_plugin(client)
    assert not [beat for beat in recorder.beats if beat.profiles or beat.task_streams]
    assert LOGGED.encode() not in recorder.bytes
    in_force = recorder.beats[-1].cluster.settings
    assert (in_force["profile.transmit"], in_force["logs.transmit"]) == ("false", "false")


def test_a_refusal_holds_for_what_the_same_client_has_begun(
    client: Client, second: Client, register: Register, recorder: Recorder
) -> None:
    register()
    begun = client.submit(spin, 1, pure=False)
    failed = client.submit(lambda _, text: fail_for_the_second(text), begun, SECONDS_TEXT)
    recorder.wait_for(recorder.computations, "the computation")
    register(computation__exceptions__transmit=False)
    wait(failed)
    recorder.wait_for(recorder.failures, "the failure")
    close_plugin(client)
    assert SECONDS_TEXT.encode() not in recorder.bytes


def test_a_refusal_holds_where_dask_has_not_started_the_plugin_of_a_preload_yet(
    client: Client, second: Client, register: Register, recorder: Recorder
) -> None:
    client.run_on_scheduler(_add_without_starting, recorder.url)
    refuse(second, recorder, computation__exceptions__transmit=False)
    wait(second.submit(fail_for_the_second, SECONDS_TEXT, pure=False))
    (failure,) = recorder.wait_for(recorder.failures, "the failure")
    close_plugin(client)
    assert failure.message is None


def _add_without_starting(url: str, dask_scheduler: Any) -> None:
    chosen = settings(endpoint=url, token=TOKEN, interval="100ms")
    dask_scheduler.add_plugin(Plugin(chosen, Registrant("grace", "there")), name=NAME)


def test_a_preload_does_not_put_a_client_out_that_was_first(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__exceptions__transmit=False)
    client.run_on_scheduler(_preload, recorder.url)
    wait(client.submit(fail_for_the_first, FIRSTS_TEXT, pure=False))
    (failure,) = recorder.wait_for(recorder.failures, "the failure")
    assert failure.message is None


async def _preload(url: str, dask_scheduler: Any) -> None:
    assert dask_setup.callback is not None
    await dask_setup.callback(dask_scheduler, daskscope_endpoint=url, daskscope_token=TOKEN)


def test_explain_shows_nothing_that_is_refused(
    client: Client, second: Client, register: Register, recorder: Recorder
) -> None:
    register()
    refuse(second, recorder, computation__exceptions__transmit=False)
    fail_for_both(client, second)
    shown = str(daskscope.explain(client))
    assert FIRSTS_TEXT in shown
    assert SECONDS_TEXT not in shown


NO_TEXTS = frozenset({"exceptions_transmit"})


def test_what_cannot_be_told_apart_is_refused_where_anyone_refuses_it() -> None:
    refusals = OptOuts(Counter())
    refusals.began("of a task", "Client-worker-1")
    refusals.began("of one", "Client-1")
    refusals.began("of other", "Client-2")
    everything = ("of a task", "of one", "of other", "unknown", None)

    def refused() -> list[bool]:
        return [refusals.by_owner_of(id, "exceptions_transmit") for id in everything]

    assert refused() == [False] * 5
    refusals.client_refuses("Client-2", NO_TEXTS)
    assert refused() == [True, False, True, True, True]
    assert not refusals.by_any("code_transmit")
    refusals.client_refuses("Client-2", frozenset())
    assert refused() == [False] * 5


def test_what_is_remembered_is_bounded_and_then_refused_for_all() -> None:
    drops: Counter[str] = Counter()
    refusals = OptOuts(drops)
    for number in range(MAX_COMPUTATIONS + 1):
        refusals.began(str(number), "Client-of-none")
    refusals.client_refuses("Client-0", NO_TEXTS)
    assert refusals.by_owner_of("0", "exceptions_transmit")
    assert not refusals.by_owner_of("1", "exceptions_transmit")
    for number in range(1, MAX_CLIENTS + 1):
        refusals.client_refuses(f"Client-{number}", frozenset({"code_transmit"}))
    assert refusals.by_owner_of("1", "exceptions_transmit")
    assert not refusals.by_owner_of("1", "code_transmit")
    assert drops == {"refusal of a client": 1}
