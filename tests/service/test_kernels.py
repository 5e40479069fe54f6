"""What the service shows of clusters in Jupyter kernels that are shut down, restarted or killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import requests
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from sqlalchemy import select
from traitlets.config import Config

from daskscope_service.db import schema
from daskscope_service.notifications.due_notices import store_new_notices
from tests.needed import needed
from tests.patience import stretched, wait_until
from tests.service_process import ServiceProcess

#: As long as Jupyter waits for a kernel to end before it kills it, and for a cell.
SHUTDOWN_SECONDS, CELL_SECONDS = 5.0, 120.0

#: The kernel counts beside the plugin, and compares while its cluster lives: it ends at once.
_ROOT = Path(__file__).parents[2]
_NOTEBOOK = """
import sys
import dask.array
import daskscope
from daskscope.plugin import NAME
from distributed import Client, LocalCluster, wait

sys.path.append({root!r})
from tests.exporter.truth import Truth
from tests.patience import wait_until
from tests.service.counted_rows import assert_service_equals

cluster = LocalCluster(
    n_workers=2, threads_per_worker=1, dashboard_address=":0", name={name!r}
)
client = Client(cluster)
truth = Truth(cluster.scheduler, NAME)
client.sync(truth.begin)
registered = daskscope.register(
    client, endpoint={url!r}, token={token!r}, interval="1s", name={name!r}
)

def fetch(number):
    return number

def fail():
    raise ValueError("as ever")

futures = client.map(fetch, range(100))
rows = client.gather(futures)
kept = dask.array.ones((4, 4), chunks=2).persist()
failed = client.submit(fail)
wait([kept, failed])
client.sync(truth.end)

def is_counted():
    try:
        assert_service_equals(truth, {url!r}, {token!r}, str(registered.cluster_id))
    except Exception as error:  # its rows come with its next beats
        return print(error)
    return True

wait_until(is_counted)
"""

#: Its scheduler runs on the event loop of the kernel itself, which cannot wait for it.
_ASYNCHRONOUS = """
import daskscope
from distributed import Client, LocalCluster

