"""What is told of a graph beside its tasks: annotations, size."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

import dask
import dask.array as da
import pytest
from distributed import Client, Event, wait

from daskscope.observe.tasks.graphs import (
    MAX_ANNOTATIONS,
    MAX_CHARACTERS,
    MAX_VALUES,
    read_graph,
)
from daskscope.observe.workers.losses import Losses
from daskscope.scrubbing import SCRUBBED
from daskscope.size import estimate
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder
from tests.exporter.test_computations import hold, inc

pytestmark = pytest.mark.contract


def _annotations(**annotations: Any) -> dict[str, str]:
    return read_graph({"annotations": annotations}, Counter()).annotations


def test_annotations_of_the_whole_graph_are_told_as_scrubbed_texts(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__code__transmit=False)  # the key stands in the code below
    told = {"owner": "ann", "note": "password='hunter2'", "api_token": "x", "traceparent": "00-1"}
    with dask.annotate(**told):  # type: ignore[attr-defined]
        client.submit(inc, 1, retries=2, key="of-smith").result()

    assert recorder.computation().annotations == {
        "owner": "ann",
        "note": f"password={SCRUBBED}",
        "api_token": SCRUBBED,
        "retries": "2",
    }
    assert b"of-smith" not in recorder.bytes


def test_no_method_of_a_users_type_runs_while_annotations_and_events_are_read() -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("it may take any time, on the scheduler's event loop")

    methods = dict.fromkeys(
        ("__str__", "__repr__", "__getitem__", "__len__", "__iter__", "bit_length", "get", "items"),
        refuse,
    )
    text, whole, share, some, amounts = (
        type("Users", (kind,), methods)(value)
        for kind, value in (
            (str, "ann"), (int, 3), (float, 0.5), (list, ["a", 2]), (dict, {"GPU": 1}),
        )
    )  # fmt: skip
    assert _annotations(a=text, b=whole, c=share, d=some, e=True, resources=amounts) == {
        "a": "ann",
        "b": "3",
        "c": "0.5",
        "d": "a, 2",
        "e": "True",
        "resources": "GPU=1",
    }
    losses = Losses(
        cast(Any, None),
        str,
        Counter(),
        left=cast(Any, None),
        unended=cast(Any, None),
        lost=cast(Any, None),
        peak=cast(Any, None),
        had=cast(Any, None),
    )
    losses.event("all", amounts)
    assert estimate(amounts) > 100


def test_annotations_that_dask_has_by_task_are_not_told(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(computation__code__transmit=False)
    with dask.annotate(note="of-the-layer", by_key=str):  # type: ignore[attr-defined]
        array = da.ones(4, chunks=2, name="of-smith")
    with dask.annotate(owner="ann"):  # type: ignore[attr-defined]
        kept = array.persist(optimize_graph=False)
    wait(kept)

    computation = recorder.computation()
    assert (computation.tasks, computation.annotations) == (2, {"owner": "ann"})
    assert {"by_key", "note", "owner"} <= client.run_on_scheduler(_annotations_of_tasks)
    for text in (b"of-the-layer", b"of-smith"):
        assert text not in recorder.bytes


def _annotations_of_tasks(dask_scheduler: Any) -> set[str]:
    return {name for task in dask_scheduler.tasks.values() for name in task.annotations or ()}


def test_of_annotations_only_short_plain_values_are_told() -> None:
    assert _annotations(
        span={"name": ("a",), "ids": ("1",)},
        retries={"a key": 2},
        priority=lambda key: 1,
        workers=["tcp://a:1", "tcp://b:2"],
        resources={"GPU": 1, "MEM": 2e9},
        huge=10**5000,
        nothing=None,
    ) == {"workers": "tcp://a:1, tcp://b:2", "resources": "GPU=1, MEM=2000000000.0"}
    assert _annotations(resources={"a key": {"GPU": 1}}) == {}


def test_annotations_are_bounded() -> None:
    many = _annotations(**{f"name{number}": "x" * 10_000 for number in range(1_000)})
    assert len(many) == MAX_ANNOTATIONS
    assert max(map(len, many.values())) == MAX_CHARACTERS
    assert _annotations(workers=list(range(1_000)))["workers"].count(",") == MAX_VALUES


def test_the_size_of_the_graph_is_told_and_adds_up(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    client.submit(len, b"x" * 100_000).result()
    large = recorder.computation().graph_bytes
    assert large is not None
    assert 100_000 < large < 200_000

    def submit(number: int) -> Any:
        return client.submit(hold, number, "x" * 10_000)

    client.submit(inc, 1).result()
    futures = [submit(number) for number in range(2)]
    row = recorder.wait_for(
        lambda: next((r for r in recorder.computations().values() if r.tasks == 2), None), "both"
    )
    assert row.graph_bytes is not None
    assert 20_000 < row.graph_bytes < 40_000
    Event("x" * 10_000, client=client).set()
    wait(futures)


def test_types_of_results_and_the_histogram_of_durations_are_told(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    held = da.ones((40, 40), chunks=(10, 10)).persist()
    wait(held)

    computation = recorder.computation()
    (group,) = recorder.groups(computation.id).values()
    assert group.types == {"numpy.ndarray": 16}
