"""What fails is tried again less and less often, and warned of once."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from daskscope.delivery.backoff import MAX_PAUSE, Backoff
from daskscope.delivery.warn_once import WarnOnce


def test_pauses_double_with_each_failure_in_a_row_up_to_a_bound() -> None:
    backoff = Backoff(1.0)
    for longest in (1.0, 2.0, 4.0, 8.0, 16.0, MAX_PAUSE, MAX_PAUSE):
        assert longest / 2 <= backoff.failed() <= longest
    backoff.succeeded()
    assert 0.5 <= backoff.failed() <= 1.0


def test_the_pause_is_as_long_as_the_other_side_asks_for() -> None:
    backoff = Backoff(1.0)
    assert backoff.failed(asked=600.0) == 600.0
    assert 500.0 < backoff.remaining() <= 600.0
    assert not backoff.is_over()


@pytest.mark.parametrize("end", [Backoff.succeeded, Backoff.skip])
def test_a_pause_can_be_ended(end: Callable[[Backoff], None]) -> None:
    backoff = Backoff(600.0)
    assert backoff.is_over()
    backoff.failed()
    assert not backoff.is_over()
    end(backoff)
    assert backoff.is_over()
    assert backoff.remaining() == 0.0


def test_each_kind_of_trouble_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    warn_once = WarnOnce()
    with caplog.at_level(logging.WARNING, logger="daskscope"):
        for host in ("a", "b"):
            for reason in ("first", "second"):
                warn_once(("down", host), "%s is down: %s", host, reason)
    assert caplog.messages == ["a is down: first", "b is down: first"]
