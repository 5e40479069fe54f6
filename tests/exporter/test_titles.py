"""What real libraries compute for a user has a title that the user recognises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask
import dask.array as da
import pytest
from distributed import Client, worker_client

import daskscope
from tests.exporter.dask_process import scheduler_process, worker_process
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Parameter n_jobs will be ignored")
def test_what_lightgbm_computes_is_called_as_the_user_did(titles: Any, client: Client) -> None:
    lightgbm = needed("lightgbm", "lightgbm is not installed")
    table = da.random.default_rng(0).random((200, 4), chunks=(100, 4))
    model = lightgbm.DaskLGBMRegressor(client=client, n_estimators=2, num_leaves=4, verbose=-1)
    model.fit(table, table.sum(axis=1))
    assert set(wait_until(titles)) == {"model.fit(table, table.sum(axis=1))"}


@pytest.mark.slow
def test_what_xgboost_computes_is_called_as_the_user_did(titles: Any, client: Client) -> None:
    xgboost = needed("xgboost.dask", "xgboost is not installed")
    table = da.random.default_rng(0).random((200, 4), chunks=(100, 4))
    data = xgboost.DaskDMatrix(client, table, table.sum(axis=1))
    found = xgboost.train(client, {"max_depth": 2, "nthread": 1}, data, num_boost_round=2)
    result = xgboost.predict(client, found, data).compute()
    assert result.shape == (200,)
    lines = {
        "data = xgboost.DaskDMatrix(client, table, table.sum(axis=1))",
        'found = xgboost.train(client, {"max_depth": 2, "nthread": 1}, data, num_boost_round=2)',
        "result = xgboost.predict(client, found, data).compute()",
    }
    # What it computes is submitted by coroutines of its own, on the client's event loop.
    wait_until(lambda: set(titles()) >= lines, what=titles)
    assert set(titles()) == lines


def test_what_joblib_computes_in_a_thread_of_its_own_is_called_by_its_tasks(titles: Any) -> None:
    with joblib.parallel_config("dask"):
        found = joblib.Parallel()(joblib.delayed(square)(number) for number in range(8))
    assert found == [number * number for number in range(8)]
    (title,) = wait_until(lambda: set(titles()))
    assert title == "tasks of square"


def squares_in_a_task(numbers: list[int]) -> int:
    with worker_client() as client:
        return sum(client.gather(client.map(square, numbers)))


def test_what_a_task_computes_is_called_by_its_tasks(titles: Any, client: Client) -> None:
    assert client.submit(squares_in_a_task, [1, 2, 3]).result() == 14
    inner, outer = wait_until(lambda: len(found := titles()) == 2 and found)
    assert inner == "tasks of square"
    assert outer == "assert client.submit(squares_in_a_task, [1, 2, 3]).result() == 14"


def test_where_only_the_scheduler_has_daskscope_tasks_are_the_title(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path / "service") as service:
        environment = {
            "DASK_DASKSCOPE__ENDPOINT": service.url,
            "DASK_DASKSCOPE__TOKEN": service.token(),
            "DASK_DASKSCOPE__INTERVAL": "100ms",
        }
        with (
            scheduler_process("--preload", "daskscope.preload", **environment) as scheduler,
            worker_process(scheduler.address),
            Client(scheduler.address) as client,
        ):
            assert client.gather(client.map(square, range(3))) == [0, 1, 4]
            where = {"daskscope.endpoint": service.url, "daskscope.token": service.token()}
            with dask.config.set(where):
                (row,) = wait_until(daskscope.list_computations)
    # By default, Dask's clients send no code.
    assert row["title"] == "tasks of square"


@pytest.mark.slow
def test_what_scikit_learn_searches_is_called_by_its_tasks(titles: Any) -> None:
    selection = needed("sklearn.model_selection", "scikit-learn is not installed")
    linear = needed("sklearn.linear_model", "scikit-learn is not installed")
    search = selection.GridSearchCV(linear.Ridge(), {"alpha": [0.1, 1.0]}, cv=2)
    inputs = [[float(n), float(n % 3)] for n in range(20)]
    with joblib.parallel_config("dask"):
        search.fit(inputs, [one + other for one, other in inputs])
    (title,) = wait_until(lambda: set(titles()))
    assert title == "tasks of _fit_and_score"
