"""What programs are run beside."""

from __future__ import annotations

import pytest

from tests.ports import free_port


@pytest.fixture(scope="session")
def refusing() -> str:
    """The address of a service that is not there."""
    return f"http://127.0.0.1:{free_port()}"
