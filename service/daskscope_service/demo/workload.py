"""The work of the demo. Part of it parses the Python source files installed on this machine.

Some of these files do not parse (Python's own tests have such files), so the demo shows real
exceptions.
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

#: About how many files of installed packages are parsed, besides the whole standard library.
PACKAGE_FILES = 300

#: Seconds without work in each round, so that the demo also shows an idle cluster.
PAUSE = 8

#: The job that becomes slower and is repaired, and how many runs it has before, between and after:
#: enough for the test of changes.
NIGHTLY, NIGHTS = "nightly report (sped up: a night takes a second)", 6
#: Chunks of its array: as it was meant, and as someone set them by mistake. There are more of these
#: where the machine is so fast that a run would take less than so many seconds.
_CHUNKS, _TOO_MANY, _MOST_CHUNKS, _SLOW = 8, 600, 4_000, 1.6

#: A function that shows progress: a label, and what part is done (0 to 1, None at the start).
Show = Callable[[str, float | None], None]


def source_files() -> list[str]:
    """Return paths of Python source files: all of the standard library, some of packages."""
    paths = sysconfig.get_paths()
    packages = Path(paths["purelib"])
    library = [
        file for file in Path(paths["stdlib"]).rglob("*.py") if "site-packages" not in file.parts
    ]
    others = sorted(packages.rglob("*.py"))
    step = max(len(others) // PACKAGE_FILES, 1)
    return [str(file) for file in sorted(library) + others[::step]]


def read(file: str) -> tuple[str, bytes]:
    """Return the name of the file's package, and the file's content."""
    parts = Path(file).parts
    root = max(
        (index for index, part in enumerate(parts) if part.startswith(("python3", "site-"))),
        default=-2,
    )
    return parts[root + 1].removesuffix(".py"), Path(file).read_bytes()


def parse(source: tuple[str, bytes]) -> dict[str, Any]:
    """Return how often a source file uses which names, and its size. Raises SyntaxError."""
    package, text = source
    tree = ast.parse(text)
    names = Counter(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {"package": package, "bytes": len(text), "lines": text.count(b"\n"), "names": names}


def parse_files(client: Client, files: list[str], show: Show) -> tuple[list[dict[str, Any]], int]:
    """Parse all files on the cluster; return the results, and how many files failed."""
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
    """Return the five most used names, each with its package and the package's size."""
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
    """Return the largest singular value of a random matrix that has many chunks."""
    show("multiply and decompose a random 40,000 × 3,000 matrix", None)
    with span("arrays"):
        matrix = da.random.default_rng(0).random((40_000, 3_000), chunks=(1_000, 3_000))
        centred = matrix - matrix.mean(axis=0)
        _, values, _ = da.linalg.svd_compressed(centred, k=8, n_power_iter=2, seed=0)
        result: np.ndarray[Any, Any] = values.compute()
    return float(result[0])


def dataframe_work(show: Show) -> int:
    """Compute hourly statistics by sensor of a month of random readings; return the row count."""
    show("hourly statistics of a month of readings by sensor", None)
    readings = timeseries(freq="3s", partition_freq="1D", seed=0).persist()
    wait(readings)
    hourly = readings.reset_index()
    hourly = hourly.assign(hour=hourly["timestamp"].dt.floor("h"))
    table = hourly.groupby(["hour", "name"])[["x", "y"]].agg(["mean", "max", "count"])
    return len(table.compute())


def nightly_work(show: Show) -> int:
    """Run one job again and again; return how many runs there were.

    In the second third of its runs, the array has so many chunks that Dask takes longer to hand out
    the tasks than workers to compute them. Then that is repaired.
    """
    show("a nightly job, sped up, that becomes slower and is repaired", None)
    mean_of(_CHUNKS)  # not one of its runs: workers import NumPy for the first time
    too_many = _TOO_MANY
    for night in range(3 * NIGHTS):
        slow = NIGHTS <= night < 2 * NIGHTS
        began = time.monotonic()
        with span(NIGHTLY):
            mean_of(too_many if slow else _CHUNKS)
        if night == NIGHTS:
            more = _SLOW / (time.monotonic() - began)
            too_many = min(max(round(_TOO_MANY * more), _TOO_MANY), _MOST_CHUNKS)
        show("", (night + 1) / (3 * NIGHTS))
    return 3 * NIGHTS


def mean_of(chunks: int) -> float:
    """Return the mean of random numbers, drawn in so many chunks."""
    numbers = da.random.default_rng(0).random(32_000_000, chunks=32_000_000 // chunks)
    return float(numbers.mean().compute())


def pause(show: Show) -> None:
    """Leave the cluster idle for :data:`PAUSE` seconds, as most clusters are most of the time."""
    show(f"leave the cluster idle for {PAUSE} s", None)
    for second in range(1, PAUSE + 1):
        time.sleep(1)
        show("", second / PAUSE)
