"""Fixtures of the service's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service_process import ServiceProcess


@pytest.fixture(scope="session")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """One service for all tests that leave it as it was: each works in a workspace of its own."""
    with ServiceProcess(tmp_path_factory.mktemp("service")) as service:
        yield service


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service for one test alone, which may end it."""
    with ServiceProcess(tmp_path / "data") as service:
        yield service
