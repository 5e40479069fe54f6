"""What workloads do with arrays, dataframes, bags and delayed calls."""

from __future__ import annotations

import time
from typing import Any

import dask.array as da
import dask.bag as db
import dask.config
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import compute
from dask.delayed import delayed
from distributed import Client, wait

from tests.insight.workloads.steps import digest, flaky, pause, spin


def _table(number: int, rows: int = 20_000) -> pd.DataFrame:
    keys = np.random.default_rng(number).integers(0, 50, rows)
    return pd.DataFrame({"key": keys, "x": np.arange(float(rows)), "part": number})


def _frame(parts: int, rows: int = 20_000) -> Any:
    return dd.from_map(_table, range(parts), rows=rows)


# --- sick -----------------------------------------------------------------------------------------


def shuffling(_: Client) -> None:
    """Sort a table by a column, for a small question."""
    table = _frame(32, 400_000)
    table["y"] = table.x * 2
    table.shuffle("key", npartitions=32).map_partitions(len).sum().compute()


def rechunking(_: Client) -> None:
    """Turn an array from rows to columns, and back."""
    x = da.random.default_rng(0).random((8000, 8000), chunks=(1000, 8000))
    for _turn in range(2):
        x = (x + 1).rechunk((8000, 1000)).rechunk((1000, 8000))
    x.sum().compute()


def computes_in_a_loop(_: Client) -> None:
    """Compute one delayed call after the other."""
    for number in range(30):
        delayed(digest)(150 + number).compute()
        time.sleep(0.3)


def questions_in_a_loop(_: Client) -> None:
    """Ask a table for one sum after the other."""
    table = _frame(2)
    for power in range(12):
        (table.x + power).sum().compute()
        time.sleep(1.0)


def python_in_a_frame(_: Client) -> None:
    """Apply Python code to rows, with four threads."""
    _frame(16, 100).map_partitions(lambda part: pd.Series([spin(0.9 + len(part) / 1e4)]),
                                   meta=(None, float)).sum().compute()  # fmt: skip


def straggling_in_a_bag(_: Client) -> None:
    """Have one part of a bag that takes much longer."""
    waits = [0.2 + n / 10_000 for n in range(31)] + [13.0]
    db.from_sequence(waits, npartitions=32).map(pause).compute()


def retried_delayed(_: Client) -> None:
    """Fail more often than not in delayed calls that are tried again."""
    calls = [delayed(flaky, pure=False)(0.6, n) for n in range(60)]
    compute(*calls, retries=40)


def bad_partition(_: Client) -> None:
    """Have one partition of a table that cannot be read."""

    def read(number: int) -> pd.DataFrame:
        if number == 7:
            raise ValueError("not a table")
        time.sleep(0.05)
        return _table(number, 100)

    meta = _table(0, 1).iloc[:0]
    with_one = dd.from_map(read, range(32), meta=meta).persist()
    wait(with_one)


def chained_array(_: Client) -> None:
    """Need one chunk after the other, as a recurrence does."""
    step: Any = da.ones(4, chunks=4)
    for number in range(40):
        step = step.map_blocks(lambda block, n=number: block + n + 0 * pause(0.3), dtype=float)
    with dask.config.set({"optimization.fuse.active": False}):
        step.persist(optimize_graph=False)
        wait(step.persist(optimize_graph=False))


def two_partitions(_: Client) -> None:
    """Have a table of two partitions for eight threads."""

    def work(part: pd.DataFrame) -> pd.DataFrame:
        pause(12.0 + len(part) / 1e6)
        return part

    wait(_frame(2, 100).map_partitions(work, meta=_table(0, 1)).persist())


def waiting_bag(_: Client) -> None:
    """Wait for answers in a bag."""
    waits = [1.0 + n / 10_000 for n in range(16)]
    db.from_sequence(waits, npartitions=16).map(pause).compute()


def table_in_the_graph(_: Client) -> None:
    """Have the client's own table cut into parts."""
    mine = pd.DataFrame({"x": np.random.default_rng(0).random(6_000_000)})
    dd.from_pandas(mine, npartitions=4).map_partitions(lambda part: part.x * 2).sum().compute()


def cancelled_bag(client: Client) -> None:
    """Let go of a bag half-way."""
    waits = [0.2 + n / 10_000 for n in range(150)]
    kept = db.from_sequence(waits, npartitions=150).map(pause).persist()
    time.sleep(4)
    client.cancel(kept)


def spilling_array(_: Client) -> None:
    """Persist an array that does not fit, and go over it."""
    x = da.random.default_rng(0).random((32, 2_500_000), chunks=(1, 2_500_000)).persist()
    wait(x)
    (x + x[::-1]).map_blocks(_busy, dtype=float).sum().compute()


def parts_of_nothing(_: Client) -> None:
    """Cut a bag into parts of a few words each."""
    db.range(12_000, npartitions=4000).map(lambda n: n + 1).sum().compute()


# --- healthy --------------------------------------------------------------------------------------


def grouped(_: Client) -> None:
    """Group a table by a few keys, as most do."""

    def read(number: int) -> pd.DataFrame:
        digest(120 + number)
        return _table(number)

    dd.from_map(read, range(24), meta=_table(0, 1)).groupby("key").x.mean().compute()


def merged(_: Client) -> None:
    """Merge two small tables, once."""
    left, right = _frame(6), _frame(4)
    left.merge(right, on=["part", "x"]).key_x.sum().compute()


def loop_that_uses_it(_: Client) -> None:
    """Compute again and again, with work for all threads."""
    for number in range(12):
        compute(*[delayed(digest, pure=False)(160 + number + n) for n in range(8)])


def asked_again(_: Client) -> None:
    """Run a cell six times, and look at each answer."""
    table = _frame(4)
    for key in range(6):
        table[table.key == key].x.sum().compute()
        time.sleep(1.5)


def statistics(_: Client) -> None:
    """Compute a mean and a deviation of an array."""
    x = da.random.default_rng(0).random((8000, 4000), chunks=(500, 4000))
    compute(x.mean(axis=0), x.std(axis=0))


def delayed_tree(_: Client) -> None:
    """Add up in a tree of delayed calls."""
    level = [delayed(digest, pure=False)(150 + n) for n in range(32)]
    while len(level) > 1:
        level = [delayed(max)(*pair) for pair in zip(level[::2], level[1::2], strict=True)]
    level[0].compute()


def persisted_twice(_: Client) -> None:
    """Persist the same array again, as one does who runs a cell once more."""
    x = da.ones((24, 1000), chunks=(1, 1000)).map_blocks(_busy, dtype=float)
    kept = x.persist()
    wait(kept)
    again = x.persist()
    wait(again)


def _busy(block: Any) -> Any:
    digest(150)
    return block


def small_graph_data(_: Client) -> None:
    """Pass a little data along with the graph."""
    mine = da.from_array(np.ones((1000, 800)), chunks=(100, 800))
    mine.map_blocks(_busy, dtype=float).sum().compute()


def one_rechunk(_: Client) -> None:
    """Rechunk once, beside much work."""
    x = da.ones((16, 200_000), chunks=(1, 200_000)).map_blocks(_busy, dtype=float)
    x.rechunk((16, 20_000)).map_blocks(_busy, dtype=float).sum().compute()
