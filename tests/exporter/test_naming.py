"""What tasks are called, by the keys that Dask really makes; and what they never are."""

from __future__ import annotations

import operator
import uuid
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from dask._task_spec import Task
from dask.delayed import delayed
from distributed import Client, LocalCluster, wait

from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder
from tests.exporter.test_scale import observer_of

MARKER = "mark" + "er9"


def work(*args: Any, **kwargs: Any) -> int:
    return 1


def _private(number: int) -> int:
    return number


class Odd:
    """Of a class that says of no module that it is from there."""

    def __call__(self, number: int) -> int:
        return number


Odd.__module__ = None  # type: ignore[assignment]


class Model:
    """An object that is called, as users have them. What it is made of is their business."""

    def __call__(self, number: int) -> int:
        return number

    def fit(self) -> int:
        return 1

    def __repr__(self) -> str:
        return f"Model({MARKER})"


def _array(name: str | None = None, **kwargs: Any) -> Any:
    array = pytest.importorskip("dask.array")
    return array.from_array([0, 1, 2, 3], chunks=2, name=name, **kwargs)


def _ones(**kwargs: Any) -> Any:
    array = pytest.importorskip("dask.array")
    return array.ones((20, 4), chunks=(5, 4), **kwargs)


def _svd() -> Any:
    return pytest.importorskip("dask.array").linalg.svd(_ones())


def _bag() -> Any:
    bag = pytest.importorskip("dask.bag")
    return bag.from_sequence(range(6), npartitions=2)


def _frames() -> Any:
    pytest.importorskip("pandas")
    return pytest.importorskip("dask.dataframe")


def _frame() -> Any:
    return _frames().from_dict({"a": range(6), "b": range(6)}, npartitions=2)


def load(number: int) -> Any:
    import pandas

    return pandas.DataFrame({"a": [number]})


def same(part: Any, *args: Any, **kwargs: Any) -> Any:
    return part


def with_place(part: Any, block_info: Any = None) -> Any:
    return part


def total(part: Any, axis: Any, keepdims: bool) -> Any:
    return part.sum(axis=axis, keepdims=keepdims)


def _mapped(function: Callable[..., Any], **kwargs: Any) -> Any:
    with warnings.catch_warnings():
        # Older Dask takes a token, but no longer likes to.
        warnings.simplefilter("ignore", FutureWarning)
        return _ones().map_blocks(function, dtype=float, **kwargs)


def _blockwise(**kwargs: Any) -> Any:
    array = pytest.importorskip("dask.array")
    return array.blockwise(same, "ij", _ones(), "ij", dtype=float, **kwargs)


def _reduced(**kwargs: Any) -> Any:
    array = pytest.importorskip("dask.array")
    return array.reduction(_ones(), total, total, dtype=float, **kwargs)


