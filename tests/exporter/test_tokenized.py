"""Which task groups have names that stand for their inputs, on a real cluster: what breaks that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.delayed import delayed

from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder

pytestmark = pytest.mark.contract


def inc(x: int) -> int:
    return x + 1


def _numbers(name: Any = None, first: int = 0) -> Any:
    return da.from_array(np.arange(first, first + 16).reshape(4, 4), chunks=2, name=name)


class Work:
    """Runs work, and knows which of its groups have names that stand for their inputs."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.known: set[str] = set()

    def names(self, work: Any) -> set[str]:
        """Compute ``work``; return the names of its tokenized groups."""
        work.compute()
        row = self.recorder.computation(lambda row: row.id not in self.known)
        self.known.add(row.id)
        groups = [one for one in self.recorder.all_groups() if one.computation == row.id]
        return {group.name for group in groups if group.tokenized}


@pytest.fixture
def work(register: Register, recorder: Recorder) -> Work:
    register()
    return Work(recorder)


@pytest.mark.parametrize(
    "make",
    [
        lambda: da.ones((4, 4), chunks=2).sum(),
        lambda: da.random.RandomState(3).random_sample((4, 4), chunks=2).sum(),
        _numbers,
        lambda: db.from_sequence(range(6), npartitions=2).map(inc),
    ],
    ids=["array", "seeded", "numpy", "bag"],
)
def test_the_same_work_has_the_same_names(work: Work, make: Callable[[], Any]) -> None:
    first = work.names(make())
    assert first
    assert work.names(make()) == first


@pytest.mark.parametrize(
    "make",
    [
        lambda: da.random.default_rng().random((4, 4), chunks=2).sum(),
        lambda: _numbers(name=False).sum(),
        lambda: da.from_delayed(delayed(np.ones)(4), (4,), dtype=float).sum(),
        lambda: da.from_delayed(delayed(np.ones, pure=False)(4), (4,), dtype=float).sum(),
    ],
    ids=["random", "name=False", "from_delayed", "pure=False"],
)
def test_random_names_are_of_no_other_run(work: Work, make: Callable[[], Any]) -> None:
    assert not work.names(make()) & work.names(make())


@pytest.mark.parametrize("pure", [True, False])
def test_keys_of_their_own_stand_for_nothing(work: Work, pure: bool) -> None:
    assert work.names(delayed(inc, pure=pure)(1)) == set()
    assert work.names(delayed(inc)(1, dask_key_name="inc-mine")) == set()


def test_other_data_has_other_names_unless_users_named_it(work: Work) -> None:
    assert not work.names(_numbers().sum()) & work.names(_numbers(first=9).sum())
    # Dask trusts the name, and would return the first sum from its memory for the second.
    mine, other = (_numbers(name="mine-1", first=first).sum() for first in (0, 9))
    assert work.names(mine) == work.names(other) != set()


def test_a_file_that_was_written_again_has_other_names(work: Work, tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(20)})
    frame.to_parquet(tmp_path / "a.parquet")
    first = work.names(dd.read_parquet(tmp_path / "a.parquet")["a"] + 1)
    assert first == work.names(dd.read_parquet(tmp_path / "a.parquet")["a"] + 1) != set()
    frame.iloc[:15].to_parquet(tmp_path / "a.parquet")
    assert not first & work.names(dd.read_parquet(tmp_path / "a.parquet")["a"] + 1)
