"""A run held to a budget: from Python and the command line, and what never passes silently."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import dask
import pytest
from click.testing import CliRunner, Result

import daskscope
from daskscope.errors import BudgetExceeded, ConfigurationError, NotFound, NotMeasured
from daskscope.protocol import Prices
from daskscope_service.cli.main import cli
from tests.patience import PATIENCE
from tests.service.job_history import Place
from tests.service_process import ServiceProcess


@pytest.fixture
def place(shared_service: ServiceProcess) -> Iterator[Place]:
    found = Place(shared_service)
    ours = {"daskscope.endpoint": shared_service.url, "daskscope.token": found.token}
    with dask.config.set(ours):
        yield found


def test_a_run_within_its_budget_is_returned_and_one_beyond_it_raises(place: Place) -> None:
    run = place.run(10, 1)
    found = daskscope.assert_budget(run, max_seconds=10.5, max_cost=41, timeout=0)
    assert found["computation"] == run
    assert found["duration"] == pytest.approx(10)
    assert found["started_at"].tzinfo is not None
    with pytest.raises(BudgetExceeded) as raised:
        daskscope.assert_budget(run, max_seconds="9 seconds", max_cost=39, timeout=0)
    said = str(raised.value)
    assert "it took 10.0 s (limit: 9 s)" in said
    assert "it cost 40 USD (limit: 39)" in said
    assert said.endswith(f"See {place.service.url}/clusters/{found['cluster']}/computations/{run}")
    assert isinstance(raised.value, AssertionError)
    assert isinstance(raised.value, daskscope.DaskscopeError)


def test_memory_is_held_to_the_most_that_one_worker_had(place: Place) -> None:
    run = place.run(10, 1, status_fields={"peak_worker_memory": 5 << 30})
    daskscope.assert_budget(run, max_memory="5 GiB", timeout=0)
    with pytest.raises(BudgetExceeded, match=r"used 5\.00 GiB of memory \(limit: 4\.00 GiB\)"):
        daskscope.assert_budget(run, max_memory=4 << 30, timeout=0)


def test_slower_than_usual_is_beside_the_runs_before_it(place: Place) -> None:
    for day in range(5):
        place.run(10, 9 - day)
    slower = place.run(13, 1)
    [job] = place.jobs(runs=6)
    daskscope.assert_budget(slower, slower_than_usual=0.35, timeout=PATIENCE)
    with pytest.raises(BudgetExceeded, match=r"1\.30 times its usual 10\.0 s \(the median of 5"):
        daskscope.assert_budget(slower, slower_than_usual=0.25)
    # The newest run of its job is the same.
    with pytest.raises(BudgetExceeded, match=slower):
        daskscope.assert_budget(job["id"], slower_than_usual=0.25)


def test_what_is_not_known_does_not_pass(place: Place) -> None:
    failed = place.run(10, 3, status="erred", erred=1)
    with pytest.raises(NotMeasured, match="it did not finish"):
        daskscope.assert_budget(failed, max_seconds=60, timeout=0)
    with pytest.raises(BudgetExceeded):
        daskscope.assert_budget(failed, max_seconds=5, timeout=0)
    free = place.run(10, 2, cluster={"prices": Prices("XXX", {})})
    with pytest.raises(NotMeasured, match="no prices"):
        daskscope.assert_budget(free, max_cost=5, timeout=0)
    with pytest.raises(NotMeasured, match="the memory of its workers"):
        daskscope.assert_budget(free, max_memory="1 GiB", timeout=0)
    place.jobs(runs=2)
    with pytest.raises(NotMeasured, match="fewer than five earlier runs of its job"):
        daskscope.assert_budget(free, slower_than_usual=0.2, timeout=PATIENCE)
    running = place.run(10, 0.001, status="running", stopped_at=None)
    with pytest.raises(NotMeasured, match="still runs"):
        daskscope.assert_budget(running, max_seconds=1e6, timeout=0)
    # It takes at least as long as it has run, so nobody waits for its end.
    with pytest.raises(BudgetExceeded, match="it has run"):
        daskscope.assert_budget(running, max_seconds=5, timeout=1e6)


def test_a_run_is_waited_for_until_it_has_arrived(place: Place) -> None:
    with pytest.raises(NotFound, match=r"'run-1'.*within 0 s"):
        daskscope.assert_budget("run-1", max_seconds=60, timeout=0)
    found: list[Any] = []

    def ask() -> None:
        found.append(daskscope.assert_budget("run-1", max_seconds=60, timeout=PATIENCE))

    asking = threading.Thread(target=ask)
    asking.start()
    place.run(10, 1)
    asking.join(2 * PATIENCE)
    assert [run["computation"] for run in found] == ["run-1"]


def test_a_run_of_another_workspace_is_not_there(
    place: Place, shared_service: ServiceProcess
) -> None:
    Place(shared_service).run(10, 1)
    with pytest.raises(NotFound):
        daskscope.assert_budget("run-1", max_seconds=60, timeout=0)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({}, "there is no limit"),
        ({"max_seconds": 0}, "max_seconds is 0; it must be a number of seconds above 0"),
        ({"max_seconds": "soon"}, "max_seconds is 'soon'"),
        ({"max_seconds": timedelta(-1)}, "max_seconds is -86400"),
        ({"max_seconds": True}, "max_seconds is True"),
        ({"max_cost": float("nan")}, "max_cost is nan; it must be a number of at least 0"),
        ({"max_cost": "5"}, "max_cost is '5'"),
        ({"max_memory": "4 apples"}, "max_memory is '4 apples'"),
        ({"slower_than_usual": -0.1}, "slower_than_usual is -0.1"),
        ({"max_seconds": 1, "timeout": "never"}, "timeout is 'never'"),
        ({"max_seconds": 1, "id": ""}, "id is ''"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(limits: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        daskscope.assert_budget(**{"id": "run"} | limits)
    assert says in str(raised.value)


def test_the_command_line_fails_where_a_run_took_more(place: Place) -> None:
    run = place.run(10, 1)

    def budget(*options: str) -> Result:
        return CliRunner().invoke(cli, ["budget", run, *options])

    good = budget("--max-seconds", "11", "--timeout", "0")
    assert good.exit_code == 0, good.output
    assert "within its budget: 10.0 s" in good.output
    as_json = budget("--max-seconds", "11", "--timeout", "0", "--json")
    assert json.loads(as_json.output)["computation"] == run
    bad = budget("--max-seconds", "9", "--timeout", "0")
    assert bad.exit_code == 1
    assert "it took 10.0 s (limit: 9 s)" in bad.output
    unknown = budget("--max-memory", "1 GiB", "--timeout", "0")
    assert unknown.exit_code == 1
    assert "is not known" in unknown.output
    assert budget().exit_code == 2
