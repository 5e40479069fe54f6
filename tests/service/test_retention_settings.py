"""Retention as owners set it: by the page, which tells what goes before it does, and by the API."""

from __future__ import annotations

import re
import time
import uuid
from typing import Any, get_args

import pytest
import requests
from sqlalchemy import Engine, func, insert, select, update

from daskscope import api_types
from daskscope_service.accounts import audit
from daskscope_service.db import schema
from daskscope_service.db.engine import writing
from daskscope_service.retention import policy
from daskscope_service.retention.api import KeptDays
from daskscope_service.retention.forecast import MOST_COUNTED, forecast
from daskscope_service.retention.rounds import next_round
from tests.service.people import browser_of, make_user
from tests.service.test_retention import DAY, NOW, ROWS, fill, gone_after, put
from tests.service_process import ServiceProcess


class Place:
    """A workspace with an owner and a viewer."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service = service
        self.name = f"kept-{uuid.uuid4().hex}"
        self.owner_name = make_user(service, {self.name: "owner"}).name
        self.owner = browser_of(service, self.owner_name)
        self.viewer = browser_of(service, make_user(service, {self.name: "viewer"}).name)
        self.api = f"{service.url}/api/v1/retention"
        self.page = f"{service.url}/settings/retention"

    def days(self) -> dict[str, int | None]:
        items = self.viewer.get(self.api, timeout=30).json()["kinds"]
        return {one["kind"]: one["days"] for one in items if one["own"]}

    def post(self, **form: str) -> requests.Response:
        named = {name.replace("_", "-"): text for name, text in form.items()}
        return self.owner.post(self.page, data=named, timeout=30)

    def old_log(self, days: float, number: int = 1) -> None:
        """Put log records into the workspace that are so old."""
        (row,) = ROWS["log_record"]
        with writing(self.service.engine) as connection:
            for _ in range(number):
                values = {"workspace": self.name, "id": uuid.uuid4().hex}
                at = time.time() - days * DAY
                connection.execute(insert(schema.log_record).values(row | values | {"at": at}))


@pytest.fixture
def place(shared_service: ServiceProcess) -> Place:
    return Place(shared_service)


def test_the_api_sets_all_kinds_at_once_and_the_audit_log_tells_what_changed(place: Place) -> None:
    first = place.viewer.get(place.api, timeout=30).json()
    assert [one["days"] for one in first["kinds"]] == [kind.days for kind in policy.KINDS]
    assert first["next_at"] is not None
    days: dict[str, Any] = {"logs": 14, "clusters": None, "series-full": 90, "series-5min": 90}
    assert place.owner.put(place.api, json={"days": days}, timeout=30).ok
    assert place.days() == days
    assert place.owner.put(place.api, json={"days": {"logs": 14}}, timeout=30).ok
    assert place.days() == {"logs": 14}
    assert place.owner.put(place.api, json={"days": {"logs": 14.0}}, timeout=30).ok
    again = place.owner.put(place.api, json={"days": {"logs": 14}}, timeout=30)
    assert again.ok
    told = [
        (one.actor, one.detail)
        for one in audit.newest(place.service.engine, 500)
        if one.workspace == place.name and one.action == "retention changed"
    ]
    assert told == [
        (
            place.owner_name,
            "clusters: 400 days (the default); series-full: 7 days (the default); "
            "series-5min: 60 days (the default)",
        ),
        (
            place.owner_name,
            "clusters: forever; logs: 14 days; series-full: 90 days; series-5min: 90 days",
        ),
    ]


@pytest.mark.parametrize(
    ("days", "status", "field"),
    [
        ({"logs": 0}, 400, "$.days.logs"),
        ({"logs": 1.5}, 400, "$.days.logs"),
        ({"pictures": 3}, 400, "$.days"),
        ({"series-full": 61}, 409, "$.days.series-full"),
        ({"series-5min": 5}, 409, "$.days.series-5min"),
    ],
)
def test_the_api_names_the_field_that_cannot_be(
    place: Place, days: dict[str, int], status: int, field: str
) -> None:
    answer = place.owner.put(place.api, json={"days": days}, timeout=30)
    assert answer.status_code == status
    assert answer.json()["field"] == field
    assert place.days() == {}


def test_only_owners_change_it_and_everyone_reads_it(place: Place) -> None:
    page = place.viewer.get(place.page, timeout=30)
    assert "<input" not in page.text.partition("<main")[2]
    assert "400 days" in page.text
    assert place.viewer.post(place.page, data={"logs": "3"}, timeout=30).status_code == 403
    assert place.viewer.put(place.api, json={"days": {}}, timeout=30).status_code == 403


def test_what_would_go_is_told_and_asked_first(place: Place) -> None:
    place.old_log(20, number=3)
    assert "Nothing is older than 30 days." in place.viewer.get(place.page, timeout=30).text
    asked = place.post(logs="14")
    assert asked.url == place.page
    assert re.search(r"<li>3 log records, about \d\S* (B|KiB): older than 14 days</li>", asked.text)
    assert place.days() == {}
    done = place.post(logs="14", sure="1")
    assert done.history
    assert place.days() == {"logs": 14}
    assert "Older than 14 days: 3 log records, about" in done.text
    # What goes already is not asked of again, nor what is kept for longer from now on.
    assert place.post(logs="14", spans="15").history
    assert place.post(logs="forever", spans="").history
    assert place.days() == {"logs": None}
    assert place.post(logs="13").url == place.page
    assert place.days() == {"logs": None}


def test_what_cannot_be_is_said_beside_its_field_and_nothing_is_changed(place: Place) -> None:
    answer = place.post(logs="soon", spans="3", series_full="7")
    assert answer.status_code == 400
    assert 'aria-describedby="logs-wrong"' in answer.text
    assert 'id="logs-wrong">Not a number of days' in answer.text
    assert 'value="soon"' in answer.text
    assert 'name="spans" value="3"' in answer.text
    answer = place.post(series_full="90")
    assert 'id="series-full-wrong">Series-full (90 days) would be kept for longer' in answer.text
    for text in ("0", "-3", "3.5", "²", "9" * 9, "1e3"):
        assert place.post(logs=text).status_code == 400, text
    assert place.days() == {}


def test_the_forecast_is_what_a_round_then_removes(engine: Engine) -> None:
    fill(engine, NOW)
    at = NOW + 200 * DAY
    with engine.connect() as connection:
        told = forecast(connection, "default", policy.periods(engine, "default"), at)
    assert {kind: one.rows for kind, one in told.items()} == {
        "clusters": 0,
        "computations": 1,
        "failures": 2,
        "events": 1,
        "profiles": 2,  # and a task stream
        "spans": 1,
        "logs": 1,
        "series-full": 0,
        "series-5min": 1,
        "series": 0,
    }
    assert all((one.bytes > 0) == (one.rows > 0) for one in told.values())
    gone = gone_after(engine, at)
    assert gone["worker_loss"] + gone["failure"] == 2
    with engine.connect() as connection:
        told = forecast(connection, "default", policy.periods(engine, "default"), at)
    assert {one.rows for one in told.values()} == {0}


def test_the_forecast_stops_counting_and_says_so(engine: Engine) -> None:
    (row,) = ROWS["event"]
    with writing(engine) as connection:
        connection.execute(
            insert(schema.event),
            [row | {"id": str(number), "at": NOW} for number in range(MOST_COUNTED + 1)],
        )
        size = connection.execute(
            select(func.max(func.length(schema.event.c.message)))
        ).scalar_one()
    with engine.connect() as connection:
        told = forecast(connection, "default", {"events": 1}, NOW + 2 * DAY)["events"]
    assert (told.rows, told.more) == (MOST_COUNTED, True)
    assert size * MOST_COUNTED < told.bytes < (size + 1000) * MOST_COUNTED


def test_the_forecast_looks_at_some_of_many_clusters_days_for_their_points(engine: Engine) -> None:
    (of_series,), (of_usage,) = ROWS["series"], ROWS["usage"]
    clusters, each = 100, 20
    today = int(NOW // DAY)
    with writing(engine) as connection:
        ids = [{"id": n + 1, "cluster": f"c{n}"} for n in range(clusters)]
        connection.execute(insert(schema.series), [of_series | one for one in ids])
        # Each on two days, of which one goes; every other cluster has twice the points.
        usage = [
            of_usage | {"cluster": one["cluster"], "day": today + day}
            for one in ids
            for day in (0, 2)
        ]
        connection.execute(insert(schema.usage), usage)
        points = [
            {"series": one["id"], "time": (today + day) * int(DAY * 1000) + step, "value": 1.0}
            for number, one in enumerate(ids)
            for day in (0, 2)
            for step in range(each * (1 + number % 2))
        ]
        connection.execute(insert(schema.point), points)
    kept = {"series-5min": 5, "series": 12}
    with engine.connect() as connection:
        told = forecast(connection, "default", kept, (today + 7) * DAY)["series-5min"]
    assert told.rows == pytest.approx(clusters * each * 1.5, rel=0.4)
    assert not told.more


def test_the_forecast_tells_nothing_of_other_workspaces(engine: Engine) -> None:
    fill(engine, NOW)
    with engine.connect() as connection:
        told = forecast(connection, "finance", policy.periods(engine, "finance"), NOW + 999 * DAY)
    assert {one.rows for one in told.values()} == {0}


def test_the_next_round_is_told(engine: Engine) -> None:
    assert next_round(engine, 0.0, NOW) is None
    assert next_round(engine, 3600.0, NOW) == NOW + 300
    put(engine, schema.lease, name="retention", done_at=NOW - 600)
    assert next_round(engine, 3600.0, NOW) == NOW + 3000
    with writing(engine) as connection:
        connection.execute(update(schema.lease).values(done_at=NOW - 9999))
    assert next_round(engine, 3600.0, NOW) == NOW


def test_the_kinds_of_the_contract_are_those_that_are_kept() -> None:
    names = [kind.name for kind in policy.KINDS]
    assert list(get_args(api_types.KeptKind)) == list(KeptDays.__struct_encode_fields__) == names
