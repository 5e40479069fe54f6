"""Prices of clusters that bring none, the workspace's or list prices: every page says whose."""

from __future__ import annotations

import csv
import time
from typing import Any

import pytest
import requests
from sqlalchemy import select

from daskscope.protocol import NO_CURRENCY, Prices
from daskscope_service.accounts import audit
from daskscope_service.costs.prices import LIST_PER_HOUR
from daskscope_service.db.schema import finding
from daskscope_service.findings.evaluator import Evaluator
from daskscope_service.notifications.wording import KINDS
from daskscope_service.telemetry.embedded import EmbeddedSeries
from tests.patience import wait_until
from tests.service.pages import words
from tests.service.people import browser_of, make_user
from tests.service.test_usage import MONDAY, Place
from tests.service_process import ServiceProcess

pytestmark = pytest.mark.sqlite


class Priced(Place):
    """A workspace with an owner; `browser` is a viewer's."""

    def __init__(self, service: ServiceProcess) -> None:
        super().__init__(service)
        self.owner_name = make_user(service, {self.workspace: "owner"}).name
        self.owner = browser_of(service, self.owner_name)
        self.api = f"{service.url}/api/v1"
        self.page = f"{service.url}/settings/prices"

    def set(self, currency: str = "USD", **per_hour: float) -> None:
        body = {"currency": currency, "per_hour": per_hour}
        answer = self.owner.put(f"{self.api}/prices", json=body, timeout=30)
        assert answer.ok, answer.text

    def get(self, path: str) -> Any:
        answer = self.browser.get(f"{self.api}/{path}", timeout=30)
        assert answer.ok, answer.text
        return answer.json()

    def post(self, **form: str) -> requests.Response:
        return self.owner.post(self.page, data=form, timeout=30)

    def see(self, path: str) -> str:
        answer = self.browser.get(self.service.url + path, timeout=30)
        assert answer.ok, answer.text
        return answer.text


@pytest.fixture
def place(shared_service: ServiceProcess) -> Priced:
    return Priced(shared_service)


def test_they_count_for_clusters_that_bring_none_and_for_no_others(place: Priced) -> None:
    # Of two threads: three quarters at work.
    place.beat("Scheduler-own", 1, MONDAY + 1, 3.0)
    place.beat("Scheduler-none", 1, MONDAY + 1, 10.0, user="li", prices=None)
    place.set("EUR", thread=0.25, cluster=1.0)
    found = {
        one["id"]: (one["cost"], one["idle_cost"], one["prices"]["currency"], one["price_source"])
        for one in place.get("clusters")["items"]
    }
    assert found == {
        "Scheduler-own": (3.0, 0.75, "USD", "cluster"),
        "Scheduler-none": (10 * (2 * 0.25 + 1.0), 5 * 0.25, "EUR", "workspace"),
    }
    assert place.get("clusters/Scheduler-none")["cost"] == 15.0
    used = {one["user"]: (one["cost"], one["price_source"]) for one in place.usage(1)}
    assert used == {"ada": (3.0, "cluster"), "li": (15.0, "workspace")}
    for path in ("/clusters.csv", "/people.csv"):
        rows = list(csv.DictReader(place.see(path).splitlines()))
        assert {row["user"]: row["price_source"] for row in rows} == {
            "ada": "cluster",
            "li": "workspace",
        }
    # Others' workspaces have none of it.
    other = Priced(place.service)
    other.beat("Scheduler-none", 1, MONDAY + 1, 10.0, prices=None)
    assert other.get("clusters")["items"][0]["price_source"] == "list"


