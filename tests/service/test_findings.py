"""Findings on pages and in answers: what stands out, of what clusters sent."""

from __future__ import annotations

import html
import re
import time
from typing import Any

import pytest
import requests

from daskscope.names import DURATION_BOUNDS
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_computation,
    make_failure,
    make_status,
    make_task_group,
    make_worker_loss,
    post,
)
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

WORKSPACE = "findings"
NOW = time.time()
CLUSTER = "Scheduler-findings"


def seconds_ago(begin: float, end: float) -> dict[str, Any]:
    return {"started_at": NOW - begin, "stopped_at": NOW - end, "status": "finished"}


class Reader:
    """Reads pages and answers of the workspace."""

    def __init__(self, service: ServiceProcess) -> None:
        self.url = service.url
        self.token = service.token(scopes=["ingest", "read"], workspace=WORKSPACE)
        self.session = requests.Session()
        self.session.post(f"{self.url}/sign-in", data={"token": self.token}, timeout=30)

    def verdict(self, path: str) -> str:
        page = self.session.get(self.url + path, timeout=30).text
        found = re.search(r'<p class="verdict">(.*?)</p>', page)
        assert found is not None, page
        return html.unescape(found[1])

    def page(self, path: str) -> str:
        text = re.sub("<[^>]*>", " ", self.session.get(self.url + path, timeout=30).text)
        return html.unescape(" ".join(text.split()))

    def answer(self, path: str, **parameters: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = requests.get(
            f"{self.url}/api/v1/{path}", params=parameters, headers=headers, timeout=30
        )
        assert answer.ok, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def reader(shared_service: ServiceProcess) -> Reader:
    reader = Reader(shared_service)
    durations = (14_975, 25, *(0,) * (len(DURATION_BOUNDS) - 1))
    tiny: dict[str, Any] = {
        "tasks": 15_000,
        "completed": 15_000,
        "erred": 0,
        "states": {"memory": 15_000},
        "seconds": {"compute": 0.606},
    }
    died: dict[str, Any] = {
        "tasks": 2,
        "completed": 0,
        "erred": 2,
        "states": {"erred": 2},
        "seconds": {},
    }
    beat = make_beat(
        make_cluster(CLUSTER, started_at=NOW - 600),
        status=make_status(threads=4, peak_threads=4, workers=2, peak_workers=2),
        computations=(
            make_computation("tiny", **seconds_ago(500, 483.6), **tiny),
            make_computation("died", **seconds_ago(300, 280) | {"status": "erred"}, **died),
        ),
        task_groups=(
            make_task_group("tiny", "inc", prefix="inc", durations=durations, **tiny),
            make_task_group("died", "grow", prefix="grow", **died),
        ),
        failures=(make_failure(computation="died", type="KilledWorker", count=2),),
        worker_losses=tuple(
            make_worker_loss(
                id=f"w{i}",
                at=NOW - 290 + i,
                reason="out of memory",
                memory_limit=300_000_000,
                nanny_memory=size,
                tasks={"grow": 1},
            )
            for i, size in enumerate((290_000_000, 320_000_000))
        ),
    )
    assert post(reader.url, reader.token, beat).ok
    return reader


def test_the_first_sentence_of_a_computation_names_the_cause(reader: Reader) -> None:
    path = f"/clusters/{CLUSTER}/computations/tiny"
    assert reader.verdict(path) == (
        "Finished in 16.4 s: its 15,000 tasks took 40 µs each, and Dask needs up to 1 ms for each: "
        "computing was 1\N{NO-BREAK SPACE}% of the threads' time."
    )
    page = reader.page(path)
    assert "task runs 15,000 · compute time of a run 40 µs" in page
    assert "What to do: Put more inputs into one task. about 1,000 for each task" in page
    assert "saves up to 15.0 s" in page


def test_an_answer_has_what_its_page_shows(reader: Reader) -> None:
    found = reader.answer(f"clusters/{CLUSTER}/computations/died")
    assert found["headline"] == (
        "Failed after 20.0 s: its tasks of grow ran 2 workers out of memory, at 277 MiB to 305 MiB "
        "of the 286 MiB that each may use; Dask gave up."
    )
    assert reader.verdict(f"/clusters/{CLUSTER}/computations/died") == found["headline"]
    first, second = found["findings"]
    assert (first["rule"], first["severity"]) == ("out-of-memory", "critical")
    assert (second["rule"], second["suppressed_by"]) == ("failed", "out-of-memory")
    assert {"name": "workers lost", "value": 2, "unit": "{worker}", "link": "h-losses"} in (
        first["evidence"]
    )
    assert (first["cluster"], first["computation"], first["subject"]) == (
        CLUSTER,
        "died",
        "computation",
    )


def test_a_cluster_names_what_happened_on_it(reader: Reader) -> None:
    assert "ran 2 workers out of memory" in reader.verdict(f"/clusters/{CLUSTER}")
    found = reader.answer(f"clusters/{CLUSTER}")
    assert [one["rule"] for one in found["findings"]] == ["out-of-memory"]
    assert found["not_measured"]["over-provisioned-memory"]
