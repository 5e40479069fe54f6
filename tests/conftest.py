"""What holds for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of these tests."""
    parser.addoption(
        "--kills", type=int, default=3, help="how often the service is killed under load"
    )
    parser.addoption(
        "--outage",
        type=float,
        # At least longer than the longest pause between two tries of the collector.
        default=120.0 if "CI" in os.environ else 15.0,
        help="seconds that an outage of InfluxDB lasts; two minutes under CI",
    )


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
