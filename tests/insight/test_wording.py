"""How amounts are written for people."""

from __future__ import annotations

import pytest

from daskscope_service.insight.findings.finding import SavedMoney, Saving
from daskscope_service.insight.findings.headline import saving_in_words
from daskscope_service.insight.jobs.repeats import sentence
from daskscope_service.insight.lifetime import Lifetime, what_it_did
from daskscope_service.insight.wording import money, short, size


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0.0, "0.00 USD"),
        (0.000_002, "< 0.0001 USD"),
        (0.000_05, "0.0001 USD"),
        (0.0123, "0.0123 USD"),
        (1234.5, "1,234.50 USD"),
    ],
)
def test_an_amount_that_is_not_zero_does_not_look_like_zero(amount: float, text: str) -> None:
    assert money(amount, "USD") == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0 B"),
        (286.4 * 2**20, "286 MiB"),
        (999.4 * 2**20, "999 MiB"),
        (999.6 * 2**20, "1000 MiB"),
        (1023 * 2**20, "1023 MiB"),
        (1.2144 * 2**30, "1.21 GiB"),
        (1005, "1005 B"),
    ],
)
def test_a_size_is_written_without_an_exponent(amount: float, text: str) -> None:
    assert size(amount) == text


def test_many_threads_are_written_without_an_exponent() -> None:
    assert [short(value) for value in (3.94, 128.0, 1234.4)] == ["3.94", "128", "1,234"]


NOW = 1_767_780_000.0  # 2026-01-07 10:00 UTC, a Wednesday
HOUR, DAY = 3_600.0, 86_400.0


@pytest.mark.parametrize(
    ("ago", "seconds", "text"),
    [
        (2 * HOUR, 1.0, "since 08:00 UTC, on the same inputs: 1 thread-second after"),
        (2 * DAY, 89.0, "since Monday, on the same inputs: 89 thread-seconds after"),
        (6 * DAY, 600.0, "since 1 January, on the same inputs: 10 thread-minutes after"),
        (8 * DAY, 3_599.0, "since 30 December 2025, on the same inputs: 1.0 thread-hours after"),
    ],
)
def test_repeated_work_is_said_with_its_time(ago: float, seconds: float, text: str) -> None:
    work = {"title": "sum", "runs": 3, "people": 1, "clusters": 1, "cost_again": None}
    assert text in sentence(work | {"first_at": NOW - ago, "seconds_again": seconds}, NOW)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0.5, 1.5, "0.50 USD to 1.50 USD"),
        (0.0, 1.5, "up to 1.50 USD"),
        (0.00001, 0.00002, "< 0.0001 USD"),
        (0.0, 0.00002, "< 0.0001 USD"),
        (2.0, 2.0, "2.00 USD"),
    ],
)
def test_what_is_saved_is_said_once_where_its_bounds_look_alike(
    low: float, high: float, words: str
) -> None:
    saving = Saving(0.0, 3.0, "s", "time", SavedMoney(low, high, "USD", "money"))
    assert saving_in_words(saving) == f"saves up to 3.0 s, {words} (estimate): money"


@pytest.mark.parametrize(
    ("cost", "idle", "words"),
    [
        (0.3, 0.1, "ran no computation and cost 0.30 USD, 0.10 USD of it idle"),
        (0.00003, 0.00001, "ran no computation and cost < 0.0001 USD"),
    ],
)
def test_of_a_tiny_cost_no_part_is_said(cost: float, idle: float, words: str) -> None:
    cluster = {"cost": cost, "idle_cost": idle, "prices": {"currency": "USD"}, "price_source": ""}
    assert what_it_did(cluster, Lifetime(), with_cost=True) == words
