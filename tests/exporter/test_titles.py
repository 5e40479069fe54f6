"""What real libraries compute for a user has a title that the user recognises."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import pytest
from distributed import Client

import daskscope
from tests.needed import needed
from tests.patience import wait_until
from tests.service_process import ServiceProcess

# ./dev matrix runs without them, too.
joblib = needed("joblib", "joblib is not installed")
xarray = needed("xarray", "xarray is not installed")


@pytest.fixture
def titles(client: Client, tmp_path: Any) -> Any:
    """Registers the client with a real service; the titles of computations, newest first."""
    with ServiceProcess(tmp_path / "service") as service:
        token = service.token()
        where = {"daskscope.endpoint": service.url, "daskscope.token": token}
        with dask.config.set(where):
            daskscope.register(client, interval="100ms")

            def read() -> list[str]:
                rows = daskscope.list_computations()
                return [row["title"] for row in rows if row["status"] == "finished"]

            yield read


def square(number: int) -> int:
    return number * number


def test_what_xarray_computes_is_called_as_the_user_did(titles: Any) -> None:
    numbers = xarray.DataArray(da.ones((40, 40), chunks=20), dims=("x", "y"))
    total = numbers.mean("x").sum().compute()
    assert float(total) == 40.0
    (title,) = wait_until(titles)
    assert title == 'total = numbers.mean("x").sum().compute()'


def test_what_joblib_computes_in_a_thread_of_its_own_is_called_by_its_tasks(titles: Any) -> None:
    with joblib.parallel_config("dask"):
        found = joblib.Parallel()(joblib.delayed(square)(number) for number in range(8))
    assert found == [number * number for number in range(8)]
    (title,) = wait_until(lambda: set(titles()))
    assert title == "tasks of square"
