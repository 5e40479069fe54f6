"""Refused means absent: markers are planted all over a workload, and every byte is searched.

The workload is a script of its own, so that a marker stands where it is planted and nowhere else:
what is no part of the script's text is written there in hex. It runs while the service is away, so
that all of it goes through the spool, over OTLP, and at last to the service.
"""

from __future__ import annotations

import gzip
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask.config
import pytest
from distributed import Client

from daskscope.delivery.spool import read_records
from tests.exporter.conftest import TOKEN, Register, wait_for_worker_logs
from tests.exporter.recorder import Recorder
from tests.patience import PATIENCE, wait_until

#: What it returns keeps a task of the planted key on the scheduler.
Workload = Callable[[Client], object]

#: What a switch refuses.
CODE = "planted-in-code"
TEXT = "planted-in-the-text-of-an-exception"
#: It looks like the name of a class.
REPR = "PlantedInTheReprOfAnException"
SOURCE = "planted-in-a-source-line-of-a-traceback"
PROFILE = "planted-in-a-line-of-the-profile"
EVENT = "planted-in-an-event"
LOG = "planted-in-a-log-line"
TAG = "planted-in-a-tag"
CURRENCY = "XTS"
TRACE = "decade0facade0decade0facade0feed"
#: Whatever is sent of the task stream.
STREAM = '"task_streams":[{'
#: All of these.
REFUSABLE = {CODE, TEXT, REPR, SOURCE, PROFILE, EVENT, LOG, TRACE, TAG, CURRENCY, STREAM}

#: What no switch refuses: users write it to be told.
ANNOTATION = "planted-in-an-annotation"
SPAN = "planted-in-the-name-of-a-span"

#: What never leaves.
KEY = "planted-in-a-key"
ARGUMENT = "planted-in-an-argument"
RESULT = "planted-in-a-result"
PASSWORD = "planted-as-a-password"
VARIABLE = "planted-in-the-environment"
NEVER = (KEY, ARGUMENT, RESULT, PASSWORD, VARIABLE)

GIVEN = {
    "events__allow": "*",
    "tags": {"project": TAG, "where": f"https://me:{PASSWORD}@example.org"},
    "prices": {"currency": CURRENCY, "thread": 0.06},
}


def _hex(text: str) -> str:
    return f"bytes.fromhex({text.encode().hex()!r}).decode()"


SCRIPT = f"""\
import logging
import time
import warnings

import dask
import dask.array as da
import dask.bag as db
from distributed import get_worker, span, wait

try:
    import dask.dataframe as dd
except ImportError:
    dd = None

KEY, ARGUMENT, RESULT = {_hex(KEY)}, {_hex(ARGUMENT)}, {_hex(RESULT)}
TEXT, REPR, EVENT, LOG = {_hex(TEXT)}, {_hex(REPR)}, {_hex(EVENT)}, {_hex(LOG)}
ANNOTATION, SPAN, TRACE = {_hex(ANNOTATION)}, {_hex(SPAN)}, {_hex(TRACE)}
PASSWORD = {_hex(PASSWORD)}


class SaysWhatItLikes(Exception):
    def __repr__(self):
        return REPR


def work(argument):
    logging.getLogger("the.users.own").warning("%s password=%s1", LOG, PASSWORD)
    escaped = ValueError("it's" + chr(10) + f'"{{TEXT}}"')
    logging.getLogger("the.users.own").warning("%r, %r", escaped, SaysWhatItLikes())
    try:
        raise escaped
    except ValueError as error:
        logging.getLogger("the.users.own").warning("%r", str(error))
    return RESULT + argument


def spin(argument):
    # So long that a worker has looked at it, and begun to look anew: see _begin_anew_often.
    ends = time.monotonic() + 1
    while time.monotonic() < ends: sum(range(10_000))  # {PROFILE} password="{PASSWORD}1"
    return RESULT


def fail(argument):
    key = get_worker().get_current_task()
    raise ValueError(f"{{TEXT}} of the task {{key}}, password={{PASSWORD}}1")  # {SOURCE}


def fail_and_say(argument):
    raise SaysWhatItLikes()


def fail_and_name_another(argument):
    from distributed.client import FutureCancelledError

    raise FutureCancelledError(KEY, "lost dependencies")


def fail_because_of_others(argument):
    key = get_worker().get_current_task()
    try:
        try:
            fail_and_name_another(argument)
        except Exception as error:
            raise ValueError(f"{{TEXT}} of {{key}}, password={{PASSWORD}}1") from error  # {SOURCE}
    except ValueError:
        fail_and_say(argument)


def block(number, argument):
    return number + len(argument)


def block_of_bag(texts, argument):
    return list(texts)


def block_of_frame(frame, argument):
    return frame


def print_on_worker(argument):
    from distributed import print

    print(argument)
    get_worker().log_event(["all", "stealing"], ("request", KEY, {{KEY: 1.0}}))


def the_last(argument):
    return RESULT


# Far from what fails and spins: some lines around a call are sent as its code.
#
#
#
#
def run(client):
    password = "{PASSWORD}"  # {CODE}
    secret = {{"password": PASSWORD, "text": EVENT}}
    spun = client.submit(spin, ARGUMENT, key=KEY + "-0")
    annotated = dask.annotate(
        note=f"{{ANNOTATION}} password={{PASSWORD}}1",
        secret_token=PASSWORD,
        traceparent=f"00-{{TRACE}}-00f067aa0ba902b7-01",
    )
    with annotated, span(SPAN, f"password={{PASSWORD}}1"):
        futures = [
            client.submit(work, ARGUMENT, key=KEY),
            client.submit(work, ARGUMENT, key=(KEY, 0)),
            client.submit(fail, ARGUMENT, key=(KEY, 1)),
            client.submit(fail, ARGUMENT, key=KEY + "1"),
            client.submit(fail, ARGUMENT, key=KEY + "2", retries=1),
            client.submit(fail_and_name_another, ARGUMENT, key=KEY + "3"),
            client.submit(fail_and_say, ARGUMENT, key=KEY + "4"),
            client.submit(fail_because_of_others, ARGUMENT, key=KEY + "5"),
        ]
        wait(futures)
    lazy = dask.delayed(work)(ARGUMENT, dask_key_name=KEY + "-4")
    client.compute(lazy).result()
    array = da.ones(4, chunks=2, name=KEY + "-5")
    array.map_blocks(block, ARGUMENT, name=KEY + "-6").compute()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        tokened = array.map_blocks(block, ARGUMENT, token=KEY)
    tokened.compute()
    bag = db.from_sequence("ab").map_partitions(block_of_bag, ARGUMENT, token=KEY)
    held = client.persist([tokened, bag])
    if dd is not None:
        frame = dd.from_dict({{"a": [1, 2]}}, npartitions=2)
        held += client.persist([frame.map_partitions(block_of_frame, ARGUMENT, token=KEY)])
    wait(held)
    client.persist(da.ones(4, chunks=2, name=KEY + "-7"))
    client.submit(print_on_worker, ARGUMENT, key=KEY + "-8").result()
    client.scatter({{KEY + "-9": ARGUMENT}})
    client.run(work, ARGUMENT)
    client.log_event("planted", secret)
    wait(spun)
    client.submit(the_last, ARGUMENT).result()
    return spun
"""


