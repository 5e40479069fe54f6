"""The pytest plugin: tests held to budgets by real clusters of their process, with no service.

Nothing is reported, so there is nothing to hold against the independent count.
"""

from __future__ import annotations

import re

import pytest

from tests.patience import START_PATIENCE

pytest_plugins = ["pytester"]

_CONFTEST = """
import pytest
from distributed import Client, LocalCluster

@pytest.fixture(scope="session")
def client():
    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            yield client
"""

_TESTS = r"""
import time
import pytest
from dask.delayed import delayed
from distributed import Client, LocalCluster

MiB = 1 << 20

def nap(number, seconds=0.05):
    time.sleep(seconds)
    return number

def fill(bytes):
    return len(bytearray(bytes))

def budget(**limits):
    return pytest.mark.daskscope_budget(**limits)

@budget(seconds="1 hour", tasks=4, memory="100 GiB")
def test_within(client):
    assert client.gather(client.map(nap, range(4), pure=False)) == [0, 1, 2, 3]

@budget(seconds=0.1)
def test_slow(client):
    client.gather(client.map(nap, range(2), seconds=0.3, pure=False))

@budget(tasks=4)
def test_many(client):
    delayed(sum)([delayed(nap)(number, 0) for number in range(4)]).compute()

@budget(seconds="1 hour")
def test_idle(client):
    pass

@budget(seconds="1 hour")
def test_goes_on(client):
    client.forever = client.submit(nap, 1, seconds=600)
    while not any(client.processing().values()):
        time.sleep(0.01)

def test_ends(client):
    client.restart()

@budget(memory=400 * MiB)
def test_large(client):
    client.submit(fill, 600 * MiB).result()

@budget(memory=400 * MiB)
def test_large_before(client):
    client.submit(nap, 7).result()

@budget(tasks=2)
def test_own_cluster():
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            client.gather(client.map(nap, range(3), pure=False))

@budget(memory="100 GiB")
def test_in_process():
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            client.submit(nap, 1).result()

@budget(tasks=100)
def test_fails(client):
    raise RuntimeError("its own")

def test_block(client, daskscope_budget):
    client.submit(nap, 11).result()
    with daskscope_budget(tasks=1) as spent:
        client.submit(nap, 12, seconds=0.2).result()
    assert (spent.tasks, spent.computations, spent.memory) == (1, 1, None)
    assert 0.2 <= spent.seconds < 600
    with pytest.raises(AssertionError, match=r"they have 1 tasks \(limit: 0\)"):
        with daskscope_budget(tasks=0):
            client.submit(nap, 13).result()

@budget(minutes=3)
def test_unknown_limit():
    pass
"""

#: Of each test that does not pass, what is said.
_SAYS = {
    "test_slow": r"they took \S+ s \(limit: 0\.1 s\)",
    "test_many": r"they have 5 tasks \(limit: 4\)",
    "test_idle": "no computation ran on a scheduler of this process",
    "test_goes_on": "a computation still runs",
    "test_large": r"a worker used \S+ MiB of memory \(limit: 400.00 MiB\)",
    "test_large_before": "of memory before: give the test a cluster of its own",
    "test_own_cluster": r"they have 3 tasks \(limit: 2\)",
    "test_in_process": "workers share the process of the tests",
    "test_fails": "RuntimeError: its own",
    "test_unknown_limit": "it has no limit 'minutes'; the limits are: memory, seconds, tasks",
}
_PASS = {"test_within", "test_ends", "test_block"}


def _run(pytester: pytest.Pytester, *options: str) -> tuple[dict[str, str], str]:
    """Return what became of each test, and all that was printed."""
    done = pytester.runpytest_subprocess(
        *("-rA", "--strict-markers", "-p", "no:cacheprovider"),
        *("-p", "no:schemathesis", "-p", "no:anyio"),  # to import them takes seconds
        *options,
        timeout=4 * START_PATIENCE,
    )
    text = f"{done.stdout.str()}\n{done.stderr.str()}"
    found = re.findall(r"^(PASSED|FAILED|ERROR) \S+::(\w+)", text, re.MULTILINE)
    return {name: outcome for outcome, name in found}, text


def test_markers_and_the_fixture_hold_tests_to_budgets(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(_CONFTEST)
    pytester.makepyfile(_TESTS)
    outcomes, text = _run(pytester)
    assert {name for name, outcome in outcomes.items() if outcome == "PASSED"} == _PASS, text
    assert {name for name, outcome in outcomes.items() if outcome == "FAILED"} == _SAYS.keys(), text
    for name, says in _SAYS.items():
        part = text.partition(f"_ {name} _")[2].partition("\n____")[0]
        assert re.search(says, part), (name, part)
        assert "During handling" not in part


def test_the_option_is_for_tests_that_compute_and_have_no_marker(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(_CONFTEST)
    pytester.makepyfile(
        """
        import time, pytest

        def test_slow(client):
            client.submit(time.sleep, 0.3).result()

        def test_computes_nothing():
            pass

        @pytest.mark.daskscope_budget(seconds=600)
        def test_of_its_own(client):
            client.submit(time.sleep, 0.4).result()
        """
    )
    outcomes, text = _run(pytester, "--daskscope-budget", "0.2")
    assert outcomes == {
        "test_slow": "FAILED",
        "test_computes_nothing": "PASSED",
        "test_of_its_own": "PASSED",
    }, text


def test_without_a_budget_nothing_of_dask_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            assert "daskscope.pytest_plugin" in sys.modules
            assert not {"dask", "distributed", "daskscope.budget"} & sys.modules.keys()
        """
    )
    outcomes, text = _run(pytester)
    assert outcomes == {"test_nothing": "PASSED"}, text
    _, text = _run(pytester, "--daskscope-budget", "soon")
    assert "--daskscope-budget: seconds is 'soon'" in text
