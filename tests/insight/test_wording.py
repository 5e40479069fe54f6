"""How amounts are written for people."""

from __future__ import annotations

import pytest

from daskscope_service.insight.wording import money


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