cluster = await LocalCluster(
    processes=False, n_workers=1, threads_per_worker=1, dashboard_address=":0", asynchronous=True
)
client = await Client(cluster, asynchronous=True)
await daskscope.register(client, endpoint={url!r}, token={token!r}, interval="1s")
assert await client.submit(abs, -1) == 1
"""

#: What became of the three computations of a notebook, with how many of their tasks were done.
_AS_IT_WAS = [("erred", 0, 1), ("finished", 4, 4), ("finished", 100, 100)]


@pytest.fixture
def service(tmp_path: Path) -> Any:
    with ServiceProcess(tmp_path / "data", silent_after=1) as service:
        yield service


@pytest.mark.slow
def test_a_kernel_that_ends_takes_its_cluster_along_and_what_had_ended_stays_so(
    service: ServiceProcess, tmp_path: Path
) -> None:
    token = service.token()

    def ask(path: str) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {token}"}
        answer = requests.get(f"{service.url}/api/v1/{path}", headers=headers, timeout=60)
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    def cluster(name: str) -> dict[str, Any]:
        return next((one for one in ask("clusters") if one["name"] == name), {"status": "none"})

    def computations(name: str) -> list[tuple[str, int, int]]:
        rows = ask(f"clusters/{cluster(name)['id']}/computations")
        return sorted((row["status"], row["done"], row["tasks"]) for row in rows)

    def is_told(name: str, status: str) -> Callable[[], bool]:
        return lambda: cluster(name)["status"] == status and computations(name) == _AS_IT_WAS

    def code(name: str) -> str:
        return _NOTEBOOK.format(name=name, url=service.url, token=token, root=str(_ROOT))

    # As nbconvert and papermill run it.
    cell = nbformat.v4.new_code_cell(code("executed"))  # type: ignore[no-untyped-call]
    notebook = nbformat.v4.new_notebook(cells=[cell])  # type: ignore[no-untyped-call]
    # A manager that is handed over would be left with its kernel.
    patient = Config({"KernelManager": {"shutdown_wait_time": stretched(SHUTDOWN_SECONDS)}})
    NotebookClient(
        notebook,
        config=patient,
        timeout=int(stretched(CELL_SECONDS)),
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    wait_until(is_told("executed", "stopped"), what=lambda: (ask("clusters"), ask("computations")))

    manager = _manager()
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=stretched(60.0))
        _run(client, code("restarted"))
        manager.restart_kernel()
        wait_until(is_told("restarted", "stopped"))

        client.wait_for_ready(timeout=stretched(60.0))
        _run(client, code("killed"))
        wait_until(is_told("killed", "running"))
        client.execute("import time; print('asleep', flush=True); time.sleep(600)")
        wait_until(lambda: _is_printed(client, "asleep"))
        manager.interrupt_kernel()
        # ipykernel gives up what is asked while a cell fails.
        wait_until(lambda: _status(client, "print('awake')") == "ok")
        wait_until(is_told("killed", "running"))
        # Not a line of Python runs any more.
        manager.shutdown_kernel(now=True)
        wait_until(is_told("killed", "ended"), what=lambda: (ask("clusters"), ask("computations")))
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

    store_new_notices(service.engine, "default", 1.0, listens=True)
    with service.engine.connect() as connection:
        kinds = connection.execute(select(schema.notice.c.kind)).scalars().all()
    assert "cluster silent" not in kinds
    assert {one["status"] for one in ask("clusters")} == {"stopped", "ended"}


@pytest.mark.slow
def test_a_notebook_that_nbconvert_executes_takes_its_cluster_along(
    service: ServiceProcess, tmp_path: Path
) -> None:
    needed("nbconvert", "it executes notebooks from a shell or a scheduler of jobs")
    token = service.token()
    code = _NOTEBOOK.format(name="converted", url=service.url, token=token, root=str(_ROOT))
    cell = nbformat.v4.new_code_cell(code)  # type: ignore[no-untyped-call]
    notebook = nbformat.v4.new_notebook(cells=[cell])  # type: ignore[no-untyped-call]
    nbformat.write(notebook, tmp_path / "nightly.ipynb")  # type: ignore[no-untyped-call]
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute"),
            f"--ExecutePreprocessor.timeout={int(stretched(CELL_SECONDS))}",
            f"--KernelManager.shutdown_wait_time={stretched(SHUTDOWN_SECONDS)}",
            "nightly.ipynb",
        ],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=stretched(2 * CELL_SECONDS),
        check=False,
    )
    assert ran.returncode == 0, ran.stderr

    def ask(path: str) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {token}"}
        answer = requests.get(f"{service.url}/api/v1/{path}", headers=headers, timeout=60)
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    wait_until(
        lambda: [one["status"] for one in ask("clusters")] == ["stopped"],
        what=lambda: (ask("clusters"), ran.stderr),
    )
    rows = [(row["status"], row["done"], row["tasks"]) for row in ask("computations")]
    assert sorted(rows) == _AS_IT_WAS


@pytest.mark.slow
def test_an_asynchronous_cluster_ends_with_its_kernel(
    service: ServiceProcess, tmp_path: Path
) -> None:
    token = service.token()

    def status() -> str:
        headers = {"Authorization": f"Bearer {token}"}
        answer = requests.get(f"{service.url}/api/v1/clusters", headers=headers, timeout=60)
        return next((str(one["status"]) for one in answer.json()["items"]), "none")

    manager = _manager()
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=stretched(60.0))
        _run(client, _ASYNCHRONOUS.format(url=service.url, token=token))
        wait_until(lambda: status() == "running")
        manager.shutdown_kernel()
        wait_until(lambda: status() == "stopped", what=status)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _manager() -> KernelManager:
    manager = KernelManager()
    manager.shutdown_wait_time = stretched(SHUTDOWN_SECONDS)
    return manager


def _is_printed(client: Any, text: str) -> bool:
    message = client.get_iopub_msg(timeout=stretched(30.0))
    return message["msg_type"] == "stream" and text in message["content"]["text"]


def _run(client: Any, code: str) -> None:
    assert _status(client, code) == "ok"


def _status(client: Any, code: str) -> str:
    reply = client.execute(code, reply=True, timeout=stretched(CELL_SECONDS))
    return str(reply["content"]["status"])
