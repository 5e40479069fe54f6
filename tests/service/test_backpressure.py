"""What a sender is told while the service cannot write."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import requests
from sqlalchemy import select

from daskscope_service.db import schema
from tests.patience import wait_until
from tests.service.beats import make_beat, post
from tests.service.conftest import NewDatabase, standstill
from tests.service_process import ServiceProcess


def test_a_full_queue_is_a_429_and_reading_goes_on(
    tmp_path: Path, new_database: NewDatabase
) -> None:
    with ServiceProcess(tmp_path, database_url=new_database(), queue_size=1, threads=4) as service:
        token = service.token()
        assert post(service.url, token, make_beat()).ok
        waiting = make_beat()
        answers: list[Future[requests.Response]] = []
        with ThreadPoolExecutor() as pool:
            with standstill(service.engine):
                # Two at once: whichever comes first takes the only place.
                answers = [pool.submit(post, service.url, token, waiting) for _ in range(2)]
                wait_until(lambda: any(answer.done() for answer in answers))
                assert requests.get(f"{service.url}/readyz", timeout=30).ok
                headers = {"Authorization": f"Bearer {token}"}
                listed = requests.get(
                    f"{service.url}/api/v1/clusters", headers=headers, timeout=30
                ).json()
                assert waiting.cluster.id not in [item["id"] for item in listed["items"]]
            done = sorted((a.result(30) for a in answers), key=lambda a: a.status_code)
        assert [answer.status_code for answer in done] == [200, 429]
        assert done[1].headers["Retry-After"] == "1"
        assert done[1].headers["Content-Type"] == "application/problem+json"
        assert done[1].json()["request_id"] == done[1].headers["X-Request-ID"]
        with service.engine.connect() as connection:
            stored = connection.execute(select(schema.cluster.c.id)).scalars().all()
        assert waiting.cluster.id in stored


def test_the_probes_answer_without_a_token(shared_service: ServiceProcess) -> None:
    for path in ("/healthz", "/readyz"):
        answer = requests.get(shared_service.url + path, timeout=30)
        assert answer.json() == {"status": "ok"}
