"""The service on each Python that it supports: the matrix runs this on the oldest, too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from pkgutil import walk_packages

import pytest
import requests

import daskscope_service
from tests.service.beats import full_beat, make_cluster, post
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.contract

#: It is no module to import: Alembic runs it, and gives it what it needs.
_NOT_IMPORTED = "daskscope_service.db.migrations.env"


def test_every_module_can_be_imported() -> None:
    modules = [
        module.name
        for module in walk_packages(daskscope_service.__path__, "daskscope_service.")
        if not module.name.endswith("__main__") and module.name != _NOT_IMPORTED
    ]
    assert len(modules) > 100
    program = "\n".join(f"import {name}" for name in modules)

    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_a_cluster_sends_is_stored_and_shown(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as service:
        token = service.token(scopes=["ingest", "read"])
        assert post(service.url, token, full_beat(make_cluster("Scheduler-1", name="nightly"))).ok
        browser = requests.Session()
        browser.post(f"{service.url}/sign-in", data={"token": token}, timeout=30)

        page = browser.get(f"{service.url}/clusters/Scheduler-1", timeout=30)

    assert page.ok
    assert "nightly" in page.text
