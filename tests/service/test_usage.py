"""What clusters come to, day by day, as beats bring it; and the list of clusters, filtered."""

from __future__ import annotations

import csv
import json
import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime
from typing import Any

import pytest
import requests
from sqlalchemy import delete, update

from daskscope.protocol import EARLIEST, NO_CURRENCY, Prices
from daskscope_service.costs import usage, usage_sums, usage_totals
from daskscope_service.costs.usage import add_up, list_usage
from daskscope_service.costs.usage_totals import sum_up
from daskscope_service.db import schema
from daskscope_service.db.data_ownership import Whose
from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.scope import Scope
from daskscope_service.ingest.cluster_rows import UsageDue, UsageUpsert
from daskscope_service.ingest.last_usage import LastUsage
from daskscope_service.retention.deletion import delete_rows
from daskscope_service.retention.throttle import Throttle
from daskscope_service.web.representation import as_item
from tests.service.beats import make_beat, make_cluster, make_status, post
from tests.service_process import ServiceProcess

DAY = 86_400
NOW = time.time()
#: Midnight of the Monday that begins this week, in UTC.
MONDAY = (int(NOW // DAY) - (int(NOW // DAY) + 3) % 7) * DAY
PRICES = Prices("USD", {"thread": 0.5})


_OF_STATUS = ("stopped_at", "idle_seconds", "gib_seconds", "gpu_seconds")


class Place:
    """A workspace of its own."""

    def __init__(self, service: ServiceProcess) -> None:
        self.service = service
        self.workspace = f"usage-{uuid.uuid4().hex}"
        self.token = service.token(workspace=self.workspace)
        self.browser = requests.Session()
        self.browser.post(f"{service.url}/sign-in", data={"token": self.token}, timeout=30)

    def beat(self, id: str, seq: int, at: float, hours: float, **fields: Any) -> None:
        """Report what a cluster of two threads came to in ``hours``, a quarter of them idle."""
        seconds = hours * 7200
        status = make_status(
            at=at,
            worker_seconds={"busy": 0.75 * seconds, "idle": 0.25 * seconds},
            cost=None if fields.get("prices", PRICES) is None else hours,
            idle_cost=None if fields.get("prices", PRICES) is None else 0.25 * hours,
            **{name: fields.pop(name) for name in _OF_STATUS if name in fields},
        )
        cluster = make_cluster(id, **({"started_at": at - 3600 * hours, "prices": PRICES} | fields))
        assert post(self.service.url, self.token, make_beat(cluster, seq, status=status)).ok

    def usage(self, weeks: int = 8) -> list[dict[str, Any]]:
        answer = requests.get(
            f"{self.service.url}/api/v1/usage",
            params={"weeks": weeks},
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=30,
        )
        assert answer.ok, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    def names(self, **filters: str) -> list[str]:
        """Return the names of the clusters in the list, as its page and its CSV show them."""
        answer = self.browser.get(f"{self.service.url}/clusters.csv", params=filters, timeout=30)
        assert answer.ok, answer.text
        rows = list(csv.DictReader(answer.text.splitlines()))
        if "status" in filters:
            assert all(row["status"] == filters["status"] for row in rows)
        page = self.browser.get(f"{self.service.url}/clusters", params=filters, timeout=30)
        assert page.ok
        assert all((f'id="cluster-{row["id"]}"' in page.text) for row in rows)
        return [row["name"] for row in rows]


@pytest.fixture
def place(shared_service: ServiceProcess) -> Place:
    return Place(shared_service)


def test_a_week_has_what_a_cluster_came_to_in_it_and_not_before(place: Place) -> None:
    started = MONDAY - 10 * DAY
    for seq, (at, hours) in enumerate(
        [(MONDAY - 9 * DAY, 24), (MONDAY - 8 * DAY, 30), (MONDAY - 60, 100), (MONDAY, 100.5)]
    ):
        place.beat("Scheduler-long", seq + 1, at, hours, started_at=started)
    this, last, before = sorted(place.usage(3), key=lambda one: one["week_started_at"])[::-1]
    assert [one["cost"] for one in (before, last, this)] == [30, 70, 0.5]
    assert [one["thread_seconds"] for one in (before, last, this)] == [216_000, 504_000, 3600]
    assert this["idle_seconds"] == 900
    assert this["up_seconds"] == 60
    assert this["prices"] == {"currency": "USD", "per_hour": {"thread": 0.5}}
    # What was before is taken off, also where it is not asked for.
    assert [one["cost"] for one in place.usage(1)] == [0.5]


def test_a_beat_that_comes_late_or_twice_changes_nothing(place: Place) -> None:
    place.beat("Scheduler-1", 2, MONDAY + 5, 2.0)
    place.beat("Scheduler-1", 1, MONDAY + 1, 1.0)
    place.beat("Scheduler-1", 2, MONDAY + 5, 2.0)
    assert [one["cost"] for one in place.usage(1)] == [2.0]


def test_between_two_beats_that_hardly_differ_nothing_is_counted_and_the_last_one_is(
    place: Place,
) -> None:
    hours = [10.0, 10 + 59 / 3600, 10 + 60 / 3600, 10 + 61 / 3600]
    counted = []
    for seq, reached in enumerate(hours):
        place.beat("Scheduler-1", seq, MONDAY + 5 + 3600 * (reached - 10), reached)
        counted.append(place.usage(1)[0]["cost"])
    assert counted == [hours[0], hours[0], hours[2], hours[2]]
    end = MONDAY + 5 + 61
    place.beat("Scheduler-1", 9, end, hours[3], stopped_at=end)
    assert place.usage(1)[0]["cost"] == hours[3]


def test_of_a_cluster_that_falls_silent_its_last_beat_counts(place: Place) -> None:
    """Also in stored sums, on another day than its last row, and with another cluster."""
    prices = Prices("EUR", {"thread": 1.0})
    place.beat("Scheduler-1", 1, MONDAY + 5, 10.0)
    place.beat("Scheduler-1", 2, MONDAY + 35, 10 + 30 / 3600, prices=prices, gib_seconds=7.0)
    place.beat("Scheduler-2", 1, MONDAY - 40, 10.0)
    place.beat("Scheduler-2", 2, MONDAY - 10, 10 + 30 / 3600)
    place.beat("Scheduler-3", 1, MONDAY + 5, 1.0, user="other")
    sum_up(place.service.engine)
    assert sorted(one["cost"] for one in place.usage(2)) == [1, 10, 10]

    LastUsage(place.service.engine, 0.0).round()
    other, last, this = sorted(
        place.usage(2), key=lambda one: (-len(one["user"]), one["week_started_at"])
    )
    assert other["cost"] == 1.0
    assert [this["cost"], last["cost"]] == [10 + 30 / 3600] * 2
    assert this["thread_seconds"] == 7200 * 10 + 60
    assert this["idle_seconds"] == (7200 * 10 + 60) / 4
    assert this["up_seconds"] == 36_030
    assert this["gib_seconds"] == 7.0
    assert this["prices"] == {"currency": "EUR", "per_hour": {"thread": 1.0}}
    # A cluster that reports again goes on from there.
    place.beat("Scheduler-1", 3, MONDAY + 335, 10 + 330 / 3600, prices=prices)
    assert sorted(one["cost"] for one in place.usage(1)) == [1.0, 10 + 330 / 3600]


def test_users_and_prices_are_told_apart_and_no_price_is_not_free(place: Place) -> None:
    place.beat("Scheduler-1", 1, MONDAY + 1, 1.0)
    place.beat("Scheduler-2", 1, MONDAY + 1, 2.0)
    place.beat("Scheduler-3", 1, MONDAY + 1, 4.0, user="li", prices=Prices(NO_CURRENCY, {}))
    place.beat("Scheduler-4", 1, MONDAY + 1, 8.0, prices=Prices("EUR", {"cluster": 1.0}))
    found = {
        (one["user"], (one["prices"] or {}).get("currency")): (one["clusters"], one["cost"])
        for one in place.usage(1)
    }
    assert found == {("ada", "USD"): (2, 3.0), ("ada", "EUR"): (1, 8.0), ("li", None): (1, None)}
    rows = place.browser.get(f"{place.service.url}/people.csv", timeout=30).text.splitlines()
    assert len(rows) == 4
    page = place.browser.get(f"{place.service.url}/people", timeout=30).text
    assert "thread 0.5 USD an hour" in page
    assert "8.00 EUR and 3.00 USD" in page


def test_a_cluster_counts_once_though_it_was_first_heard_the_day_after_it_began(
    place: Place,
) -> None:
    began = MONDAY - 6 * DAY - 3600
    for seq, hours in enumerate((2.0, 20.0, 40.0)):
        place.beat("Scheduler-1", seq + 1, began + 3600 * hours, hours, started_at=began)
    assert [(one["clusters"], one["cost"]) for one in place.usage(2)] == [(1, 40.0)]


def test_the_page_begins_with_the_newest_week(place: Place) -> None:
    place.beat("Scheduler-1", 1, MONDAY + 1, 1.0)
    place.beat("Scheduler-2", 1, MONDAY - 20 * DAY, 2.0)
    page = place.browser.get(f"{place.service.url}/people?weeks=4", timeout=30).text
    heat = page[page.index("<tbody>") : page.index("</tbody>")]
    cells = re.findall(r"<td[^>]*>(?:<b>)?([^<]*)", heat)
    assert cells == ["3.00", "1.00", "·", "·", "2.00"]
    weeks = re.findall(r"Week from Monday (\S+?)\"", page)
    assert weeks == sorted(weeks, reverse=True)
    assert len(weeks) == 4


def test_a_clock_that_is_ahead_is_of_today(place: Place) -> None:
    place.beat("Scheduler-1", 1, NOW + 40 * DAY, 1.0)
    assert [one["cost"] for one in place.usage(1)] == [1.0]


def fill_weeks(place: Place) -> None:
    """Report clusters of two users, some for one day, and one that goes on for three weeks."""
    for n in range(6):
        user, prices = ("ada", PRICES) if n % 2 else ("li", None)
        place.beat(f"Scheduler-{n}", 1, MONDAY - n * 3 * DAY, 1.0 + n, user=user, prices=prices)
    started = MONDAY - 20 * DAY
    for seq, days in enumerate((19, 18, 12, 11, 2, -0.01)):
        at = MONDAY - days * DAY
        place.beat("Scheduler-long", seq, at, (at - started) / 3600, started_at=started)


@pytest.mark.parametrize(
    ("costs", "days"),
    [
        ((10.0, 20.0, 30.0), (10.0, 10.0, 10.0)),
        ((None, None, 30.0), (None, None, 10.0)),
        ((10.0, None, 30.0), (10.0, None, 10.0)),
        ((10.0, None, None), (10.0, None, None)),
        ((10.0, 20.0, 19.5), (10.0, 10.0, 0.0)),
    ],
)
def test_no_day_of_a_cost_by_the_operators_prices_is_counted_twice(
    place: Place, costs: tuple[float | None, ...], days: tuple[float | None, ...]
) -> None:
    started = MONDAY - 9 * DAY
    for day in range(3):
        place.beat("Scheduler-1", day, started + day * DAY + 3600, 10.0 * (day + 1),
                   started_at=started, prices=None)  # fmt: skip
    assert cost_by_day(place, started, costs) == pytest.approx(days)


def test_a_plugin_that_was_restarted_counts_its_cost_by_the_operators_prices_from_nothing(
    place: Place,
) -> None:
    started = MONDAY - 9 * DAY
    for day, hours in enumerate((10.0, 30.0, 5.0)):
        place.beat("Scheduler-1", day, started + day * DAY + 3600, hours,
                   started_at=started, prices=None)  # fmt: skip
    assert cost_by_day(place, started, (10.0, 30.0, 5.0)) == pytest.approx((10.0, 20.0, 5.0))
    # Of next to no threads' time, nothing is infinite.
    with writing(place.service.engine) as connection:
        of_place = update(schema.usage).where(schema.usage.c.workspace == place.workspace)
        connection.execute(of_place.values(thread_seconds=5e-324))
    assert cost_by_day(place, started, (None, 30.0, 35.0)) == pytest.approx((None, 30.0, 5.0))
    assert cost_by_day(place, started, (30.0, None, None)) == pytest.approx((30.0, None, None))
    [used] = [one for one in place.usage() if one["price_source"] == "instances"]
    assert used["cost"] == pytest.approx(30.0)
    assert used["prices"] == {"currency": "EUR", "per_hour": {}}


def cost_by_day(
    place: Place, started: float, costs: tuple[float | None, ...]
) -> tuple[float | None, ...]:
    """Store what a cluster had cost at the end of its days, and return what each day cost."""
    first, table = int(started // DAY), schema.usage
    with writing(place.service.engine) as connection:
        for day, cost in enumerate(costs):
            source = {"operator_currency": "EUR", "operator_source": "instances"}
            values = {"operator_cost": cost} | (source if cost is not None else {})
            connection.execute(
                update(table)
                .where(table.c.workspace == place.workspace, table.c.day == first + day)
                .values(dict.fromkeys(("operator_currency", "operator_source")) | values)
            )
    with place.service.engine.connect() as connection:
        days = add_up(Scope(connection, place.workspace, 0.0, 0.0), first, 3, 1)
    return tuple(item["operator_cost"] for [item] in days.values())


def in_days(place: Place) -> list[dict[str, Any]]:
    """Return what each user's clusters came to in each of the last 14 days."""
    with place.service.engine.connect() as connection:
        scope = Scope(connection, place.workspace, time.time(), 60.0)
        return [as_item(one) for one in list_usage(scope, int(NOW // DAY) - 13, 14, 1)]


def sums_of(place: Place) -> list[Any]:
    with place.service.engine.connect() as connection:
        return list(connection.execute(select_in(place.workspace, schema.usage_sum)))


def by_week(place: Place) -> dict[tuple[str, int], dict[str, Any]]:
    """Return what each user's clusters came to, by how many weeks ago it was."""
    monday = datetime.fromtimestamp(MONDAY, UTC)
    return {
        (one["user"], (monday - datetime.fromisoformat(one["week_started_at"])).days // 7): one
        for one in place.usage(4)
    }


def in_order(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(items, key=lambda one: json.dumps(one, sort_keys=True))


@pytest.fixture
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is over is summed up in the first hour of a Monday, too."""
    monkeypatch.setattr(usage_totals, "_REST", 0.0)


@pytest.mark.usefixtures("no_rest")
def test_of_a_clock_that_was_never_set_sums_are_forgotten_once() -> None:
    due, now = UsageDue(), time.time()
    unset = make_beat(make_cluster(started_at=EARLIEST), status=make_status(at=EARLIEST))
    made = []
    for seq in range(10):  # each row of a day long past makes all later sums anew
        row = due.row(unset, seq, "w", now + seq)
        if row is not None:
            due.written(row)
            made.append(row)
    assert len(made) == 1


def test_sums_of_what_is_over_say_what_adding_up_says(place: Place) -> None:
    fill_weeks(place)
    weeks, days = in_order(place.usage(4)), in_order(in_days(place))
    assert len(weeks) >= 6
    assert len(days) >= 4
    sum_up(place.service.engine)
    assert in_order(place.usage(4)) == weeks
    assert in_order(in_days(place)) == days
    # And they are what is read: what they were made of is not looked at any more.
    last_week = (schema.usage.c.day < MONDAY // DAY, schema.usage.c.workspace == place.workspace)
    with writing(place.service.engine) as connection:
        assert connection.execute(delete(schema.usage).where(*last_week)).rowcount
    this_week = max(one["week_started_at"] for one in weeks)
    assert [one for one in in_order(place.usage(4)) if one["week_started_at"] < this_week] == [
        one for one in weeks if one["week_started_at"] < this_week
    ]


@pytest.mark.usefixtures("no_rest")
def test_a_week_of_which_nothing_is_said_is_summed_up_once(place: Place) -> None:
    fill_weeks(place)
    sum_up(place.service.engine)
    kept = sums_of(place)
    assert {(row.days, row.first_day) for row in kept} >= {
        (7, MONDAY // DAY - 7 * week) for week in range(1, 104)
    }
    with writing(place.service.engine) as connection:
        long_ago = MONDAY // DAY - 7 * 200
        announced = usage_sums.announce(connection, place.workspace, 7, [long_ago])
        usage_sums.keep(connection, place.workspace, 7, announced, {long_ago: []})
    sum_up(place.service.engine)
    assert sums_of(place) == kept


@pytest.mark.usefixtures("no_rest")
def test_what_comes_while_sums_are_made_is_in_them(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_weeks(place)
    last = int(MONDAY // DAY) - 7
    heard: list[int] = []

    def add_up_and_hear_more(scope: Scope, first: int, periods: int, days: int) -> Any:
        sums = add_up(scope, first, periods, days)
        of_this = scope.workspace == place.workspace  # others' are added up, too
        if of_this and days == 7 and last in sums and not heard:
            place.beat("Scheduler-late", 1, MONDAY - 2 * DAY, 8.0)
            heard.append(last)  # for others can write meanwhile
        return sums

    def kept() -> list[Any]:
        rows = [one.sums for one in sums_of(place) if (one.days, one.first_day) == (7, last)]
        return [in_order(sums) for sums in rows]

    monkeypatch.setattr(usage_totals, "add_up", add_up_and_hear_more)
    sum_up(place.service.engine)
    assert heard
    with place.service.engine.connect() as connection:
        made = add_up(Scope(connection, place.workspace, 0.0, 0.0), last, 1, 7)[last]
    # Those without it were not stored; the service may have made them since, by itself.
    assert kept() in ([], [in_order(made)])
    weeks = in_order(place.usage(4))
    sum_up(place.service.engine)
    assert kept() == [in_order(made)]
    assert in_order(place.usage(4)) == weeks


def test_of_very_many_users_those_with_the_most_are_told_apart(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(6):
        prices = (PRICES, None, Prices("EUR", {"cluster": 1.0}))[n % 3]
        place.beat(f"Scheduler-{n}", 1, MONDAY + 1, 8.0 - n, user=f"u{n}", prices=prices)
    first = int(MONDAY // DAY)
    with place.service.engine.connect() as connection:
        scope = Scope(connection, place.workspace, 0.0, 0.0)
        whole = add_up(scope, first, 1, 7)[first]
        monkeypatch.setattr(usage, "MOST_USERS", 2)
        some = add_up(scope, first, 1, 7)[first]
    assert [one["user"] for one in some] == ["u0", "u1", *3 * [usage.OTHERS]]
    assert {(one["prices"] or {}).get("currency") for one in some[2:]} == {"USD", None, "EUR"}
    for name in ("clusters", "up_seconds", "thread_seconds", "idle_seconds"):
        assert sum(one[name] for one in some) == pytest.approx(sum(one[name] for one in whole))
    for items in (some, whole):
        assert [
            sum(one["cost"] for one in items if (one["prices"] or {}).get("currency") == currency)
            for currency in ("USD", "EUR")
        ] == [8.0 + 5.0, 6.0 + 3.0]


def test_what_comes_late_is_in_the_sums(place: Place) -> None:
    fill_weeks(place)
    sum_up(place.service.engine)
    before = by_week(place)
    started, late = MONDAY - 20 * DAY, MONDAY - 2 * DAY + 5 * 3600
    # From last week's Saturday, out of a spool: five hours are of that week, and not of this one.
    place.beat("Scheduler-late", 1, late, 8.0)
    place.beat("Scheduler-long", 4, late, 18 * 24 + 5, started_at=started)
    for _ in range(2):  # added up by the reader, and then kept
        after = by_week(place)
        assert after["ada", 2] == before["ada", 2]
        assert after["ada", 1]["cost"] == before["ada", 1]["cost"] + 8 + 5
        assert after["ada", 0]["cost"] == before["ada", 0]["cost"] - 5
        sum_up(place.service.engine)


def test_what_is_deleted_is_in_no_sum(place: Place) -> None:
    fill_weeks(place)
    sum_up(place.service.engine)
    assert '"li"' in json.dumps([row.sums for row in sums_of(place)])
    for _ in delete_rows(place.service.engine, Whose(place.workspace, user="li"), Throttle(1.0)):
        pass
    assert {one["user"] for one in place.usage(4)} == {"ada"}
    sum_up(place.service.engine)
    assert '"li"' not in json.dumps([row.sums for row in sums_of(place)])
    assert {one["user"] for one in place.usage(4)} == {"ada"}


def test_sums_wait_for_a_beat_that_is_being_written(place: Place) -> None:
    fill_weeks(place)
    engine, day = place.service.engine, MONDAY // DAY - 3
    late = (place.workspace, day, "Scheduler-late", 1, "li", day * DAY, 60.0, 1.0, 1.0, None, None)
    with ThreadPoolExecutor(2) as pool:
        with writing(engine) as connection:
            UsageUpsert(engine).run(connection, [(*late, *[None] * 6)])
            rounds = [pool.submit(sum_up, engine) for _ in range(2)]
            wait(rounds, timeout=0.5)
        assert sum(one.result(timeout=60) > 0 for one in rounds) >= 1
    assert by_week(place)["li", 1]["thread_seconds"] == 3 * 7200 + 1


def test_weeks_that_make_no_sense_are_refused(place: Place) -> None:
    for weeks in ("0", "105", "-1", "x", "1e3"):
        answer = place.browser.get(
            f"{place.service.url}/api/v1/usage", params={"weeks": weeks}, timeout=30
        )
        assert answer.status_code == 400
        assert "1 to 104" in answer.json()["detail"]


def test_clusters_are_filtered_by_what_they_are(place: Place) -> None:
    place.beat("Scheduler-up", 1, NOW, 1.0, name="up", tags={"team": "ml", "it's": "a=b"})
    place.beat("Scheduler-off", 1, NOW, 9.0, name="off", stopped_at=NOW, user="li")
    place.beat("Scheduler-gone", 1, NOW - 300, 40.0, name="gone", kind="SLURMCluster", tags={})
    with writing(place.service.engine) as connection:
        connection.execute(
            update(schema.cluster)
            .where(
                schema.cluster.c.workspace == place.workspace,
                schema.cluster.c.id == "Scheduler-gone",
            )
            .values(last_seen_at=NOW - 86_400)
        )
    assert place.names() == ["up", "off", "gone"]
    assert place.names(status="running") == ["up"]
    assert place.names(status="stopped") == ["off"]
    assert place.names(status="lost") == ["gone"]
    assert place.names(user="li") == ["off"]
    assert place.names(kind="SLURMCluster") == ["gone"]
    assert place.names(tag="team") == ["up", "off"]
    assert place.names(tag="team=ml") == ["up"]
    assert place.names(tag="it's=a=b") == ["up"]
    assert place.names(name="F") == ["off"]
    assert place.names(name="scheduler-g") == ["gone"]
    assert place.names(name="%") == []
    assert place.names(within="day") == ["up", "off"]
    assert place.names(sort="cost") == ["gone", "off", "up"]
    assert place.names(sort="up", status="stopped") == ["off"]


def test_a_sorted_list_goes_on_where_it_ended(place: Place) -> None:
    for number in range(5):
        price = None if number == 3 else PRICES
        place.beat(f"Scheduler-{number}", 1, NOW, float(number % 2), prices=price)
    found: list[str] = []
    address = f"{place.service.url}/clusters?sort=cost&limit=2"
    while address:
        page = place.browser.get(address, timeout=30)
        assert page.ok
        text = page.text
        found += [part.split('"')[0] for part in text.split('<tr id="cluster-')[1:]]
        more = re.search(r'href="([^"]+)" rel="next"', text)
        address = place.service.url + more[1].replace("&amp;", "&") if more else ""
    assert found == [f"Scheduler-{number}" for number in (1, 3, 4, 2, 0)]


@pytest.mark.parametrize(
    "query", ['tag=a"b', "tag=a\\b", "tag==x", "status=up", "sort=name", "within=year", "sorts=up"]
)
def test_a_filter_that_makes_no_sense_is_refused(place: Place, query: str) -> None:
    answer = place.browser.get(f"{place.service.url}/clusters?{query}", timeout=30)
    assert answer.status_code == 400


def test_empty_fields_of_the_form_do_not_stay_in_the_address(place: Place) -> None:
    place.beat("Scheduler-1", 1, NOW, 1.0)
    answer = place.browser.get(
        f"{place.service.url}/clusters?status=&user=ada&kind=&tag=&within=", timeout=30
    )
    assert answer.url == f"{place.service.url}/clusters?user=ada"


def test_a_name_that_a_spreadsheet_would_run_is_text(place: Place) -> None:
    place.beat("Scheduler-1", 1, NOW, 1.0, name="=1+1")
    assert place.names() == ["'=1+1"]
