"""A real Dask Gateway, configured with the lines of ``docs/integrations.md``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from dask.utils_test import inc

import daskscope
from tests.exporter import counted_preload
from tests.exporter.recorder import Recorder
from tests.needed import needed
from tests.patience import START_PATIENCE, wait_until
from tests.ports import free_port

# ./dev matrix runs without it, too.
why = "Dask Gateway is not installed: its wheel, with the proxy, is for Linux on x86-64"
dask_gateway = needed("dask_gateway", why)
needed("dask_gateway_server", why)

TOKEN = "dsk_gateway"
DOCS = Path(__file__).parents[2] / "docs" / "integrations.md"


def documented(endpoint: str) -> str:
    """Return the lines for dask-gateway, with this address for the one that they name."""
    (lines,) = re.findall(
        r"^\*\*dask-gateway\.\*\*.*?```python\n(.*?)```", DOCS.read_text(), re.M | re.S
    )
    example = "https://daskscope.example.org"
    assert example in lines
    return str(lines).replace(example, endpoint)


@contextmanager
def gateway_server(folder: Path, endpoint: str, differs: Path) -> Iterator[str]:
    """Run a gateway that starts clusters as processes of this user. Yield its address.

    What runs there is counted beside the plugin; a scheduler writes to ``differs`` as it ends.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    configuration = folder / "dask_gateway_config.py"
    configuration.write_text(
        f"token = {TOKEN!r}\n"
        f"{documented(endpoint)}\n"
        f"c.ClusterConfig.scheduler_cmd[2:2] = ['--preload', {counted_preload.__name__!r}]\n"
        f"c.ClusterConfig.environment.update({counted_preload.beside(differs)})\n"
        f"c.ClusterConfig.environment['DASK_DASKSCOPE__INTERVAL'] = '200ms'\n"
        f"c.DaskGateway.backend_class = 'dask_gateway_server.backends.local.UnsafeLocalBackend'\n"
        f"c.DaskGateway.authenticator_class = 'dask_gateway_server.auth.SimpleAuthenticator'\n"
        f"c.UnsafeLocalBackend.clusters_directory = {str(folder)!r}\n"
        f"c.DaskGateway.address = '127.0.0.1:{free_port()}'\n"
        f"c.Proxy.address = '127.0.0.1:{port}'\n"
    )
    command = [sys.executable, "-m", "dask_gateway_server", "--config", str(configuration)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # A gateway gives its clusters its own PYTHONPATH, if it has one, in place of the configured.
    modules = counted_preload.beside(differs)["PYTHONPATH"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env={**os.environ, "PATH": path, "PYTHONPATH": modules},
            cwd=folder,
        )
    try:
        wait_until(lambda: _is_up(address), what="the gateway")
        yield address
    except BaseException:
        print((folder / "log").read_text())
        raise
    finally:
        process.terminate()
        process.wait(START_PATIENCE)


def _is_up(address: str) -> bool:
    try:
        return requests.get(f"{address}/api/health", timeout=1).ok
    except requests.ConnectionError:
        return False


@pytest.mark.slow
def test_clusters_of_a_gateway_report_with_the_lines_of_the_docs(
    tmp_path: Path, recorder: Recorder
) -> None:
    differs = tmp_path / "differs"
    with gateway_server(tmp_path, recorder.url, differs) as address:
        with dask_gateway.Gateway(address, auth=dask_gateway.BasicAuth("ada")) as gateway:
            with gateway.new_cluster() as cluster:
                cluster.scale(1)
                with cluster.get_client() as client:
                    assert client.submit(inc, 1).result(START_PATIENCE) == 2
                name = cluster.name
        stopped = recorder.wait_for(lambda: _last(recorder, "stop"), "the goodbye")
        wait_until(differs.exists, what="the comparison")

    counted_preload.assert_equal(differs)
    assert stopped.cluster.kind == "Dask Gateway"
    # Each of a user's clusters on that host has a port of its own.
    where = f"{stopped.cluster.user} on {stopped.cluster.host}"
    assert re.fullmatch(rf"{where}:\d+", stopped.cluster.name)
    assert stopped.cluster.deployment["gateway.cluster.name"] == name
    assert [row.status for row in recorder.computations().values()] == ["finished"]


@pytest.mark.slow
def test_a_cluster_of_a_gateway_that_is_shut_down_is_gone_for_the_gateway_and_its_user_named(
    tmp_path: Path, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    differs = tmp_path / "differs"
    with gateway_server(tmp_path, recorder.url, differs) as address:
        with dask_gateway.Gateway(address, auth=dask_gateway.BasicAuth("ada")) as gateway:
            cluster = gateway.new_cluster(shutdown_on_close=False)
            cluster.scale(1)
            with cluster.get_client() as client:
                # Without settings of its own: the scheduler has a plugin, and gets to know whose
                # client that is.
                daskscope.register(client, endpoint=recorder.url, token=TOKEN)
                assert client.submit(inc, 1).result(START_PATIENCE) == 2
            (row,) = recorder.wait_for(lambda: [*recorder.computations().values()], "a row")
            recorder.commands = [
                {"id": "c1", "action": "shutdown", "requested_by": "bob", "reason": "", "grace": 0}
            ]
            stopped = recorder.wait_for(lambda: _last(recorder, "stop"), "the goodbye")
            recorder.commands = []
            wait_until(lambda: not gateway.list_clusters(), what="the gateway to see its end")
            wait_until(differs.exists, what="the comparison")
            cluster.close(shutdown=False)
    counted_preload.assert_equal(differs)
    assert row.user == "ada"
    assert stopped.cluster.kind == "Dask Gateway"


def _last(recorder: Recorder, phase: str) -> Any:
    return next((beat for beat in recorder.beats if beat.phase == phase), None)