def test_where_nobody_has_set_any_costs_are_estimated_at_list_prices(place: Priced) -> None:
    held = {"gib_seconds": 8 * 36_000.0, "gpu_seconds": 18_000.0}
    place.beat("Scheduler-new", 1, MONDAY + 1, 10.0, prices=None, **held)
    place.beat("Scheduler-old", 1, MONDAY + 1, 10.0, user="li", prices=None)
    thread, gib, gpu = (LIST_PER_HOUR[what] for what in ("thread", "gib", "gpu"))
    new, old = 20 * thread + 80 * gib + 5 * gpu, 20 * thread
    found = {one["id"]: one for one in place.get("clusters")["items"]}
    for id, cost in (("Scheduler-new", new), ("Scheduler-old", old)):
        one = found[id]
        assert one["cost"] == pytest.approx(cost)
        assert one["idle_cost"] == pytest.approx(0.25 * cost)
        assert one["prices"] == {"currency": "USD", "per_hour": LIST_PER_HOUR}
        assert one["price_source"] == "list"
    # The same of weeks, which are added up by other ways.
    used = {one["user"]: (one["cost"], one["price_source"]) for one in place.usage(1)}
    assert used == {"ada": (pytest.approx(new), "list"), "li": (pytest.approx(old), "list")}
    for path in ("/clusters/Scheduler-new", "/clusters", "/people", "/settings/prices"):
        assert "estimate at list prices" in words(place.see(path)), path
    assert "of its threads alone" in words(place.see("/clusters/Scheduler-old"))
    assert place.get("prices") == {
        "source": "list",
        "currency": "USD",
        "per_hour": LIST_PER_HOUR,
        "changed_at": None,
        "changed_by": None,
    }
    # Its own prices are of what has one alone.
    place.set("EUR", gib=0.5)
    assert place.get("clusters/Scheduler-new")["cost"] == 40.0
    assert place.get("clusters/Scheduler-old")["cost"] == 0.0


def test_who_wants_no_costs_sees_none(place: Priced) -> None:
    place.beat("Scheduler-none", 1, MONDAY + 1, 10.0, user="li", prices=Prices(NO_CURRENCY, {}))
    place.beat("Scheduler-1", 1, MONDAY + 1, 10.0, prices=None)

    def costs() -> dict[str, Any]:
        weeks = {one["user"]: one["cost"] for one in place.usage(1)}
        clusters = {one["id"]: one["cost"] for one in place.get("clusters")["items"]}
        return weeks | clusters

    assert costs() == {
        "li": None,
        "Scheduler-none": None,
        "ada": pytest.approx(0.63222),
        "Scheduler-1": pytest.approx(0.63222),
    }
    assert "estimate" not in words(place.see("/clusters/Scheduler-none"))
    assert place.get("clusters/Scheduler-none")["price_source"] is None
    assert place.post(source="none").history
    assert set(costs().values()) == {None}
    assert "estimate" not in words(place.see("/clusters/Scheduler-1"))
    assert "No cost is shown" in words(place.see("/people"))
    assert place.get("prices")["source"] == "none"
    # And back again.
    assert place.post(source="list").history
    assert costs()["ada"] == pytest.approx(0.63222)


def test_stored_findings_are_made_anew_when_prices_change(place: Priced) -> None:
    now = time.time()
    place.beat("Scheduler-f", 1, now, 2.0, prices=None, idle_seconds=7200.0, stopped_at=now)
    engine = place.service.engine

    def costs() -> list[tuple[Any, ...]]:
        Evaluator(engine, EmbeddedSeries(engine), 60.0).round()
        with engine.connect() as connection:
            query = select(finding.c.cost, finding.c.currency, finding.c.price_source)
            rows = connection.execute(query.where(finding.c.workspace == place.workspace))
            return [tuple(row) for row in rows]

    at_list_prices = pytest.approx(LIST_PER_HOUR["thread"])
    assert wait_until(lambda: costs() == [(at_list_prices, "USD", "list")])
    place.set("EUR", thread=3.0)
    assert wait_until(lambda: costs() == [(3.0, "EUR", "workspace")])
    [listed] = place.get("findings")["items"]
    assert (listed["currency"], listed["price_source"]) == ("EUR", "workspace")
    place.set()
    assert wait_until(lambda: costs() == [(None, None, None)])


def test_clusters_are_sorted_by_what_they_cost_by_either_prices(place: Priced) -> None:
    for name, hours, prices in (
        ("two", 2.0, Prices("USD", {"thread": 0.5})),
        ("three", 3.0, None),
        ("one", 1.0, None),
        ("four", 4.0, Prices("USD", {"thread": 0.5})),
    ):
        place.beat(f"Scheduler-{name}", 1, MONDAY + 1, hours, name=name, prices=prices)
    assert place.names(sort="cost")[:2] == ["four", "two"]
    place.set(thread=0.5)
    assert place.names(sort="cost") == ["four", "three", "two", "one"]
    first = place.browser.get(f"{place.service.url}/clusters?sort=cost&limit=2", timeout=30).text
    assert first.index(">four<") < first.index(">three<")
    assert ">two<" not in first


