"""What holds for all tests: their lanes, their order, and where their processes may write."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Generator, Iterator
from typing import Any

import dask
import distributed.utils
import pytest

from tests import durations, light_passwords
from tests.groups import group_of

# A nanny starts its worker as a copy of a process that has imported Dask, which takes a second of a
# core less. What it gets of the environment is what there was when the first one started.
dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
distributed.utils._forkserver_preload_set = True  # else Dask sets its own list of modules
multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.worker_imports"])


# In CI, tests are as anywhere: these variables name jobs, and are the parents of traces.
for name in ("GITHUB_ACTIONS", "GITLAB_CI", "TRACEPARENT", "TRACESTATE"):
    os.environ.pop(name, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of these tests."""
    parser.addoption(
        "--record-durations",
        action="store_true",
        help=f"write what tests took to {durations.FILE.name}",
    )
    parser.addoption(
        "--pictures",
        action="store_true",
        help="leave pictures of all pages in tests/browser/gallery",
    )
    parser.addoption(
        "--kills", type=int, default=3, help="how often the service is killed under load"
    )


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the group of tests that takes longest, and mark the tests that are not quick."""
    taken = durations.read()
    # Sorting is stable: a group keeps the order in which pytest has put its tests.
    items.sort(key=lambda item: taken.rank(group_of(item.nodeid)))
    for item in items:
        if item.nodeid in taken.tests:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a group in one process."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc] # it has no types
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return GroupScheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Record what tests take, where that is asked for, in the process that hears of all."""
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(durations.Recorder())


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[Any, Any, Any]:
    """Let the report of a test with texts that are no UTF-8 be sent to the process that prints it.

    A report that cannot be sent ends the run.
    """
    return _utf8((yield))


def _utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_utf8(key): _utf8(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_utf8, value))
    return value


_crashed = pytest.StashKey[bool]()


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(sched: Any) -> None:
    """Remember that one of the processes that run tests died: what it had left was not run."""
    sched.config.stash[_crashed] = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Say by the exit code that the run broke off, not just that a test failed."""
    if session.config.stash.get(_crashed, False):
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


@pytest.fixture(scope="session", autouse=True)
def _state_in_a_folder_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what schedulers spool out of the developer's home, and the other way round."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _light_passwords() -> None:
    """Spend little on passwords. ``tests/service/test_users.py`` tests the product's hashes."""
    light_passwords.use()


@pytest.fixture(scope="session", autouse=True)
def _garbage_of_imports_is_left_alone() -> None:
    """Let the garbage collector pass over all that is imported: many tests wait for it to run."""
    gc.collect()
    gc.freeze()