@dataclass(frozen=True)
class Left:
    """What left the process, as text: requests by path, and what lay in the spool.

    And all there was, those that were refused too.
    """

    by_path: dict[str, str]
    spool: str
    everything: str

    def __contains__(self, marker: str) -> bool:
        return marker in self.everything

    def found(self, markers: Iterable[str]) -> list[str]:
        """Each marker that is there, with what is around it."""
        left = self.everything
        places = ((left.find(marker), len(marker)) for marker in markers)
        return [left[max(at - 150, 0) : at + length + 50] for at, length in places if at >= 0]

    def lacks(self, markers: Iterable[str], path: str | None = None) -> list[str]:
        text = self.everything if path is None else self.by_path.get(path, "")
        return [marker for marker in markers if marker not in text]


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
    client: Client,
    register: Register,
    recorder: Recorder,
    workload: Workload,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Left]]:
    """Register with what is refused, work, and return all that was sent until the last."""
    monkeypatch.setenv("THE_USERS_OWN_VARIABLE", VARIABLE)
    folder = tmp_path / "spool"

    def left(**refused: Any) -> Left:
        chosen = {**GIVEN, **refused}
        recorder.misbehave = lambda path: 503 if path.startswith("/api/") else None
        register(**chosen, spool__directory=str(folder), profile__interval="500ms")
        client.run(_begin_anew_often)
        client.run_on_scheduler(_log_what_names_keys)
        if not chosen.get("disabled") and chosen.get("logs__transmit", True):
            wait_for_worker_logs(client)
        # Whatever the switch says, the client sends its code to the scheduler, by Dask's setting.
        with dask.config.set({"distributed.diagnostics.computations.nframes": 2}):
            spun = workload(client)
        assert client.run_on_scheduler(_keys), "nothing was there to be refused"
        del spun
        if chosen.get("disabled"):
            assert not folder.exists()
            return Left({}, "", recorder.bytes.decode("latin-1"))
        profiled = chosen.get("profile__transmit", True)
        spool = _spool_with_all(folder, profiled)
        recorder.misbehave = lambda path: None
        # Code comes last: it is sent when it was asked for.
        recorder.wait_for(lambda: len(recorder.beats) >= 3, "three beats")
        _kill(client)
        client.run_on_scheduler(_end)
        recorder.wait_for(recorder.losses, "the loss of the worker")
        by_path: dict[str, str] = {}
        for request in recorder.requests:
            text = _text(f"{request.headers}".encode() + request.body)
            by_path[request.path] = by_path.get(request.path, "") + text
        return Left(by_path, spool, _text(recorder.bytes) + spool)

    # Else the cluster lets go of the worker that was killed, its nanny included, after a while.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}):
        yield left
        # The nanny starts another one, for the next test.
        client.wait_for_workers(1, timeout=PATIENCE)