def test_every_page_says_whose_prices_they_are_and_that_it_is_an_estimate(place: Priced) -> None:
    def see(path: str) -> str:
        return words(place.see(path))

    place.beat("Scheduler-1", 1, MONDAY + 1, 10.0, prices=None)
    place.set()
    assert "have no cost" in see("/settings/prices")
    place.set(thread=0.5)
    assert "estimate, by the workspace" in see("/clusters/Scheduler-1")
    assert '<dd class="faint">since <code>register()</code></dd>' in see("/clusters/Scheduler-1")
    people = see("/people")
    assert "10.00 USD" in people
    assert "thread 0.5 USD an hour" in people
    assert "s, for ada" in people
    page = see("/settings/prices")
    assert "cost <b>10.00 USD</b> in the last 8 weeks, an estimate: 20 h of threads" in page
    assert "No cluster had its own" in page
    place.beat("Scheduler-2", 1, MONDAY + 1, 1.0, user="li")
    assert "estimate, by its own prices" in see("/clusters/Scheduler-2")
    assert "No cluster had its own" not in see("/settings/prices")


def test_a_budget_counts_what_is_estimated_by_them(place: Priced) -> None:
    place.beat("Scheduler-1", 1, time.time(), 0.02, prices=None)
    place.beat("Scheduler-2", 1, time.time(), 0.02)
    place.set(thread=1000.0)
    sends = {"name": "hook", "address": "json://127.0.0.1:9", "kinds": [*KINDS]}
    assert place.owner.post(f"{place.api}/targets", json=sends, timeout=30).ok
    budget = {"amount": 30, "currency": "USD"}
    assert place.owner.put(f"{place.api}/budget", json=budget, timeout=30).ok

    def told() -> list[str]:
        items = place.get("targets")["items"]
        return [one["failure"] for one in items if one["failure"]]

    assert wait_until(told)  # there was something to tell, though no one takes it


def test_what_cannot_be_is_said_beside_its_field(place: Priced) -> None:
    for form, field, why in (
        ({"thread": "0,06", "currency": "USD"}, "thread", "is not a number"),
        ({"thread": "-1", "currency": "USD"}, "thread", "from 0 to 1,000,000"),
        ({"cluster": "nan", "currency": "USD"}, "cluster", "from 0 to 1,000,000"),
        ({"thread": "1", "currency": "euro"}, "currency", "three-letter code"),
    ):
        answer = place.post(**form)
        assert answer.status_code == 400
        wrong = answer.text.partition(f'id="{field}-wrong">')[2].partition("</p>")[0]
        assert why in wrong, form
        assert f'aria-describedby="{field}-wrong"' in answer.text
    answer = place.post(thread=" ", currency="EUR")
    assert answer.status_code == 400
    assert "choose list prices or no costs" in answer.text
    assert place.get("prices")["source"] == "list"
    for body in ({"per_hour": {"worker": 1}}, {"per_hour": {"thread": -1}}, {}):
        answer = place.owner.put(f"{place.api}/prices", json=body, timeout=30)
        assert answer.status_code == 400, body


def test_owners_set_and_remove_them_and_the_audit_log_tells(place: Priced) -> None:
    assert place.post(thread="0.06", cluster=" ", currency="eur").history
    found = place.get("prices")
    assert (found["currency"], found["per_hour"]) == ("EUR", {"thread": 0.06})
    assert found["changed_by"] == place.owner_name
    assert 'value="0.06"' in place.owner.get(place.page, timeout=30).text
    place.set()
    found = place.get("prices")
    assert (found["source"], found["currency"], found["per_hour"]) == ("none", None, {})
    assert place.owner.delete(f"{place.api}/prices", timeout=30).ok
    assert place.get("prices")["source"] == "list"
    assert 'action="/settings/prices"' not in place.see("/settings/prices")
    told = [
        (one.actor, one.detail)
        for one in audit.newest(place.service.engine, 500)
        if one.workspace == place.workspace and one.action == "prices changed"
    ]
    assert told == [
        (place.owner_name, detail) for detail in ("list prices", "none", "EUR an hour: thread 0.06")
    ]
