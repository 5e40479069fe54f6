"""When a month's budget will be passed, and where nothing can be said of that."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests

from daskscope.protocol import Prices
from daskscope_service.accounts import audit
from daskscope_service.accounts.change import Change
from daskscope_service.costs.budgets import MOST_BUDGETS, Budget, set_budget
from daskscope_service.costs.forecasts import Forecast, Spent, in_words, spent
from daskscope_service.db.engine import writing
from tests.service.beats import make_beat, make_cluster, make_status, post
from tests.service.pages import words
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess

#: The middle of a month of thirty days.
NOW = datetime(2025, 6, 16, tzinfo=UTC)
EUROS = Prices("EUR", {"thread": 1.0})

Spend = Callable[..., None]


@pytest.fixture
def workspace() -> str:
    return f"forecasts-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def spend(shared_service: ServiceProcess, workspace: str) -> Spend:
    """Return what reports a cluster that cost so much, started so many days before a moment."""
    token = shared_service.token(["ingest"], workspace)

    def report(
        cost: float, days: float, now: datetime = NOW, prices: Any = EUROS, **fields: Any
    ) -> None:
        began = (now - timedelta(days=days)).timestamp()
        id = f"Scheduler-{uuid.uuid4().hex[:8]}"
        beat = make_beat(
            make_cluster(id, started_at=began, prices=prices, **fields),
            status=make_status(at=began + 60, stopped_at=began + 60, cost=cost),
        )
        assert post(shared_service.url, token, beat).ok

    return report


@pytest.fixture
def stands(shared_service: ServiceProcess, workspace: str) -> Callable[..., Spent]:
    def ask(amount: float, **of: str) -> Spent:
        with shared_service.engine.connect() as connection:
            return spent(connection, workspace, Budget(amount, "EUR", **of), NOW.timestamp())

    return ask


def test_a_month_goes_on_as_the_last_seven_days_did(
    spend: Spend, stands: Callable[..., Spent]
) -> None:
    spend(5, 20)  # of the month before: it tells only that there is a week to look back on
    spend(30, 10)
    for day in range(1, 8):
        spend(10, day - 0.5)
    spend(99, 3, prices=Prices("USD", {"thread": 1.0}))
    found = stands(150)
    assert (found.amount, found.sources) == (100, ("cluster",))
    # 100 are spent, and 10 a day; fifteen days are left.
    later = (NOW + timedelta(days=5)).timestamp()
    assert found.forecast == Forecast(per_day=10, days=7, at_end=250, passes_at=later)
    assert in_words(Budget(150, "EUR"), found) == (
        "Clusters that started in June have cost 100.00 EUR of the budget of 150.00 EUR, an "
        "estimate. At 10.00 EUR a day, as in the last 7 days, the budget will be passed on "
        "2025-06-21, and it will be 250.00 EUR at the month's end."
    )
    within, passed = stands(251), stands(99)
    for one in (within, passed):
        assert one.forecast is not None
        assert one.forecast.passes_at is None
    assert in_words(Budget(251, "EUR"), within).endswith("at the month's end, within the budget.")
    assert in_words(Budget(99, "EUR"), passed).endswith("250.00 EUR at the month's end.")


@pytest.mark.parametrize(
    "clusters",
    [[], [(10, 0.5), (10, 1.5), (10, 2.5)], [(10, 20), (10, 1)]],
    ids=["nothing", "two days", "one cluster"],
)
def test_too_few_days_or_clusters_have_no_forecast(
    spend: Spend, stands: Callable[..., Spent], clusters: list[tuple[float, float]]
) -> None:
    for cost, days in clusters:
        spend(cost, days)
    found = stands(1)
    assert found.forecast is None
    assert "too few clusters or days for a forecast" in in_words(Budget(1, "EUR"), found)


def test_pages_and_the_api_say_how_the_budget_stands(
    shared_service: ServiceProcess, workspace: str, spend: Spend
) -> None:
    now = datetime.fromtimestamp(time.time(), UTC)
    spend(2, 20, now)
    for day in range(7):
        spend(10, day, now)
    with writing(shared_service.engine) as connection:
        set_budget(Change(connection, workspace, audit.OPERATOR), Budget(5000, "EUR"))
    token = shared_service.token(["read"], workspace)
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{shared_service.url}/api/v1/budget"
    found = requests.get(url, headers=headers, timeout=30).json()
    assert found["forecast"]["per_day"] == pytest.approx(10, rel=0.01)
    assert found["spent"] <= 72
    session = requests.Session()
    session.post(f"{shared_service.url}/sign-in", data={"token": token}, timeout=30)
    for page in ("/people", "/settings/notifications"):
        answer = session.get(f"{shared_service.url}{page}", timeout=30)
        assert found["sentence"].replace("'", "&#39;") in words(answer.text), page


def test_a_budget_of_a_user_or_a_tag_counts_their_clusters_alone(
    spend: Spend, stands: Callable[..., Spent]
) -> None:
    imaging = {"team": "imaging", "a.b": 'with "quotes"'}
    for day in range(1, 8):
        spend(1, day, user="anna", tags=imaging)
        spend(10, day, user="anna")
        spend(100, day, user="li", tags=imaging)
    spend(1000, 1, user="annabel", tags={"team": "imaging2"})
    assert stands(5).amount == 1777
    anna, team = stands(5, user="anna"), stands(5, tag="team=imaging")
    assert (anna.amount, team.amount) == (77, 707)
    assert stands(5, tag='a.b=with "quotes"').amount == 707
    assert anna.forecast is not None
    assert anna.forecast.per_day == pytest.approx(11)
    # Too few clusters of one's own, although the workspace has enough.
    assert stands(5, user="annabel").forecast is None
    assert stands(5, user="nobody").amount == 0
    said = in_words(Budget(100, "EUR", tag="team=imaging"), team)
    assert said.startswith("Clusters with team=imaging that started in June have cost 707.00 EUR")


def test_owners_set_and_remove_budgets_of_users_and_tags(
    shared_service: ServiceProcess, workspace: str, spend: Spend
) -> None:
    spend(2, 0, datetime.fromtimestamp(time.time(), UTC), user="<b>anna</b>")
    owner = browser_of(shared_service, make_user(shared_service, {workspace: "owner"}).name)
    settings, api = "/settings/notifications", f"{shared_service.url}/api/v1"

    def send(**form: str) -> requests.Response:
        return owner.post(f"{shared_service.url}{settings}/budget", data=form, timeout=30)

    def listed() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = owner.get(f"{api}/budgets", timeout=30).json()["items"]
        return found

    assert listed() == []
    assert send(amount="500", currency="eur").ok
    assert send(amount="1", currency="EUR", user="<b>anna</b>").ok
    assert send(amount="30", currency="EUR", tag="team=imaging").ok
    assert send(amount="40", currency="EUR", tag="team=imaging").ok
    found = [(one["user"], one["tag"], one["amount"], one["spent"]) for one in listed()]
    assert found == [
        (None, None, 500, 2), ("<b>anna</b>", None, 1, 2), (None, "team=imaging", 40, 0)
    ]  # fmt: skip
    for page in ("/people", settings):
        text = owner.get(f"{shared_service.url}{page}", timeout=30).text
        assert "<b>anna" not in text
        assert "Clusters of &lt;b&gt;anna&lt;/b&gt; that started" in text, page
    for form, why in (
        ({"amount": "5", "tag": "imaging"}, "as name=value"),
        ({"amount": "5", "tag": "team="}, "as name=value"),
        ({"amount": "5", "tag": "team=a", "user": "anna"}, "not for both"),
        ({"amount": "5", "user": "a" * 301}, "at most 300 characters"),
        ({"amount": "nan"}, "an amount above 0"),
        ({"amount": "much"}, "is not an amount of money"),
    ):
        refused = send(currency="EUR", **form)
        assert refused.status_code == 400, form
        assert why in refused.text, form
    for of in (
        {"user": "a\0b"},
        {"tag": "a\0b=c"},
        {"tag": "a=\0"},
        {"tag": 'a"b=c'},
        {"tag": "a\\=c"},
    ):
        refused = owner.put(f"{api}/budget", json={"amount": 5} | of, timeout=30)
        assert refused.status_code == 400, of
        assert owner.get(f"{shared_service.url}/people", timeout=30).ok
    # What no budget is for is found all the same, and whatever a value has.
    assert send(amount="5", currency="EUR", tag="$[0].x=it's \"\\").ok
    assert send(tag="$[0].x=it's \"\\").ok
    assert send(user="<b>anna</b>").ok
    assert send(user="nobody").ok
    assert [one["user"] for one in listed()] == [None, None]
    of_tag = {"amount": None, "tag": "team=imaging"}
    gone = owner.put(f"{api}/budget", json=of_tag, timeout=30).json()
    assert (gone["tag"], gone["amount"]) == ("team=imaging", None)
    assert [one["amount"] for one in listed()] == [500]


def test_a_workspace_has_a_bounded_number_of_budgets(
    shared_service: ServiceProcess, workspace: str
) -> None:
    owner = browser_of(shared_service, make_user(shared_service, {workspace: "owner"}).name)
    with writing(shared_service.engine) as connection:
        for number in range(MOST_BUDGETS):
            budget = Budget(5, "EUR", user=f"user-{number}")
            set_budget(Change(connection, workspace, audit.OPERATOR), budget)
    url = f"{shared_service.url}/api/v1/budget"
    more = owner.put(url, json={"amount": 5, "user": "another"}, timeout=30)
    assert more.status_code == 409
    assert f"at most {MOST_BUDGETS} budgets" in more.text
    # One that is there can still be changed.
    assert owner.put(url, json={"amount": 6, "user": "user-1"}, timeout=30).json()["amount"] == 6
