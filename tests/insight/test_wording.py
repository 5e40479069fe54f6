"""How amounts are written for people."""

from __future__ import annotations

import pytest

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
