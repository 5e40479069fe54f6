"""A real GPU that work leaves alone is named as such, and one that work uses is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import requests
from distributed import Client, LocalCluster

import daskscope
from tests.exporter.everywhere import counted_everywhere
from tests.gpu import needs_gpu, use_cpu, use_gpu
from tests.patience import wait_until
from tests.service_process import ServiceProcess

pytestmark = needs_gpu

#: Thread-seconds that the rule wants of tasks, and some more.
ENOUGH = 40.0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_gpu_is_unused_where_work_leaves_it_alone_and_only_there(tmp_path: Path) -> None:
    with (
        ServiceProcess(tmp_path / "data") as service,
        counted_everywhere(),
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        token = service.token(scopes=["ingest", "read"])
        registration = daskscope.register(client, endpoint=service.url, token=token, interval="1s")
        assert registration.url is not None
        path = f"{service.url}/api/v1/clusters/{registration.url.rpartition('/')[2]}"

        def answer(of: str = "") -> Any:
            found = requests.get(
                path + of, headers={"Authorization": f"Bearer {token}"}, timeout=30
            )
            return found.json()

        seen: set[str] = set()

        def run(function: Any) -> Any:
            """Run ``function`` on both threads for long enough. Return its computation's answer."""
            stop = tmp_path / function.__name__
            before = answer()["worker_seconds"]["busy"]
            tasks = client.map(function, [str(stop)] * 2, pure=False)
            wait_until(
                lambda: answer()["worker_seconds"]["busy"] > before + ENOUGH, what="enough work"
            )
            stop.touch()
            client.gather(tasks)
            (computation,) = wait_until(
                lambda: [
                    one
                    for one in answer("/computations")["items"]
                    if one["status"] == "finished" and one["id"] not in seen
                ],
                what=f"the end of {function.__name__}",
            )
            seen.add(computation["id"])
            return answer(f"/computations/{computation['id']}")

        left_alone, used = run(use_cpu), run(use_gpu)

    assert [one["rule"] for one in left_alone["findings"]][:1] == ["unused-gpu"], left_alone
    assert "1 worker has a GPU, which was used for at most 0" in left_alone["headline"]
    assert "unused-gpu" not in {one["rule"] for one in used["findings"]}, used
    assert "unused-gpu" not in used["not_measured"]
