"""Graphs that Dask makes no task of: what is in them cannot be loaded, or needs what is gone."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest
from dask.delayed import delayed
from distributed import Client, Future
from distributed.scheduler import Scheduler

from daskscope import names
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder
from tests.exporter.test_traces import attributes, spans

pytestmark = pytest.mark.contract

MARKER = "marker-of-the-exception"


class Unloadable:
    """What its scheduler has no module for."""

    def __reduce__(self) -> tuple[Any, ...]:
        return __import__, ("no_such_module_on_the_scheduler",)


class Fails:
    def __reduce__(self) -> tuple[Any, ...]:
        return fail, (MARKER,)


def fail(text: str) -> None:
    raise ValueError(text)


def release(client: str, key: Any, dask_scheduler: Any) -> None:
    dask_scheduler.client_releases_keys([key], client, stimulus_id="test")


def inc(x: Any) -> Any:
    return x


@pytest.mark.parametrize("collection", [False, True])
def test_one_that_the_scheduler_cannot_load_is_an_erred_computation_with_its_failure(
    client: Client, register: Register, recorder: Recorder, collection: bool
) -> None:
    register()
    submitted = (
        client.compute(delayed(inc)(Unloadable()))
        if collection
        else client.submit(inc, Unloadable())
    )
    with pytest.raises(RuntimeError, match="deserialization"):
        submitted.result()

    computation = recorder.computation()
    assert (computation.status, computation.tasks, computation.erred) == ("erred", 0, 0)
    assert computation.frames
    assert computation.graph_bytes
    (failure,) = recorder.wait_for(recorder.failures, "the failure")
    assert (failure.type, failure.computation) == ("ModuleNotFoundError", computation.id)
    assert failure.function == "(graph)"
    assert "no_such_module_on_the_scheduler" in (failure.message or "")
    assert failure.count == 1
    # The next one is another.
    assert client.submit(inc, 1).result() == 1
    recorder.computation(lambda row: row.status == "finished" and row.tasks == 1)
    assert len(recorder.computations()) == 2
    span = recorder.wait_for(
        lambda: next(
            (
                span
                for span in spans(recorder, names.SPAN_COMPUTATION.name)
                if attributes(span)[names.COMPUTATION_ID] == computation.id
            ),
            None,
        ),
        "its span",
    )
    assert span.status.code == span.status.STATUS_CODE_ERROR


def test_what_is_refused_of_exceptions_and_code_is_of_its_too(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__exceptions__transmit=False, computation__code__transmit=False)
    with pytest.raises(RuntimeError, match="deserialization"):
        client.submit(inc, Fails()).result()
    (failure,) = recorder.wait_for(recorder.failures, "the failure")
    assert (failure.type, failure.message, failure.traceback) == ("ValueError", None, None)
    assert recorder.computation().frames is None
    assert MARKER.encode() not in recorder.bytes


@pytest.mark.skipif(
    '"status": "cancelled"' not in inspect.getsource(Scheduler.update_graph),
    reason="this version of Dask tells nobody",
)
def test_what_dask_says_of_the_keys_of_one_is_not_sent(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__code__transmit=False)
    graph = {"patient-4711": (inc, "patient-4712"), "patient-4712": (inc, "patient-4711")}
    with pytest.raises(RuntimeError, match="patient-4711"):
        client.get(graph, "patient-4711")

    failure = recorder.wait_for(recorder.failures, "its failure")[0]
    assert (failure.type, failure.message) == ("RuntimeError", "RuntimeError(…)")
    assert "4711" not in "".join(map(str, recorder.beats))


@pytest.mark.skipif(
    '"status": "cancelled"' not in inspect.getsource(Scheduler.update_graph),
    reason="this version of Dask tells nobody",
)
def test_one_that_needs_a_result_that_is_gone_is_cancelled(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    lost = client.submit(inc, 1)
    lost.result()
    # As when a worker's future outlives a restart: this client does not hear of it.
    client.run_on_scheduler(release, client.id, lost.key)
    recorder.wait_for(
        lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)),
        "Dask to forget the result",
    )
    needs: Future[Any] = client.submit(inc, lost)
    ended = threading.Event()
    needs.add_done_callback(lambda _: ended.set())
    assert ended.wait(20)
    assert needs.cancelled()
    row = recorder.computation(lambda row: row.status == "cancelled")
    assert (row.tasks, row.cancelled) == (0, 1)
    assert not recorder.failures()
