"""What an idle policy comes to: as examples, and as what holds for all of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskscope_service.policies.decision import (
    Decision,
    Policy,
    UnknownTimeZone,
    decide,
    in_hours,
    local_time,
)

NIGHTS = Policy(
    "p1", "nights", 1800.0, "shutdown", begins="20:00", ends="06:00", time_zone="Europe/Berlin"
)
#: 23:12 in Berlin.
NIGHT = datetime(2026, 1, 31, 22, 12, tzinfo=UTC).timestamp()
#: 12:00 in Berlin.
NOON = datetime(2026, 1, 31, 11, 0, tzinfo=UTC).timestamp()

CLOCKS = st.times().map(lambda time: time.strftime("%H:%M"))
SECONDS = st.floats(min_value=60, max_value=1e6)


def cluster(**fields: Any) -> dict[str, Any]:
    defaults = {
        "user": "maria.lindqvist",
        "tags": {"team": "climate", "stage": "dev-2"},
        "idle_seconds": 2520.0,
        "busy_by": (),
        "idle_timeout": None,
        "last_seen_at": NIGHT - 3,
    }
    return defaults | fields


def comes_to(
    policy: Policy = NIGHTS,
    *,
    status: str = "running",
    acted_at: float | None = None,
    now: float = NIGHT,
    **fields: Any,
) -> Decision:
    return decide(policy, cluster(**fields), status=status, acted_at=acted_at, now=now)


def test_a_decision_tells_the_facts_the_rule_and_what_follows() -> None:
    assert comes_to() == Decision(
        "shutdown",
        "Idle for 42 min; policy 'nights' shuts down after 30 min between 20:00 and 06:00 "
        "Europe/Berlin; it is 23:12 there, so the policy asks the cluster to shut down.",
    )
    assert comes_to(now=NOON, last_seen_at=NOON).sentence.endswith(
        "it is 12:00 there, so nothing is done now."
    )
    assert comes_to(idle_seconds=60.0).sentence.endswith(
        "so the policy acts in 29 min at the earliest."
    )
    assert comes_to(idle_timeout=600.0).sentence == (
        "Idle for 42 min; policy 'nights' shuts down after 30 min between 20:00 and 06:00 "
        "Europe/Berlin; the cluster's own idle.timeout of 10 min is stricter, so the policy leaves "
        "it to that."
    )
    assert comes_to(replace(NIGHTS, enabled=False)).sentence == (
        "Policy 'nights' shuts down after 30 min between 20:00 and 06:00 Europe/Berlin, but is "
        "switched off."
    )


@pytest.mark.parametrize(
    ("outcome", "fields"),
    [
        ("gone", {"status": "lost"}),
        ("gone", {"status": "stopped"}),
        ("at work", {"idle_seconds": None}),
        ("at work", {"idle_seconds": None, "busy_by": ["tasks are running"]}),
        # In doubt it stays.
        ("at work", {"busy_by": ["Frisky reports work"]}),
        ("shutdown", {"busy_by": None}),
        ("not yet", {"idle_seconds": 1799.0}),
        ("shutdown", {"idle_seconds": 1800.0}),
        ("shutdown", {"idle_timeout": 7200.0}),
        ("own setting", {"idle_timeout": 1800.0}),
        ("other hours", {"now": NOON, "last_seen_at": NOON}),
        # In this idleness, and in the one before.
        ("done", {"acted_at": NIGHT - 600}),
        ("shutdown", {"acted_at": NIGHT - 3000}),
    ],
)
def test_what_decides(outcome: str, fields: dict[str, Any]) -> None:
    assert comes_to(**fields).outcome == outcome
    if outcome == "own setting":  # someone may want to know all the same
        assert comes_to(replace(NIGHTS, action="notice"), **fields).outcome == "notice"


def test_whom_it_means() -> None:
    for fields, means in (
        ({}, True),
        ({"users": ("maria.*",)}, True),
        ({"users": ("li", "*lindqvist")}, True),
        ({"users": ("Maria*",)}, False),
        ({"users": ("maria",)}, False),
        ({"tags": {"stage": "dev*"}}, True),
        ({"tags": {"stage": "dev*", "team": "other"}}, False),
        ({"tags": {"ticket": "*"}}, False),
        ({"users": ("maria*",), "tags": {"team": "climate"}}, True),
    ):
        policy: Policy = replace(NIGHTS, **fields)
        assert policy.means(cluster()) == means, fields


def test_a_time_zone_that_is_none_shuts_nothing_down() -> None:
    for name in ("Europe/Atlantis", "../etc/passwd", "", "Europe"):
        with pytest.raises(UnknownTimeZone):
            local_time(0.0, name)
        assert comes_to(replace(NIGHTS, time_zone=name)).outcome == "other hours"


@given(CLOCKS, CLOCKS, CLOCKS)
def test_hours_and_the_hours_between_them_are_all_of_a_day(
    clock: str, begins: str, ends: str
) -> None:
    if begins == ends:
        assert in_hours(clock, begins, ends)
    else:
        assert in_hours(clock, begins, ends) != in_hours(clock, ends, begins)
    assert in_hours(begins, begins, ends)
    assert begins == ends or not in_hours(ends, begins, ends)


@given(
    policy=st.builds(
        Policy,
        st.just("p1"),
        st.text(min_size=1, max_size=80),
        SECONDS,
        st.sampled_from(["notice", "shutdown"]),
        begins=st.none() | CLOCKS,
        ends=st.none() | CLOCKS,
        time_zone=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns"]),
        enabled=st.booleans(),
    ),
    idle=st.none() | SECONDS,
    own=st.none() | SECONDS,
    status=st.sampled_from(["running", "lost", "stopped"]),
    acted=st.none() | SECONDS,
    now=st.floats(min_value=1e9, max_value=2e9),
    silence=st.floats(min_value=0, max_value=60),
)
def test_nothing_is_shut_down_but_by_the_rule(
    policy: Policy,
    idle: float | None,
    own: float | None,
    status: str,
    acted: float | None,
    now: float,
    silence: float,
) -> None:
    acted_at = None if acted is None else now - acted
    found = cluster(idle_seconds=idle, idle_timeout=own, last_seen_at=now - silence)
    due = decide(policy, found, status=status, acted_at=acted_at, now=now)
    assert repr(policy.name) in due.sentence
    assert due.sentence.endswith(".")
    clock = datetime.fromtimestamp(now, ZoneInfo(policy.time_zone)).strftime("%H:%M")
    limited = policy.begins is not None and policy.ends is not None
    rule = (
        policy.enabled
        and status == "running"
        and idle is not None
        and idle >= policy.after
        and (policy.action == "notice" or own is None or own > policy.after)
        and (acted_at is None or acted_at < now - silence - idle)
        and (not limited or in_hours(clock, policy.begins or "", policy.ends or ""))
    )
    assert due.acts == rule
    assert not due.acts or due.outcome == policy.action
