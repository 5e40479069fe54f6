"""A worker that left as the time limit of its job was reached says so on its cluster's page."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from daskscope_service.insight.job_time import reached_time_limit
from tests.service.beats import make_beat, make_cluster, make_worker_loss, post
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite

END = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("end", "left_at", "reached"),
    [
        ("2026-11-29T12:00:00Z", END - 60, False),
        ("2026-11-29T12:00:00Z", END - 1, True),
        ("2026-11-29T12:00:00Z", END + 40, True),
        ("no time", END, False),
        ("", END, False),
    ],
)
def test_it_was_reached_if_the_worker_left_at_its_jobs_end_or_later(
    end: str, left_at: float, reached: bool
) -> None:
    assert reached_time_limit({"slurm.job.id": "1", "slurm.job.end": end}, left_at) is reached
    assert not reached_time_limit({}, left_at)


def test_its_clusters_page_says_so(shared_service: ServiceProcess) -> None:
    now = time.time()
    at_its_end, before = (
        {"slurm.job.id": id, "slurm.job.end": f"{datetime.fromtimestamp(end, UTC):%FT%TZ}"}
        for id, end in (("42", now - 100), ("43", now + 100))
    )
    losses = (
        make_worker_loss(id="w1", name="late", at=now - 70, deployment=at_its_end),
        make_worker_loss(id="w2", name="early", at=now - 70, deployment=before),
    )
    token = shared_service.token(workspace="limits")
    cluster = make_cluster("Scheduler-limits")
    post(shared_service.url, token, make_beat(cluster, worker_losses=losses))
    owner = browser_of(shared_service, make_user(shared_service, {"limits": "owner"}).name)
    page = owner.get(f"{shared_service.url}/clusters/{cluster.id}", timeout=30)
    rows = page.text.split('<tr id="w-')[1:]
    said = {row[:2]: "time limit was reached" in row for row in rows}
    assert said == {"w1": True, "w2": False}
