"""A workspace's prices: they count for clusters that bring none, and every page says whose."""

from __future__ import annotations

import csv
import time
from typing import Any

import pytest
import requests

from daskscope.protocol import Prices
from daskscope_service.accounts import audit
from daskscope_service.notifications.wording import KINDS
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
    assert other.get("clusters")["items"][0]["cost"] is None


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
    assert "have no cost" in see("/settings/prices")
    assert "estimate" not in see("/clusters/Scheduler-1")
    place.set(thread=0.5)
    assert "estimate, by the workspace" in see("/clusters/Scheduler-1")
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
    assert place.get("prices")["currency"] is None
    for body in ({"per_hour": {"gpu": 1}}, {"per_hour": {"thread": -1}}, {}):
        answer = place.owner.put(f"{place.api}/prices", json=body, timeout=30)
        assert answer.status_code == 400, body


def test_owners_set_and_remove_them_and_the_audit_log_tells(place: Priced) -> None:
    assert place.post(thread="0.06", cluster=" ", currency="eur").history
    found = place.get("prices")
    assert (found["currency"], found["per_hour"]) == ("EUR", {"thread": 0.06})
    assert found["changed_by"] == place.owner_name
    assert 'value="0.06"' in place.owner.get(place.page, timeout=30).text
    assert place.post(thread="", currency="EUR").history
    assert place.get("prices") == dict.fromkeys(("currency", "changed_at", "changed_by")) | {
        "per_hour": {}
    }
    assert 'action="/settings/prices"' not in place.see("/settings/prices")
    told = [
        (one.actor, one.detail)
        for one in audit.newest(place.service.engine, 500)
        if one.workspace == place.workspace and one.action == "prices changed"
    ]
    assert told == [(place.owner_name, "none"), (place.owner_name, "EUR an hour: thread 0.06")]
