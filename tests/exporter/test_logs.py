"""What the scheduler and the workers log arrives with its task, and holds no more than it may."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from distributed import Client, Event, LocalCluster, get_worker, wait
from distributed.client import FutureCancelledError
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

import daskscope
from daskscope import names
from daskscope.observe.naming import MIN_KEY
from daskscope.plugin import NAME
from daskscope.record_text import describe
from daskscope.worker_logs import RECORDS
from tests.exporter.conftest import TOKEN, Register, wait_for_worker_logs
from tests.exporter.recorder import Recorder
from tests.patience import wait_until

# Put together at run time, so that the markers stand in data and not in this file's own code.
MARKER = "mark" + "er7"

pytestmark = [pytest.mark.usefixtures("sends_soon"), pytest.mark.contract]


def warn(text: str, number: int = 0) -> str:
    logging.getLogger("mine").warning("it says %s", text)
    return get_worker().address


async def warn_in_scheduler(dask_scheduler: Any) -> None:
    logging.getLogger("mine").warning("of the scheduler")


def warn_on_worker() -> None:
    logging.getLogger("mine").warning("of no task")


def flood(lines: int) -> None:
    logger = logging.getLogger("mine.flood")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    for number in range(lines):
        logger.warning("line %d", number)


def log_an_exception(text: str) -> None:
    logger = logging.getLogger("mine")
    try:
        raise ValueError(text)  # this_line_of_code
    except ValueError as error:
        logger.exception("first")
        logger.error("second: %s", error)
        logger.error(f"third: {error!r}")
        logger.error(error)  # fourth


def log_of_what_it_was_made() -> None:
    logger = logging.getLogger("mine")
    try:
        raise KeyError({"row": f"nested-{MARKER}"}, [f"listed-{MARKER}"])
    except KeyError as error:
        logger.error("%s and %s", error.args[0]["row"], error.args[1][0])
    try:
        os.stat(f"/no/such/{MARKER}")
    except OSError as error:
        logger.error("no %s", error.filename)


def fail(text: str) -> None:
    raise ValueError("no text")


def attributes(record: LogRecord) -> dict[str, str]:
    return {pair.key: pair.value.string_value for pair in record.attributes}


def records(
    recorder: Recorder, fits: Callable[[LogRecord], object], count: int = 1
) -> list[LogRecord]:
    """Wait for as many records that fit."""

    def look() -> list[LogRecord] | None:
        found = [record for record in recorder.log_records("dask.log") if fits(record)]
        return found if len(found) >= count else None

    return recorder.wait_for(look, "the log records")


def of(logger: str) -> Callable[[LogRecord], object]:
    return lambda record: attributes(record)[names.LOGGER] == logger


@pytest.fixture
def boarded(client: Client, register: Register) -> Callable[..., None]:
    """Register, and wait until the workers have the plugin."""

    def board(**settings: Any) -> None:
        register(**settings)
        wait_for_worker_logs(client)

    return board


def test_a_tasks_log_record_arrives_with_its_computation_and_prefix(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded()
    worker = client.submit(warn, "hello", key=f"own-{MARKER}").result()
    computation = recorder.computation()

    (record,) = records(recorder, of("mine"))
    assert record.body.string_value == "it says hello"
    assert record.severity_text == "WARN"
    assert record.trace_id.hex() == computation.trace_id
    assert attributes(record) == {
        names.EVENT_NAME: names.LOG_RECORD.name,
        names.LOGGER: "mine",
        names.WORKER_ADDRESS: worker,
        names.COMPUTATION_ID: computation.id,
        names.TASK_PREFIX: "warn",
    }
    assert MARKER.encode() not in recorder.bytes


def raise_an_error() -> None:
    raise ValueError("reported as an exception")


def test_that_a_run_has_failed_is_no_record_of_its_own(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded()
    wait(client.submit(raise_an_error, pure=False))
    client.submit(warn, "what the worker logs after it", pure=False).result()
    records(recorder, of("mine"))
    found = [record.body.string_value for record in recorder.log_records("dask.log")]
    assert not [text for text in found if "Compute Failed" in text]
    assert [failure.type for failure in recorder.failures()] == ["ValueError"]


def test_what_scheduler_and_workers_log_outside_of_tasks_arrives(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded()
    logging.getLogger("mine").warning("of the user's own script")
    client.run_on_scheduler(warn_in_scheduler)
    (worker,) = client.run(warn_on_worker)

    found = records(recorder, of("mine"), 2)
    assert {record.body.string_value: attributes(record).get(names.WORKER_ADDRESS)
            for record in found} == {"of the scheduler": None, "of no task": worker}  # fmt: skip


def test_below_the_level_nothing_arrives(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded(logs__level="ERROR")
    client.submit(warn, MARKER).result()
    client.submit(log_an_exception, "above").result()

    records(recorder, of("mine"), 4)
    assert MARKER.encode() not in recorder.bytes


def test_refused_logs_are_absent_and_nothing_is_put_on_the_workers(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(logs__transmit=False)
    client.run_on_scheduler(warn_in_scheduler)
    client.submit(warn, f"text-{MARKER}").result()
    recorder.computation()
    client.run_on_scheduler(_end)
    recorder.wait_for(lambda: recorder.log_records(names.LOG_CLUSTER_STOPPED.name), "the last one")

    assert not recorder.log_records("dask.log")
    # That of the test before may still be leaving.
    wait_until(
        lambda: "daskscope-logs" not in client.run_on_scheduler(_worker_plugins),
        what="the end of the plugin",
    )


def _worker_plugins(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.worker_plugins)


async def _end(dask_scheduler: Any) -> None:
    await dask_scheduler.plugins[NAME].close()


@pytest.mark.uncounted("it takes out the plugin itself")
def test_the_plugin_leaves_the_workers_with_the_schedulers(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded()
    client.run_on_scheduler(lambda dask_scheduler: bool(dask_scheduler.plugins.pop(NAME)))

    def gone(dask_worker: Any) -> bool:
        return "daskscope-logs" not in dask_worker.plugins and not tapped()

    wait_until(lambda: not tapped() and all(client.run(gone).values()), what="the end of the tap")
    assert client.submit(warn, "after").result()


def tapped() -> bool:
    return logging.Logger.callHandlers.__qualname__ != "Logger.callHandlers"


def test_texts_of_refused_exceptions_are_in_no_record(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded(computation__exceptions__transmit=False)
    client.submit(log_an_exception, f"text-{MARKER}").result()

    found = records(recorder, of("mine"), 4)
    assert {record.body.string_value for record in found} == {
        "first",
        "second: [refused]",
        "third: [refused]",
        "[refused]",
    }
    assert attributes(found[0])[names.EXCEPTION_TYPE] == "ValueError"
    assert not [r for r in found if names.EXCEPTION_STACKTRACE in attributes(r)]
    assert MARKER.encode() not in recorder.bytes


def test_nor_is_what_they_were_made_of(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded(computation__exceptions__transmit=False, computation__code__transmit=False)
    client.submit(log_of_what_it_was_made).result()

    found = records(recorder, of("mine"), 2)
    assert {record.body.string_value for record in found} == {
        "[refused] and [refused]",
        "no [refused]",
    }
    assert MARKER.encode() not in recorder.bytes


def test_an_exception_comes_with_its_traceback_and_never_a_source_line(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded(computation__code__transmit=False)
    client.submit(log_an_exception, "a text").result()

    found = records(recorder, of("mine"), 4)
    told = attributes(next(r for r in found if r.body.string_value == "first"))
    assert told[names.EXCEPTION_MESSAGE] == "a text"
    assert "in log_an_exception" in told[names.EXCEPTION_STACKTRACE]
    assert told[names.EXCEPTION_STACKTRACE].endswith("ValueError: a text")
    assert b"this_line_of_code" not in recorder.bytes


def test_the_key_of_the_task_that_logs_it_is_left_out(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded()
    client.submit(warn_of_key, key=(f"key-{MARKER}", 1)).result()

    (record,) = records(recorder, of("mine"))
    assert record.body.string_value == "this is (key)"
    assert MARKER.encode() not in recorder.bytes


@pytest.mark.parametrize("key", ["8675309", ("patient", 7654321), "Smith", "Smith-and-sons"])
def test_a_key_is_left_out_wherever_it_stands(
    client: Client, boarded: Callable[..., None], recorder: Recorder, key: Any
) -> None:
    boarded(computation__code__transmit=False)
    last = key[-1] if isinstance(key, tuple) else key
    client.submit(warn_around, str(last), key=key).result()

    (record,) = records(recorder, lambda record: "wrote" in record.body.string_value)
    if len(str(last)) < MIN_KEY:
        # It may be a part of any word, but is no word by itself.
        assert record.body.string_value == f"wrote (key), /data/{last}_part, x{last}"
    else:
        assert record.body.string_value == "wrote (key), /data/(key)_part, x(key)"
        assert attributes(record)[names.LOGGER] == "jobs.(key)"
        assert str(last).encode() not in recorder.bytes


def warn_around(word: str) -> None:
    logging.getLogger(f"jobs.{word}").warning("wrote %s, /data/%s_part, x%s", word, word, word)


def test_with_code_refused_no_source_line_is_in_a_text_that_was_made_of_a_traceback(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded(computation__code__transmit=False)
    client.submit(log_a_formatted_traceback).result()

    found = records(recorder, of("mine"), 2)
    texts = sorted(record.body.string_value for record in found)
    assert texts[0] == "another process: (told)"
    assert re.fullmatch(
        r'failed:\nTraceback \(most recent call last\):\n  File ".+", line \d+, in '
        r"log_a_formatted_traceback\nValueError: a text\n",
        texts[1],
    )
    told = attributes(next(r for r in found if r.body.string_value == texts[0]))
    assert "in log_a_formatted_traceback" in told[names.EXCEPTION_STACKTRACE]
    assert b"this_line_of_code" not in recorder.bytes


def log_a_formatted_traceback() -> None:
    logger = logging.getLogger("mine")
    try:
        raise ValueError("a text")  # this_line_of_code
    except ValueError:
        text = traceback.format_exc()
        logger.error("failed:\n%s", text)
        try:
            # As multiprocessing has it of a process that failed.
            raise RuntimeError("told") from RuntimeError(f'\n"""\n{text}"""')
        except RuntimeError as error:
            logger.exception("another process: (%s)", error)


def warn_of_key() -> None:
    logging.getLogger("mine").warning("this is %s", get_worker().get_current_task())


def test_exceptions_of_dasks_own_are_told_by_their_type(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded()
    client.submit(log_dasks_exception, f"key-{MARKER}").result()

    (record,) = records(recorder, of("mine"))
    assert record.body.string_value == "there was …"
    told = attributes(record)
    assert told[names.EXCEPTION_TYPE] == "FutureCancelledError"
    assert told[names.EXCEPTION_STACKTRACE].endswith("\nFutureCancelledError")
    assert names.EXCEPTION_MESSAGE not in told
    assert MARKER.encode() not in recorder.bytes


def log_dasks_exception(key: str) -> None:
    try:
        raise FutureCancelledError(key, "lost")
    except FutureCancelledError as error:
        logging.getLogger("mine").exception("there was %s", error)


def test_a_secret_that_a_cut_goes_through_is_left_out(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded()
    client.submit(warn, "long " * 795 + "dsk_ab_" + "0123456789" * 10).result()

    (record,) = records(recorder, of("mine"))
    assert record.body.string_value.endswith("long…")


def test_secrets_are_scrubbed(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded()
    client.submit(warn, f"password='{MARKER}'").result()

    (record,) = records(recorder, of("mine"))
    assert record.body.string_value == "it says password=[scrubbed]"


def test_dasks_own_records_name_neither_keys_nor_arguments(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded(logs__level="INFO")
    wait(client.submit(fail, f"argument-{MARKER}", key=f"key-{MARKER}"))
    with suppress(ZeroDivisionError):
        client.run(_divide, f"argument-{MARKER}")
    client.run_on_scheduler(_complain_of_keys)

    (failed,) = records(recorder, lambda r: r.body.string_value.startswith("Run Failed"))
    assert "Function: …\n" in failed.body.string_value
    records(recorder, lambda r: r.body.string_value == "Couldn't gather keys: …")
    assert MARKER.encode() not in recorder.bytes


def test_a_failed_run_is_an_exception_and_no_record_without_content(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded()
    wait(client.submit(fail, "argument", retries=2))
    client.submit(warn, "after it").result()

    records(recorder, of("mine"))
    recorder.wait_for(lambda: recorder.log_records(names.LOG_EXCEPTION.name), "the exception")
    told = [record.body.string_value for record in recorder.log_records("dask.log")]
    assert [text for text in told if "Failed" in text] == []


def test_the_records_of_a_computation_say_how_it_began_and_ended(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    wait(client.submit(fail, "argument"))
    wait(client.map(str, range(3)))
    halves = client.map(_half_of, [2, 1, 4, 6])
    wait(halves)
    wait(client.map(str, halves[:2]))

    def bodies() -> list[str]:
        kinds = (names.LOG_COMPUTATION_STARTED, names.LOG_COMPUTATION_FINISHED)
        found = [record for kind in kinds for record in recorder.log_records(kind.name)]
        return sorted(record.body.string_value for record in found)

    recorder.wait_for(lambda: len(bodies()) == 8, "both ends of all four")
    assert bodies() == [
        "Computation of 1 task erred: 0 done, 1 raised",
        "Computation of 1 task started",
        "Computation of 2 tasks erred: 1 done, 1 needs one that failed",
        "Computation of 2 tasks started",
        "Computation of 3 tasks finished",
        "Computation of 3 tasks started",
        "Computation of 4 tasks erred: 3 done, 1 raised",
        "Computation of 4 tasks started",
    ]


def test_no_record_of_progress_follows_that_of_the_end(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    first, last = (Event(name, client=client) for name in ("first", "last"))
    futures = client.map(_wait_or_not, range(64), gates=["first", "last"])

    def progress() -> list[Any]:
        return recorder.log_records(names.LOG_COMPUTATION_PROGRESS.name)

    def some_beats() -> None:
        beats = len(recorder.beats)
        recorder.wait_for(lambda: len(recorder.beats) > beats + 8, "the next record to be due")

    kind = names.LOG_COMPUTATION_STARTED.name
    recorder.wait_for(lambda: recorder.log_records(kind), "the beginning")
    some_beats()
    first.set()
    recorder.wait_for(progress, "progress of what waits")
    some_beats()
    last.set()
    wait(futures)
    kind = names.LOG_COMPUTATION_FINISHED.name
    recorder.wait_for(lambda: recorder.log_records(kind), "the end")
    some_beats()
    (ended,) = recorder.log_records(kind)
    assert ended.body.string_value == "Computation of 64 tasks finished"
    assert all(record.time_unix_nano <= ended.time_unix_nano for record in progress())
    assert not [r for r in progress() if r.body.string_value.startswith("Computation: 64 of")]


def _wait_or_not(number: int, gates: list[str]) -> None:
    if number < len(gates):
        Event(gates[number]).wait()


def _half_of(number: int) -> int:
    if number % 2:
        raise ValueError(number)
    return number // 2


def _divide(text: str) -> float:
    return 1 / 0


async def _complain_of_keys(dask_scheduler: Any) -> None:
    await dask_scheduler.gather(keys=[f"key-{MARKER}"])


def test_a_flood_is_bounded_and_counted(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded()
    client.submit(flood, 100_000).result()

    def all_told() -> bool:
        arrived = len([r for r in recorder.log_records("dask.log") if of("mine.flood")(r)])
        return arrived + recorder.beats[-1].drops.get("log record", 0) == 100_000

    recorder.wait_for(all_told, "100,000 lines, told or counted")
    arrived = len([r for r in recorder.log_records("dask.log") if of("mine.flood")(r)])
    assert RECORDS <= arrived < 10 * RECORDS


@pytest.mark.own_cluster
def test_the_last_lines_of_a_killed_worker_arrive(
    client: Client, boarded: Callable[..., None], recorder: Recorder
) -> None:
    boarded()
    client.submit(_say_and_wait, "last words", retries=0)
    client.run_on_scheduler(_allow_no_failure)
    Event("said", client=client).wait()
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)

    (record,) = records(recorder, of("mine"))
    assert record.body.string_value == "it says last words"
    (loss,) = recorder.wait_for(recorder.losses, "the loss")
    assert loss.log is not None
    assert loss.log[-1].endswith("WARNING mine: it says last words")


async def _allow_no_failure(dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = 0


def _say_and_wait(text: str) -> None:
    warn(text)
    Event("said").set()
    Event("never").wait()


@pytest.fixture
def start_lone_worker(cluster: LocalCluster) -> Iterator[Callable[[], str]]:
    """Starts a worker in a process that cannot import daskscope, and returns its name."""
    code = (
        "import sys; sys.modules['daskscope'] = None;"
        "from distributed.cli.dask_worker import main; main()"
    )
    processes = []

    def start() -> str:
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", code, cluster.scheduler_address, "--no-nanny",
                 "--no-dashboard", "--name", "lone", "--nthreads", "1"]
            )
        )  # fmt: skip
        return "lone"

    yield start
    for process in processes:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("first", ["worker", "plugin"])
def test_workers_need_not_have_daskscope_whether_they_are_there_or_come_later(
    client: Client,
    boarded: Callable[..., None],
    recorder: Recorder,
    start_lone_worker: Callable[[], str],
    first: str,
) -> None:
    def warn_there() -> None:  # travels as it stands, for this module cannot be imported there
        import logging

        logging.getLogger("mine").warning("it says from afar")

    if first == "plugin":
        boarded()
    lone_worker = start_lone_worker()
    client.wait_for_workers(2)
    if first == "worker":
        boarded()
    client.submit(warn_there, workers=[lone_worker]).result()

    (record,) = records(recorder, of("mine"))
    assert record.body.string_value == "it says from afar"


def test_in_one_process_each_record_is_told_once_by_the_cluster_that_it_belongs_to(
    recorder: Recorder,
) -> None:
    with ExitStack() as stack:
        clients = []
        for _ in range(2):
            cluster = stack.enter_context(
                LocalCluster(n_workers=2, threads_per_worker=1, processes=False,
                             dashboard_address=":0")
            )  # fmt: skip
            clients.append(stack.enter_context(Client(cluster, set_as_default=False)))
        observed, other = clients
        daskscope.register(observed, endpoint=recorder.url, token=TOKEN, interval="100ms")
        wait_for_worker_logs(observed)
        workers = {
            number: observed.submit(warn, str(number), number).result() for number in range(4)
        }
        other.submit(warn, "other").result()
        logging.getLogger("mine").warning("of the user's own script")
        other.run_on_scheduler(warn_in_scheduler)
        observed.run_on_scheduler(warn_in_scheduler)

        found = records(recorder, of("mine"), 5)
        told = {r.body.string_value: attributes(r).get(names.WORKER_ADDRESS) for r in found}
        expected = {f"it says {number}": worker for number, worker in workers.items()}
        assert told == {**expected, "of the scheduler": None}
        assert len(found) == 5


def test_an_asynchronous_programs_own_records_are_not_its_schedulers(recorder: Recorder) -> None:
    async def program() -> None:
        async with (
            LocalCluster(
                n_workers=1, processes=False, dashboard_address=":0", asynchronous=True
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            await daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
            logging.getLogger("mine").warning("of the program")
            logging.getLogger("distributed.scheduler").warning("of Dask's own")
            await asyncio.to_thread(records, recorder, of("distributed.scheduler"))

    asyncio.run(program())
    assert b"of the program" not in recorder.bytes


def test_the_users_own_logging_is_left_as_it_was(
    client: Client, boarded: Callable[..., None]
) -> None:
    boarded()

    def handlers(dask_worker: Any) -> list[Any]:
        return logging.getLogger().handlers + logging.getLogger("distributed").handlers[1:]

    assert set(map(tuple, client.run(handlers).values())) == {()}


@pytest.mark.parametrize(
    ("say", "text"),
    [
        (lambda log, key: log.warning(f"Removing worker {key} caused harm: {key} ({key})"),
         "Removing worker … caused harm: …"),
        (lambda log, key: log.warning("Task %s died %d times in %.1fs, %d%%", key, 3, 2, 5),
         "Task … died 3 times in 2.0s, 5%"),
        (lambda log, key: log.warning("Process memory: %s of %26s", "1.50 GiB", key),
         "Process memory: 1.50 GiB of …"),
        (lambda log, key: log.warning(f"Worker {key} is slow to %s", key), "… is slow to …"),
        (lambda log, key: log.warning("%(key)s is gone", {"key": key}), "… is gone"),
        (lambda log, key: log.warning(ValueError(key)), "…"),
        (lambda log, key: log.warning("All is %s " + key, key), "All is … …"),
    ],
)  # fmt: skip
def test_of_dasks_records_only_what_stands_in_its_code_is_told(
    say: Callable[[logging.Logger, str], None], text: str
) -> None:
    logger = logging.getLogger("distributed.told")
    told = []

    class Describe(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(describe(record, exceptions=True))

    handler = Describe()
    logger.addHandler(handler)
    try:
        say(logger, f"key-{MARKER} ")
    finally:
        logger.removeHandler(handler)
    assert told[0][3] == text


def _deep(depth: int) -> None:
    if not depth:
        raise ValueError("too deep")
    _deep(depth - 1)


def test_of_a_deep_recursion_the_first_calls_and_the_last_are_told() -> None:
    try:
        _deep(200)
    except ValueError:
        info = sys.exc_info()
    record = logging.LogRecord("mine", logging.ERROR, __file__, 1, "failed", None, info)
    told = describe(record, exceptions=True)[-1]
    assert told is not None
    first = told.splitlines()[1]
    assert first.endswith("in test_of_a_deep_recursion_the_first_calls_and_the_last_are_told")
    assert "[172 calls between these are left out]" in told
    assert told.endswith("in _deep\nValueError: too deep")
