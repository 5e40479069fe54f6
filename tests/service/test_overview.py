"""What the overview says: news and accidents, spending, and clusters to look at."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from daskscope_service.costs.day_bars import columns
from daskscope_service.costs.spending import (
    by_period,
    by_user,
    first_monday,
    price_lists,
    total,
)
from daskscope_service.insight.attention import concerns, reasons
from daskscope_service.insight.news import news
from daskscope_service.insight.views import ExceptionGroup
from daskscope_service.insight.wording import against, hours, in_currencies, percent
from daskscope_service.queries.overview import MOST_NOTICES
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_computation,
    make_failure,
    make_status,
    make_worker_loss,
    post,
)
from tests.service.pages import words
from tests.service.people import browser_of, make_user
from tests.service_process import ServiceProcess

CLUSTER: dict[str, Any] = {
    "id": "Scheduler-1",
    "status": "running",
    "last_seen_at": 9_990.0,
    "workers": 4,
    "threads": 8,
    "memory_used": 2**30,
    "memory_limit": 2**33,
    "idle_seconds": None,
    "held_by": {},
    "busy_by": None,
    "scheduler": {"cpu": 0.3, "memory": 2**28, "lag": 0.01},
    "idle_cost": None,
    "prices": None,
    "price_source": None,
    "mismatches": [],
    "losses": 0,
}
USED: dict[str, Any] = {
    "user": "ada",
    "period": 0,
    "clusters": 1,
    "up_seconds": 3600.0,
    "thread_seconds": 7200.0,
    "idle_seconds": 1800.0,
    "price_source": "cluster",
    "prices": {"currency": "USD", "per_hour": {"thread": 0.06}},
    "cost": 0.12,
    "idle_cost": 0.03,
}
FREE = {"prices": None, "cost": None, "idle_cost": None}


def words_of(**fields: Any) -> list[str]:
    return [reason.word for reason in reasons(CLUSTER | fields, 10_000.0)]


def test_a_cluster_at_work_needs_no_look() -> None:
    assert words_of() == []
    assert words_of(held_by={"queued": 10, "processing": 8}) == []
    assert words_of(held_by={"queued": 10, "workers starting": 2}, workers=0) == []
    assert words_of(status="stopped", idle_seconds=90_000.0) == []
    assert words_of(status="ended", last_seen_at=9_000.0) == []


def test_a_cluster_that_has_stopped_is_remembered_for_the_workers_that_it_lost() -> None:
    for status in ("stopped", "ended"):
        (found,) = reasons(CLUSTER | {"status": status, "losses": 2, "idle_seconds": 9e4}, 10_000.0)
        assert found.sentence == "It lost 2 workers in a day before it stopped."


@pytest.mark.parametrize(
    ("fields", "word", "sentence"),
    [
        (
            {"status": "lost", "last_seen_at": 10_000.0 - 3600},
            "silent",
            "It fell silent 1 h ago, without saying that it stopped. It had 4 workers.",
        ),
        (
            {"held_by": {"unrunnable": 3}, "workers": 0},
            "stuck",
            "3 tasks that no worker can run: there is no worker.",
        ),
        (
            {"held_by": {"queued": 10}, "workers": 0},
            "stuck",
            "10 tasks that no worker can run: there is no worker.",
        ),
        (
            {"memory_used": 2**33 * 0.95},
            "memory",
            "Its workers use 95\N{NO-BREAK SPACE}% of their memory: 7.6 GiB of 8 GiB.",
        ),
        ({"losses": 2}, "losses", "It lost 2 workers in a day."),
        (
            {"scheduler": {"lag": 2.5}},
            "slow",
            "Its scheduler's event loop was blocked for up to 2.5 s.",
        ),
        (
            {
                "idle_seconds": 7200.0,
                "held_by": {"clients": 1},
                "idle_cost": 1.5,
                "prices": {"currency": "EUR", "per_hour": {}},
            },
            "idle",
            "It has been idle for 2 h with 4 workers; its idle threads cost 1.50 EUR so far, an "
            "estimate; it is kept for 1 client connected.",
        ),
        (
            {"idle_seconds": 7200.0, "workers": 0},
            "idle",
            "It has been idle for 2 h; nothing keeps it.",
        ),
        (
            {"mismatches": [{"package": name} for name in ("dask", "lz4", "numpy", "toolz")]},
            "versions",
            "Scheduler, workers and clients have different versions of dask, lz4, numpy and "
            "1 more.",
        ),
    ],
)
def test_each_reason_is_told_in_words(fields: dict[str, Any], word: str, sentence: str) -> None:
    found = reasons(CLUSTER | fields, 10_000.0)
    assert [(reason.word, reason.sentence) for reason in found] == [(word, sentence)]


def test_what_was_not_measured_is_no_reason() -> None:
    assert words_of(scheduler=None, memory_limit=0, memory_used=2**40, held_by=None) == []
    assert words_of(status="lost", last_seen_at=10_000.0 - 2 * 86_400) == []


def test_the_gravest_comes_first() -> None:
    idle = CLUSTER | {"id": "idle", "idle_seconds": 7200.0, "threads": 400}
    large = CLUSTER | {"id": "large", "losses": 1, "threads": 64}
    small = CLUSTER | {"id": "small", "losses": 1, "idle_seconds": 4000.0}
    lost = CLUSTER | {"id": "lost", "status": "lost"}
    found = concerns([idle, CLUSTER, small, large, lost], 10_000.0)
    assert [one.cluster["id"] for one in found] == ["lost", "large", "small", "idle"]
    assert [reason.word for reason in found[2].reasons] == ["losses", "idle"]


def test_what_was_never_seen_before_comes_first() -> None:
    def group(fingerprint: str, first: float, last: float) -> ExceptionGroup:
        return ExceptionGroup(
            fingerprint, 1, 1, first, last, "ValueError", "f", "no", None, {}, ["ada"]
        )

    groups = [group("old", 150, 199), group("new", 120, 130), group("long", 50, 180)]
    found = news(groups, {"old"}, 100.0, {"worker lost": 2, "computation failed": 1})
    assert [(one.fingerprint, one.new) for one in found.groups] == [
        ("new", True),
        ("old", False),
        ("long", False),
    ]
    assert found.sentence == (
        "1 new kind of exception, 2 kinds of exception seen before, 1 computation failed, "
        "2 workers were lost."
    )
    assert news([], set(), 100.0, {"cluster silent": 0}).sentence == ""


def test_one_accident_is_one_line(shared_service: ServiceProcess) -> None:
    workspace = "accidents"
    token = shared_service.token(scopes=["ingest"], workspace=workspace)
    ended = {"status": "erred", "stopped_at": time.time() - 5}
    blames = {"blamed": 4, "blames": {"('sum', 0)": "ZeroDivisionError"}}
    one = make_beat(
        make_cluster(id="one-accident", name="one-accident"),
        computations=(
            make_computation(id="failed", erred=1, **ended),
            make_computation(id="waited", erred=0, **blames, **ended),
        ),
        failures=(make_failure(computation="failed"),),
        worker_losses=tuple(make_worker_loss(id=f"w{n}") for n in range(3)),
    )
    # Its tasks were given up for the worker with which they ended.
    given_up = make_beat(
        make_cluster(id="given-up", name="given-up"),
        computations=(make_computation(id="grows", erred=1, **ended),),
        failures=(make_failure(computation="grows", fingerprint="1:killed", type="KilledWorker"),),
        worker_losses=(
            make_worker_loss(id="w0", computations={"grows": 4}),
            make_worker_loss(id="w1", computations={"another": 4}),
        ),
    )
    # Its failure was refused, so that no group of exceptions shows it.
    other = make_beat(
        make_cluster(id="another", name="another"),
        computations=(make_computation(id="alone", erred=1, **ended),),
    )
    for beat in (one, other, given_up):
        assert post(shared_service.url, token, beat).ok
    reader = make_user(shared_service, {workspace: "viewer"})
    page = words(browser_of(shared_service, reader.name).get(shared_service.url, timeout=30).text)

    assert "2 new kinds of exception, 4 computations failed, 5 workers were lost." in page
    assert len(re.findall(r'<li id="failed-', page)) == 2
    lines = re.findall(r'<li id="wrong-([^"]+)".*?</li>', page)
    assert sorted(line.rpartition(":")[0] for line in lines) == [
        "computation failed:another",
        "worker lost:given-up",
        "worker lost:one-accident",
    ]
    assert 'id="wrong-worker lost:given-up:w0"' not in page
    assert "and 2 more workers of this cluster" in page
    assert "more.</p>" not in page


def test_what_a_stopped_cluster_left_and_how_long_computations_took_can_be_seen(
    shared_service: ServiceProcess,
) -> None:
    workspace = "left-to-look-at"
    token = shared_service.token(scopes=["ingest"], workspace=workspace)
    now = time.time()
    beat = make_beat(
        make_cluster(id="went", name="went"),
        phase="stop",
        status=make_status(stopped_at=now),
        computations=tuple(
            make_computation(
                id=id, status="finished", started_at=now - 30, stopped_at=now - 30 + took
            )
            for id, took in (("short", 0.003), ("long", 20.0), ("half", 10.0))
        ),
        worker_losses=(make_worker_loss(id="w0"),),
    )
    assert post(shared_service.url, token, beat).ok
    reader = make_user(shared_service, {workspace: "viewer"})
    page = words(browser_of(shared_service, reader.name).get(shared_service.url, timeout=30).text)

    (look,) = re.findall(r'<li id="look-went">.*?</li>', page)
    assert "It lost 1 worker in a day before it stopped." in look
    bars = {
        id: float(width)
        for id, width in re.findall(
            r'<li id="time-went-([a-z]+)">.*?viewBox="0 0 ([0-9.]+) 10"', page
        )
    }
    # A bar is as long as its computation took, and can be seen.
    assert bars == {"long": 100.0, "half": 200.0, "short": 20_000.0}
    assert "a bar is as long as its computation took: the longest 20.0 s" in page


def test_what_was_not_looked_at_is_said(shared_service: ServiceProcess) -> None:
    workspace = "very-many-losses"
    token = shared_service.token(scopes=["ingest"], workspace=workspace)
    losses = tuple(make_worker_loss(id=f"w{n}") for n in range(MOST_NOTICES + 1))
    beat = make_beat(make_cluster(id="many", name="many"), worker_losses=losses)
    assert post(shared_service.url, token, beat).ok
    reader = make_user(shared_service, {workspace: "viewer"})
    page = words(browser_of(shared_service, reader.name).get(shared_service.url, timeout=30).text)

    assert "201 workers were lost." in page
    assert "and 199 more workers of this cluster" in page
    assert "And more; not all of them were looked at here." in page


def test_money_is_kept_apart_by_currency_and_what_has_no_price_is_not_free() -> None:
    euros = {"prices": {"currency": "EUR", "per_hour": {"cluster": 1.0}}, "cost": 3.0}
    items = [USED, USED | euros | {"user": "li", "period": 1}, USED | FREE | {"clusters": 2}]
    whole = total(by_period(items, 2))
    assert (whole.cost, whole.idle_cost) == ({"USD": 0.12, "EUR": 3.0}, {"USD": 0.03, "EUR": 0.03})
    assert (whole.clusters, whole.unpriced, whole.thread_seconds) == (4, 2, 21_600.0)
    assert whole.idle_share == 0.25
    assert total([]).idle_share is None
    users = by_user(items, 2)
    assert [week.cost for week in users["li"]] == [{}, {"EUR": 3.0}]
    assert [week.clusters for week in users["ada"]] == [3, 0]
    assert in_currencies(whole.cost) == "3.00 EUR and 0.12 USD"


def test_a_week_is_compared_with_the_one_before() -> None:
    assert against(112, 100) == "12\N{NO-BREAK SPACE}% more than"
    assert against(75, 100) == "25\N{NO-BREAK SPACE}% less than"
    assert against(101, 100) == "about as much as"
    assert against(350, 100) == "3.5 times"


def test_prices_are_told_once_with_who_has_set_them() -> None:
    gpus = {"prices": {"currency": "EUR", "per_hour": {"gpu": 1.5, "gib": 0.004}}}
    lists = price_lists([USED, USED | {"user": "li"}, USED | gpus, USED | FREE])
    assert [(one.words, one.users) for one in lists] == [
        ("GPU 1.5 EUR, GiB of worker memory 0.004 EUR an hour", ("ada",)),
        ("thread 0.06 USD an hour", ("ada", "li")),
    ]


def test_weeks_begin_on_monday() -> None:
    monday = 1_700_438_400  # 2023-11-20
    assert first_monday(monday, 1) * 86_400 == monday
    assert first_monday(monday - 1, 1) * 86_400 == monday - 7 * 86_400
    assert first_monday(monday + 6.9 * 86_400, 3) * 86_400 == monday - 14 * 86_400


def test_columns_show_money_and_without_prices_hours() -> None:
    found = columns(by_period([USED, USED | {"period": 1, "cost": 0.24}], 2), 19_681)
    assert found is not None
    assert [(c.day, c.top, c.words) for c in found.columns] == [
        ("Sun 19 Nov", 50.0, "0.12 USD, of it idle 0.0300 USD"),
        ("Mon 20 Nov", 0.0, "0.24 USD, of it idle 0.0300 USD"),
    ]
    free = columns(by_period([USED | FREE], 1), 19_681)
    assert free is not None
    assert (free.what, free.columns[0].idle) == ("compute hours", 75.0)
    assert columns(by_period([], 14), 19_681) is None


def test_hours_and_shares_are_rounded_and_never_to_nothing() -> None:
    assert [hours(h * 3600) for h in (0, 0.01, 0.5, 9.94, 9.96, 1234.4)] == [
        "0 h",
        "< 0.1 h",
        "0.5 h",
        "9.9 h",
        "10 h",
        "1,234 h",
    ]
    assert [percent(share).replace("\N{NO-BREAK SPACE}", " ") for share in (0, 0.001, 0.37, 1)] == [
        "0 %",
        "< 1 %",
        "37 %",
        "100 %",
    ]
