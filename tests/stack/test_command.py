"""``./dev stack``, as a script or a terminal has it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Self

import click
import pytest
import requests

from daskscope import names
from tests.patience import wait_until
from tests.stack import build
from tests.stack.__main__ import watch
from tests.stack.conftest import built
from tests.stack.part import Part

_PATIENCE = 60


class StackProcess:
    """``./dev stack --json`` from its line of JSON on. Use it in a with-statement."""

    def __enter__(self) -> Self:
        self._shown = tempfile.TemporaryFile("a+", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.stack", "--json"],
            stdout=subprocess.PIPE,
            stderr=self._shown,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self.shown()
        self.where: dict[str, Any] = json.loads(line)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(_PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._shown.close()

    def shown(self) -> str:
        self._shown.seek(0)
        return self._shown.read()

    def wait(self) -> int:
        return self._process.wait(_PATIENCE)

    def press_ctrl_c(self) -> None:
        os.killpg(self._process.pid, signal.SIGINT)

    def left(self) -> list[str]:
        """Return what of its parts is still there."""
        return [
            name
            for name, pids in self.where["pids"].items()
            if any(Path(f"/proc/{pid}").exists() for pid in pids)
        ]

    def lines(self) -> list[Any]:
        """Return what the service tells of the workers of its one cluster over time."""
        service, headers = self.where["service"], {"Authorization": f"Bearer {self.where['token']}"}
        clusters = requests.get(f"{service}/api/v1/clusters", headers=headers, timeout=30).json()
        if not clusters["items"]:
            return []
        which = {"cluster": clusters["items"][0]["id"], "metric": names.WORKER_COUNT.name}
        answer = requests.get(f"{service}/api/v1/series", params=which, headers=headers, timeout=30)
        found: list[Any] = answer.json()["items"]
        return found

    def measurements(self) -> set[str]:
        answer = requests.get(
            f"{self.where['influxdb']}/query",
            params={"db": self.where["databases"][0], "q": "SHOW MEASUREMENTS"},
            headers={"Authorization": f"Token {self.where['influxdb_token']}"},
            timeout=30,
        )
        (result,) = answer.json()["results"]
        return {name for series in result.get("series", []) for (name,) in series["values"]}


@pytest.fixture
def _programs(otelcol: Path) -> None:
    built(build.INFLUXDB1)


@pytest.mark.slow
@pytest.mark.usefixtures("_programs")
def test_the_service_shows_what_went_through_influxdb_and_ctrl_c_ends_every_part() -> None:
    with StackProcess() as stack:
        wait_until(lambda: {"dask.worker.count", "logs"} <= stack.measurements())
        wait_until(stack.lines)
        stack.press_ctrl_c()
        assert stack.wait() == 0, stack.shown()
        assert stack.left() == []
        assert not Path(stack.where["folder"]).exists()


@pytest.mark.slow
@pytest.mark.usefixtures("_programs")
def test_it_ends_every_part_if_one_died() -> None:
    with StackProcess() as stack:
        assert set(stack.where["pids"]) == {"influxdb", "collector", "demo"}
        os.kill(stack.where["pids"]["demo"][0], signal.SIGKILL)
        assert stack.wait() == 1
        assert "the demo ended, which it should not have" in stack.shown()
        assert stack.left() == []


def _has_written(log: Path) -> bool:
    return bool(log.read_text())


@pytest.mark.parametrize("dying", [0, 1])
def test_it_names_the_part_that_died_and_what_it_wrote(dying: int, tmp_path: Path) -> None:
    # The command watches those whose ids it tells, and the demo as the others.
    parts = [
        Part(
            name,
            ["sh", "-c", f"echo Here is {name}; exec sleep 600"],
            tmp_path / name,
            environment={},
            ready=partial(_has_written, tmp_path / name),
        )
        for name in ("one", "other")
    ]
    try:
        for part in parts:
            part.start()
        parts[dying].stop("KILL")
        name = parts[dying].name
        with pytest.raises(click.ClickException, match=f"^{name} ended, .*\nHere is {name}"):
            watch(parts, None)
    finally:
        for part in parts:
            part.stop("KILL")
