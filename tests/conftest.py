"""What holds for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

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


@pytest.fixture(scope="session", autouse=True)
def _state_in_a_folder_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what schedulers spool out of the developer's home, and the other way round."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
