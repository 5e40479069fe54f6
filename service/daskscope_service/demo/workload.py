"""Real work on real input: the Python source files that are installed on this machine.

Some of them do not parse (Python's own tests hold such files), so the exceptions are real, too.
"""

from __future__ import annotations

import ast
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.datasets import timeseries
from distributed import Client, as_completed, span, wait

#: The topic of the demo's own event.
TOPIC = "demo"

#: Files of installed packages, besides all of the standard library.
PACKAGE_FILES = 300

#: Seconds without work, so that the cluster can be seen idle.
PAUSE = 8

#: Shows what happens: a label, and how much of it is done (0 to 1, None at the start).
Show = Callable[[str, float | None], None]


def source_files() -> list[str]:
    """Return the installed Python source files: the standard library's, and some packages'."""
    paths = sysconfig.get_paths()
    packages = Path(paths["purelib"])
    library = [
        file for file in Path(paths["stdlib"]).rglob("*.py") if "site-packages" not in file.parts
    ]
    others = sorted(packages.rglob("*.py"))
    step = max(len(others) // PACKAGE_FILES, 1)
    return [str(file) for file in sorted(library) + others[::step]]


def read(file: str) -> tuple[str, bytes]:
    """Return the file's package and its bytes."""
    parts = Path(file).parts
    root = max(
        (index for index, part in enumerate(parts) if part.startswith(("python3", "site-"))),
        default=-2,
    )
    return parts[root + 1].removesuffix(".py"), Path(file).read_bytes()


def parse(source: tuple[str, bytes]) -> dict[str, Any]:
    """Return what names a source file uses how often. Raises SyntaxError where it is none."""
    package, text = source
    tree = ast.parse(text)
    names = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {"package": package, "bytes": len(text), "lines": text.count(b"\n"), "names": names}


def parse_files(client: Client, files: list[str], show: Show) -> tuple[list[dict[str, Any]], int]:
    """Read and parse all files. Return what parsed, and how many did not."""
    with span("source files"):
        sources = client.map(read, files)
        parsed = client.map(parse, sources)
    show(f"parse {len(files):,} installed Python files", None)
    for done, _ in enumerate(as_completed(parsed), 1):
        if done % 50 == 0:
            show("", done / len(files))
    failed = sum(future.status == "error" for future in parsed)
    return client.gather(parsed, errors="skip"), failed


def join_names(parsed: list[dict[str, Any]], show: Show) -> pd.DataFrame:
    """Return the most used names, with the size of the packages that use them."""
    names = pd.DataFrame(
        [(row["package"], name, count) for row in parsed for name, count in row["names"].items()],
        columns=["package", "name", "count"],
    )
    files = pd.DataFrame(
        [(row["package"], row["bytes"], row["lines"]) for row in parsed],
        columns=["package", "bytes", "lines"],
    )
    show(f"group and join {len(names):,} uses of names by package", None)
    used = dd.from_pandas(names, npartitions=8)
    sizes = dd.from_pandas(files, npartitions=4)
    by_name = used.groupby(["package", "name"])["count"].sum().reset_index()
    by_package = sizes.groupby("package")[["bytes", "lines"]].sum().reset_index()
    joined: pd.DataFrame = by_name.merge(by_package, on="package").compute()
    return joined.nlargest(5, "count")


def array_work(show: Show) -> float:
    """Return the largest singular value of a random matrix that does not fit one task."""
    show("multiply and decompose a random 40,000 × 3,000 matrix", None)
    with span("arrays"):
        matrix = da.random.default_rng(0).random((40_000, 3_000), chunks=(1_000, 3_000))
        centred = matrix - matrix.mean(axis=0)
        _, values, _ = da.linalg.svd_compressed(centred, k=8, n_power_iter=2, seed=0)
        result: np.ndarray[Any, Any] = values.compute()
    return float(result[0])


def dataframe_work(show: Show) -> int:
    """Return the rows left of a month of made-up readings, after hourly statistics by sensor."""
    show("hourly statistics of a month of readings by sensor", None)
    readings = timeseries(freq="3s", partition_freq="1D", seed=0).persist()
    wait(readings)
    hourly = readings.reset_index()
    hourly = hourly.assign(hour=hourly["timestamp"].dt.floor("h"))
    table = hourly.groupby(["hour", "name"])[["x", "y"]].agg(["mean", "max", "count"])
    return len(table.compute())


def pause(show: Show) -> None:
    """Do nothing for a while, with the cluster running: what most clusters do most of the time."""
    show(f"leave the cluster idle for {PAUSE} s", None)
    for second in range(1, PAUSE + 1):
        time.sleep(1)
        show("", second / PAUSE)