#: Work of each kind of API, and what its tasks are called: what all versions of Dask agree on.
#: Which tasks are fused, and named after all their steps, they do not.
DASKS: dict[str, tuple[Callable[[Client], Any], set[str]]] = {
    "submit": (lambda c: c.submit(work, 1), {"work"}),
    "submit, impure": (lambda c: c.submit(work, 1, pure=False), {"work"}),
    "submit, lambda": (lambda c: c.submit(lambda: 1), {"lambda"}),
    "submit, partial": (lambda c: c.submit(partial(work, 1)), {"work"}),
    "submit, private": (lambda c: c.submit(_private, 1), {"_private"}),
    "submit, object": (lambda c: c.submit(Model(), 1), {"Model"}),
    "actor": (lambda c: c.submit(Model, actor=True), {"Model"}),
    "map": (lambda c: c.map(work, range(3)), {"work"}),
    "map, impure": (lambda c: c.map(work, range(3), pure=False), {"work"}),
    "map, two": (lambda c: c.map(work, [1, 2], [3, 4]), {"work"}),
    "map, two, impure": (lambda c: c.map(work, [1, 2], [3, 4], pure=False), {"work"}),
    "map, batches": (lambda c: c.map(work, range(4), batch_size=2, pure=False), {"work"}),
    "scatter": (lambda c: c.submit(work, c.scatter(5)), {"work"}),
    "delayed": (lambda c: c.compute(delayed(work)(1)), {"work"}),
    "delayed, pure": (lambda c: c.compute(delayed(work, pure=True)(1)), {"work"}),
    "delayed, list": (
        lambda c: c.compute(delayed(work)([delayed(_private)(1)])),
        {"work", "_private"},
    ),
    "delayed, operator": (lambda c: c.compute(delayed(work)() + 1), {"work", "add"}),
    "delayed, method": (lambda c: c.compute(delayed(Model)().fit()), {"Model", "fit"}),
    "array": (
        lambda c: c.compute((_array() + 1).sum()),
        {"sum", "sum-aggregate"},
    ),
    "array, persisted": (lambda c: c.persist(_array() + 1), {"array-add"}),
    "array, mean": (
        lambda c: c.persist(_ones().mean()),
        {"mean_chunk", "mean_combine-partial", "mean_agg-aggregate"},
    ),
    "array, std": (lambda c: c.persist(_ones().std()), {"var", "var-partial", "sqrt"}),
    "array, sliced": (lambda c: c.persist((_ones() + 1)[1:, :2]), {"add-getitem", "getitem"}),
    "array, map": (lambda c: c.persist(_mapped(same)), {"same"}),
    "array, map, placed": (
        lambda c: c.persist(_mapped(with_place)),
        {"with_place"},
    ),
    "array, svd": (
        lambda c: c.persist(_svd()),
        {"qr", "stack", "svd", "getitem", "dot", "mul"},
    ),
    "bag": (
        lambda c: c.compute(_bag().map(work).fold(operator.add)),
        {"from_sequence-work-reduce-part", "reduce-part", "reduce-aggregate"},
    ),
    "bag, long": (
        lambda c: c.compute(_bag().frequencies().topk(2)),
        {"from_sequence-frequencies-part", "frequencies-part"},
    ),
    "bag, map": (lambda c: c.persist(_bag().map(same)), {"from_sequence-same", "same"}),
    "frame": (
        lambda c: c.compute(_frame().a.sum()),
        {"frompandas", "getitem", "chunk", "sum-tree"},
    ),
    "frame, grouped": (
        lambda c: c.compute(_frame().groupby("a").b.sum()),
        {"frompandas", "chunk", "sum-tree"},
    ),
    "frame, merged": (
        lambda c: c.compute(_frame().merge(_frame(), on="a")),
        {"frompandas", "hash-join-transfer", "shuffle-barrier", "hashjoinp2p"},
    ),
    "frame, map": (lambda c: c.persist(_frame().map_partitions(same)), {"frompandas", "same"}),
    "frame, loaded": (lambda c: c.persist(_frames().from_map(load, [1, 2])), {"load"}),
}

