"""The examples of docs/api.md do what they say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest

from daskscope import list_clusters
from tests.service.beats import full_beat, post
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


def examples(language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", PAGE)


@pytest.fixture
def environment(local_service: ServiceProcess) -> Iterator[dict[str, str]]:
    """What the page says to set, for a service that knows something."""
    workspace = uuid.uuid4().hex
    token = local_service.token(workspace=workspace)
    assert post(local_service.url, token, full_beat()).ok
    with dask.config.set(
        {"daskscope.endpoint": local_service.url, "daskscope.token": token},
    ):
        yield {"DASK_DASKSCOPE__ENDPOINT": local_service.url, "DASK_DASKSCOPE__TOKEN": token}


def test_the_python_examples_print_what_the_service_knows(
    environment: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    (cluster,) = list_clusters()
    exec("".join(examples("python")).replace("Scheduler-1f0c", cluster["id"]), {})
    printed = capsys.readouterr().out
    for word in ("ada", "running", "ZeroDivisionError", "progress", "no cluster"):
        assert word in printed


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_commands_print_what_the_service_knows(
    environment: dict[str, str], tmp_path: Path
) -> None:
    login, exports, lists, *curls = examples("sh")
    assert login.startswith("daskscope login --url ")  # asks a person: tests/service/test_login.py
    assert re.findall("export ([A-Z_]+)", exports) == list(environment)
    (cluster,) = list_clusters()
    for example in (lists.replace("Scheduler-1f0c", cluster["id"]), *curls):
        done = subprocess.run(
            ["bash", "-ec", example],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env=os.environ
            | environment
            | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
            check=False,
        )
        assert done.returncode == 0, (example, done.stdout, done.stderr)
        assert re.search("ada|progress|openapi", done.stdout), example
    assert cluster["name"] in (tmp_path / "cluster.html").read_text(encoding="utf-8")