def _begin_anew_often(dask_worker: Any) -> None:
    """Let the worker begin a new cycle of its profile five times a second."""
    cycle = dask_worker.periodic_callbacks["profile-cycle"]
    cycle.stop()
    cycle.callback_time = 200
    cycle.start()


def _text(sent: bytes) -> str:
    # As bytes an id is no text.
    return sent.decode("latin-1").replace(bytes.fromhex(TRACE).decode("latin-1"), TRACE)


def _spool_with_all(folder: Path, profiled: bool) -> str:
    """Wait until the spool holds what came last. Return what it holds."""
    last = [b'"prefix":"the_last"', *([b'"function":"spin"'] if profiled else [])]
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        bodies: list[bytes] = []
        for file in folder.glob("*.beats"):
            with suppress(FileNotFoundError):
                bodies += map(gzip.decompress, read_records(file.read_bytes()))
        held = b"\n".join(bodies)
        if all(word in held for word in last):
            return held.decode("latin-1")
        time.sleep(0.05)
    raise AssertionError(f"never in the spool: {held!r}")


def _kill(client: Client) -> None:
    """End the worker as the system would."""
    workers = client.run(os.getpid)
    for pid in workers.values():
        os.kill(pid, signal.SIGKILL)
    # What the client itself knows of workers is seconds old.
    wait_until(lambda: not workers.keys() & client.run_on_scheduler(_workers), what="their end")


def _workers(dask_scheduler: Any) -> set[str]:
    return set(dask_scheduler.workers)


def _keys(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks if KEY in str(key)]


async def _end(dask_scheduler: Any) -> None:
    await dask_scheduler.plugins["daskscope"].close()


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
    everything_that_left: Callable[..., Left],
) -> None:
    left = everything_that_left()
    assert left.found(NEVER) == []
    # What is not refused is there, each way that it goes: else the tests below would hold for
    # nothing.
    told = [CODE, TEXT, REPR, SOURCE, PROFILE, STREAM, EVENT, TRACE, TAG, CURRENCY]
    told += [ANNOTATION, SPAN]
    assert left.lacks([*told, LOG], "/api/v1/heartbeats") == []
    assert [marker for marker in told if marker not in left.spool] == []
    operations = ['"prefix":"block"', '"prefix":"block_of_bag"']
    assert left.lacks(operations, "/api/v1/heartbeats") == []
    assert left.lacks([TEXT, REPR, SOURCE, EVENT, LOG, TRACE], "/v1/logs") == []
    spans = ["dask.computation", "dask.task_group", "dask.task.outcome", TRACE]
    assert left.lacks(spans, "/v1/traces") == []
    assert left.lacks([CURRENCY], "/v1/metrics") == []
    # The token is in headers of requests alone.
    assert TOKEN not in left.spool
    assert left.everything.count(TOKEN) == left.everything.count(f"Bearer {TOKEN}")


NOTHING = {
    "computation__code__transmit": False,
    "computation__exceptions__transmit": False,
    "profile__transmit": False,
    "stream__transmit": False,
    "logs__transmit": False,
    "traces__transmit": False,
    "events__allow": [],
    "tags": {},
    "prices": {},
}


@pytest.mark.parametrize(
    ("refused", "absent"),
    [
        ({"computation__code__transmit": False}, {CODE, SOURCE, PROFILE}),
        ({"computation__exceptions__transmit": False}, {TEXT, REPR, SOURCE}),
        (
            {"logs__transmit": False, "prices": {}, "stream__transmit": False},
            {LOG, CURRENCY, STREAM},
        ),
        ({"logs__level": "ERROR", "profile__transmit": False}, {LOG, PROFILE}),
        (
            {"events__allow": ["worker-fail-hard"], "traces__transmit": False, "tags": {}},
            {EVENT, TRACE, TAG},
        ),
        (NOTHING, REFUSABLE),
    ],
    ids=[
        "code",
        "exceptions",
        "logs and stream",
        "log level and profile",
        "events and traces",
        "all",
    ],
)
def test_what_a_switch_refuses_is_in_no_byte(
    everything_that_left: Callable[..., Left], refused: dict[str, Any], absent: set[str]
) -> None:
    left = everything_that_left(**refused)
    assert left.found((*absent, *NEVER)) == []
    assert left.lacks({*REFUSABLE, ANNOTATION, SPAN} - absent) == []
    traced = refused.get("traces__transmit", True)
    assert ("/v1/traces" in left.by_path) == traced


def test_without_otlp_nothing_is_sent_over_it(everything_that_left: Callable[..., Left]) -> None:
    left = everything_that_left(otlp__enabled=False)
    assert set(left.by_path) == {"/api/v1/heartbeats"}
    assert left.found(NEVER) == []


def test_disabled_sends_nothing_at_all(
    everything_that_left: Callable[..., Left], recorder: Recorder
) -> None:
    assert everything_that_left(disabled=True).everything == ""
    assert recorder.requests == []


def test_the_script_holds_only_the_markers_of_its_code() -> None:
    in_hex = (TEXT, REPR, EVENT, LOG, KEY, ARGUMENT, RESULT, ANNOTATION, SPAN, TRACE)
    assert [marker for marker in in_hex if marker in SCRIPT] == []
