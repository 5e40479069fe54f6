"""A workspace with runs of a job over days, and how it is asked about them."""

from __future__ import annotations

import time
import uuid
from typing import Any

import requests
from sqlalchemy import select

from daskscope.protocol import CodeFrame, Prices
from daskscope_service.db import schema
from daskscope_service.jobs.namer import Namer
from tests.patience import wait_until
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_code,
    make_computation,
    make_profile,
    make_status,
    make_task_group,
    post,
)
from tests.service.pages import words
from tests.service_process import ServiceProcess

NOW = time.time()
CODE = make_code("import dask\n\nresult = load('a').sum().compute()\n", "/home/ada/run.py")
EDITED = make_code("import dask.array\n\nresult = load('b').sum().compute()\n", "/home/ada/run.py")
#: The line of the call: the code begins with the eleventh.
LINE = 13
DOLLARS = Prices("USD", {"thread": 3600.0})


class Place:
    """A workspace with jobs, and how it is asked about them."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service, self.workspace = service, f"jobs-{uuid.uuid4().hex[:8]}"
        self.token = service.token(scopes=["ingest", "read"], workspace=self.workspace)
        self.session = requests.Session()
        self.session.post(f"{service.url}/sign-in", data={"token": self.token}, timeout=30)
        self.sent = 0

    def run(self, seconds: float, day: float, *, cluster: Any = None, **fields: Any) -> str:
        """Send a run that took so many seconds, so many days ago; return its id."""
        self.sent += 1
        id = f"run-{self.sent}"
        began = NOW - day * 86_400
        code, group = fields.pop("code", CODE), fields.pop("group_fields", {})
        profile = fields.pop("profile", None)  # fields of a profile of the time of the run
        of_status: dict[str, Any] = {
            "at": began + seconds + 5,
            "worker_seconds": {"busy": 2 * seconds, "idle": 2 * seconds, "paused": 0.0},
            "cost": 4 * seconds,
        }
        status = make_status(**(of_status | fields.pop("status_fields", {})))
        values: dict[str, Any] = {
            "status": "finished",
            "started_at": began,
            "stopped_at": began + seconds,
            "erred": 0,
            "completed": 100,
            "states": {"memory": 100},
            "seconds": {"compute": 2 * seconds},
            "worker_seconds": {"busy": 2 * seconds, "idle": 2 * seconds},
            "frames": (CodeFrame("/home/ada/run.py", LINE, code.hash),),
            "spans": ("default",),
        }
        beat = make_beat(
            make_cluster(
                f"Scheduler-{self.workspace}-{self.sent}",
                started_at=began - 5,
                **({"prices": DOLLARS} | (cluster or {})),
            ),
            status=status,
            computations=(make_computation(id, **(values | fields)),),
            task_groups=(
                make_task_group(
                    id,
                    "sum-1",
                    dependencies=(),
                    **(
                        {"prefix": "sum", "completed": 100, "seconds": {"compute": 2 * seconds}}
                        | group
                    ),
                ),
            ),
            code=(code,),
            profiles=()
            if profile is None
            else (make_profile(id, started_at=began, stopped_at=began + seconds, **profile),),
        )
        assert post(self.service.url, self.token, beat).ok
        return id

    def jobs(self, *, runs: int, **parameters: str) -> list[Any]:
        """Return the jobs once so many runs are counted in all."""
        found: list[Any] = []

        namer = Namer(self.service.engine, 60.0)

        def counted() -> bool:
            namer.round()
            found[:] = self.answer("jobs", **parameters)["items"]
            return sum(one["runs"] for one in found) == runs and self.summed()

        assert wait_until(counted), found
        return found

    def summed(self) -> bool:
        query = select(schema.job.c.id).where(
            schema.job.c.workspace == self.workspace, schema.job.c.due_at <= time.time()
        )
        with self.service.engine.connect() as connection:
            return connection.execute(query).first() is None

    def answer(self, path: str, **parameters: str) -> Any:
        answer = self.ask(path, **parameters)
        assert answer.ok, answer.text
        return answer.json()

    def ask(self, path: str, **parameters: str) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.service.url}/api/v1/{path}"
        return requests.get(url, params=parameters, headers=headers, timeout=30)

    def page(self, path: str) -> str:
        answer = self.session.get(self.service.url + path, timeout=30)
        assert answer.ok, answer.text
        return words(answer.text)