#: Work with keys and names of the user's own, and what its tasks are called.
USERS: dict[str, tuple[Callable[[Client], Any], set[str]]] = {
    "submit": (lambda c: c.submit(work, 1, key=f"{MARKER}-1"), {"work"}),
    "submit, token": (
        lambda c: c.submit(work, 1, key=f"{MARKER}-{uuid.uuid4().hex}"),
        {"work"},
    ),
    "submit, object": (lambda c: c.submit(Model(), 1, key=f"{MARKER}-1"), {"Model"}),
    "submit, object of an odd class": (
        lambda c: c.submit(Odd(), 1, key=f"{MARKER}-1"),
        {"Odd"},
    ),
    "map": (lambda c: c.map(work, range(3), key=MARKER), {"work"}),
    "map, impure": (lambda c: c.map(work, range(3), key=MARKER, pure=False), {"work"}),
    "map, list": (lambda c: c.map(work, [1, 2], key=[f"{MARKER}-a", f"{MARKER}-b"]), {"work"}),
    "map, tuples": (lambda c: c.map(work, [1, 2], key=[(MARKER, 0), (MARKER, 1)]), {"work"}),
    "delayed": (lambda c: c.compute(delayed(work)(1, dask_key_name=MARKER)), {"work"}),
    "delayed, name": (
        lambda c: c.compute(delayed(work, name=MARKER)(delayed(5, name=f"{MARKER}-x"))),
        {"work"},
    ),
    "graph": (lambda c: c.get({MARKER: (work, 1)}, MARKER, sync=False), {"work"}),
    "scattered": (lambda c: c.submit(work, c.scatter({MARKER: 1})[MARKER]), {"work"}),
    "delayed, token": (
        lambda c: c.compute(delayed(work)(delayed(5, name=f"{MARKER}-{uuid.uuid4().hex}"))),
        {"work", "(own key)"},
    ),
    "array": (lambda c: c.compute(_array(MARKER) + 1), {"add"}),
    "array, persisted": (lambda c: c.persist(_array(MARKER) + 1), {"add"}),
    "array, token": (
        lambda c: c.persist(_ones(name=f"{MARKER}-{uuid.uuid4().hex}")),
        {"ones_like"},
    ),
    "array, map, name": (lambda c: c.persist(_mapped(same, name=MARKER)), {"same"}),
    "array, map, token": (lambda c: c.persist(_mapped(same, token=MARKER)), {"same"}),
    "array, map, computed": (
        lambda c: c.compute(_mapped(same, token=MARKER)[1:]),
        {"same"},
    ),
    "array, map, placed": (
        lambda c: c.persist(_mapped(with_place, token=MARKER)),
        {"with_place"},
    ),
    "array, blockwise": (lambda c: c.persist(_blockwise(token=MARKER)), {"same"}),
    "array, reduction": (lambda c: c.persist(_reduced(name=MARKER)), {"total", "Compose"}),
    "bag, object": (lambda c: c.persist(_bag().map(Model())), {"Model"}),
    "bag, map": (lambda c: c.persist(_bag().map_partitions(same, token=MARKER)), {"same"}),
    "bag, reduction": (lambda c: c.compute(_bag().reduction(sum, sum, name=MARKER)), {"sum"}),
    "frame, map": (lambda c: c.persist(_frame().map_partitions(same, token=MARKER)), {"same"}),
    "frame, overlap": (
        lambda c: c.persist(_frame().map_overlap(same, 1, 0, token=MARKER)),
        {"_overlap_chunk"},
    ),
    "frame, from map": (
        lambda c: c.persist(_frames().from_map(load, [1, 2], label=MARKER)),
        {"load"},
    ),
    "frame, from delayed": (
        lambda c: c.persist(
            _frames().from_delayed([delayed(load)(1)], meta=load(1), prefix=MARKER)
        ),
        {"check_meta"},
    ),
}


def _run(
    client: Client, make: Callable[[Client], Any], recorder: Recorder, expected: set[str]
) -> set[str]:
    """Return what the tasks of one piece of work are called, once all have been told."""
    made = make(client)
    wait(made)

    def names() -> set[str] | None:
        found = recorder.computations()
        if not found or any(row.status == "running" for row in found.values()):
            return None
        told = {prefix for id in found for prefix in recorder.groups(id)}
        return told if told >= expected else None

    return recorder.wait_for(names, f"groups called {expected}")


@pytest.mark.parametrize("api", DASKS)
def test_tasks_of_every_api_have_a_name(
    client: Client, register: Register, recorder: Recorder, api: str
) -> None:
    register(computation__code__transmit=False)
    make, expected = DASKS[api]
    names = _run(client, make, recorder, expected)
    assert not names & {"(own key)", "_execute_subgraph"}
    assert MARKER.encode() not in recorder.bytes


@pytest.mark.parametrize("api", USERS)
def test_keys_of_the_users_own_never_become_a_name(
    client: Client, register: Register, recorder: Recorder, api: str
) -> None:
    register(computation__code__transmit=False)
    make, expected = USERS[api]
    _run(client, make, recorder, expected)
    assert MARKER.encode() not in recorder.bytes


def test_calls_of_several_functions_in_one_graph_are_told_apart(
    client: Client, cluster: LocalCluster, register: Register, recorder: Recorder
) -> None:
    register()
    alone = dict.fromkeys("abcdefgh", work)
    mixed = {f"mixed-{number}": (work, _private)[number % 2] for number in range(20)}
    graph = {key: Task(key, function, 1) for key, function in (alone | mixed).items()}
    client.get(graph, list(graph))

    row = recorder.computation(lambda row: row.completed == len(graph))
    groups = recorder.groups(row.id)
    assert {name: group.completed for name, group in groups.items()} == {"work": 18, "_private": 10}
    # What Dask keeps by its own prefixes goes by the same names, where all of a prefix have one.
    known = observer_of(cluster)._naming.known
    assert {known(prefix) for prefix in alone} == {"work"}
    assert known("mixed") == "(own key)"
