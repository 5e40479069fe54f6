"""A job that became slower is a finding of its runs, is sent once, and has a receipt once fixed."""

from __future__ import annotations

import time
from typing import Any

import dask
import pytest
from sqlalchemy import select

import daskscope
from daskscope_service.db import schema
from daskscope_service.notifications import due_notices
from tests.patience import wait_until
from tests.service.job_history import EDITED, Place
from tests.service_process import ServiceProcess

RULE = "slower-than-before"


@pytest.fixture
def place(shared_service: ServiceProcess) -> Place:
    return Place(shared_service)


def _judged(place: Place) -> list[Any]:
    """Return the findings of the rule once no computation is due."""
    table = schema.computation
    due = select(table.c.id).where(
        table.c.workspace == place.workspace, table.c.judge_at <= time.time()
    )

    def none_due() -> bool:
        with place.service.engine.connect() as connection:
            return connection.execute(due).first() is None

    assert wait_until(none_due)
    found: list[Any] = place.answer("findings", rule=RULE)["items"]
    return found


def _notices(place: Place) -> list[str]:
    due_notices.store_new_notices(place.service.engine, place.workspace, 60.0, listens=False)
    table = schema.notice
    query = select(table.c.sentence).where(table.c.workspace == place.workspace)
    with place.service.engine.connect() as connection:
        return [one for one in connection.execute(query).scalars() if "instead of" in one]


def test_runs_since_a_change_say_so_once_and_the_repair_has_a_receipt(place: Place) -> None:
    before = [place.run(10 + day % 3 * 0.1, 20 - day) for day in range(6)]
    place.jobs(runs=6)
    assert _judged(place) == []
    # The last one is of today, so that it is news.
    since = [place.run(21 + day % 3 * 0.1, 4.5 - day, code=EDITED) for day in range(5)]
    [job] = place.jobs(runs=11)
    found = _judged(place)
    assert {one["computation"] for one in found} == set(since)
    one = next(one for one in found if one["computation"] == since[-1])
    assert one["sentence"] == (
        "It takes 2.1 times as long as before: 21.1 s instead of 10.1 s, for the last 5 passed "
        "runs; at the same time changed: other code."
    )
    measures = {measure["name"]: measure["value"] for measure in one["evidence"]}
    assert (measures["runs before"], measures["runs since"]) == (6, 5)
    assert one["actions"][0]["value"] == f"daskscope compare {before[-1]} {since[-1]}"
    assert one["saving"]["high"] == pytest.approx(11, abs=0.2)
    assert one["severity"] == "warning"
    assert place.answer(f"jobs/{job['id']}")["receipt"] is None
    assert len(_notices(place)) == 1
    # Another run of the same change is no news.
    place.run(21, 0.3, code=EDITED)
    place.jobs(runs=12)
    assert len(_judged(place)) == 6
    assert len(_notices(place)) == 1
    # It was repaired.
    for day in range(5):
        place.run(10 + day % 3 * 0.1, 0.25 - day / 30)
    place.jobs(runs=17)
    assert {one["computation"] for one in _judged(place)} == {*since, "run-12"}
    detail = place.answer(f"jobs/{job['id']}")
    receipt = detail["receipt"]
    assert receipt["rules"] == [RULE]
    assert receipt["share"] == pytest.approx(0.52, abs=0.02)
    assert receipt["saved"] == pytest.approx(44, abs=1)
    assert receipt["sentence"].startswith("Saves 52\N{NO-BREAK SPACE}% since ")
    assert " USD a run; up to 52\N{NO-BREAK SPACE}% was expected." in receipt["sentence"]
    with dask.config.set({"daskscope.endpoint": place.service.url, "daskscope.token": place.token}):
        told = daskscope.get_job(job["id"])
        with pytest.raises(daskscope.NotFound):
            daskscope.get_job("no-such-job")
    assert told["receipt"] is not None
    assert told["receipt"]["sentence"] == receipt["sentence"]
    assert told["run_list"][-1]["started_at"].tzinfo is not None
    assert told["changes"][0]["at"] <= told["receipt"]["at"] <= told["last_at"]
    assert "Gone since then: slower than before." in place.page(f"/jobs/{job['id']}")
    assert len(_notices(place)) == 1


def test_equal_runs_and_faster_ones_are_no_finding(place: Place) -> None:
    for day in range(10):
        place.run(10, 20 - day)
    for day in range(5):
        place.run(5, 9 - day)
    [job] = place.jobs(runs=15)
    assert _judged(place) == []
    detail = place.answer(f"jobs/{job['id']}")
    assert len(detail["changes"]) == 1
    # Nobody knows what was repaired, if anything was.
    assert detail["receipt"] is None
