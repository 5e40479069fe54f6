"""What tasks are called, by the keys that Dask really makes; and what they never are."""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from dask.delayed import delayed
from distributed import Client, wait

from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

MARKER = "mark" + "er9"


def work(*args: Any, **kwargs: Any) -> int:
    return 1


def _private(number: int) -> int:
    return number


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


def _svd() -> Any:
    array = pytest.importorskip("dask.array")
    return array.linalg.svd(array.ones((20, 4), chunks=(5, 4)))[1]


def _bag() -> Any:
    bag = pytest.importorskip("dask.bag")
    return bag.from_sequence(range(6), npartitions=2)


def _frame() -> Any:
    pandas = pytest.importorskip("pandas")
    frame = pytest.importorskip("dask.dataframe")
    return frame.from_pandas(pandas.DataFrame({"a": range(6)}), npartitions=2)


#: Work of each kind of API, and what its tasks are called.
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
    # Which of its tasks are fused, and named after all their steps, differs by Dask's version.
    "array, svd": (lambda c: c.compute(_svd()), {"getitem"}),
    "bag": (lambda c: c.compute(_bag().map(work).fold(operator.add)), set()),
    "bag, long": (lambda c: c.compute(_bag().frequencies().topk(2)), set()),
    "frame": (lambda c: c.compute(_frame().a.sum()), set()),
}

#: Work with keys and names of the user's own, and what its tasks are called.
USERS: dict[str, tuple[Callable[[Client], Any], set[str]]] = {
    "submit": (lambda c: c.submit(work, 1, key=f"{MARKER}-1"), {"work"}),
    "submit, token": (
        lambda c: c.submit(work, 1, key=f"{MARKER}-{uuid.uuid4().hex}"),
        {"work"},
    ),
    "submit, object": (lambda c: c.submit(Model(), 1, key=f"{MARKER}-1"), {"Model"}),
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
    "array": (lambda c: c.compute(_array(MARKER) + 1), {"add"}),
    "array, persisted": (lambda c: c.persist(_array(MARKER) + 1), {"add"}),
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
