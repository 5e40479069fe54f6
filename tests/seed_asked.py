"""What is asked of seeded clusters, decided about them, and told elsewhere: rows of it."""

from __future__ import annotations

import json
from typing import Any

from daskscope_service.db import schema
from tests.seed_writer import GIB, SeedWriter


def command(
    writer: SeedWriter,
    cluster: str,
    id: str,
    who: str,
    at: float,
    reason: str,
    called_off_by: str = "",
) -> None:
    asked = writer.now + at
    writer.add(
        schema.command,
        cluster=cluster,
        id=id,
        requested_by=who,
        requested_at=asked,
        reason=reason,
        even_if_busy=False,
        expires_at=asked + 3600,
        delivered_at=asked + 5,
        called_off_by=called_off_by or None,
        called_off_at=asked + 9 if called_off_by else None,
        called_off_reason="We need it." if called_off_by else None,
    )


def target(
    writer: SeedWriter, name: str, address: str, sent_at: float, failure: str | None = None
) -> None:
    never = writer.now + 1e9  # nothing is to be sent
    writer.add(
        schema.notification_target,
        id=name,
        name=name,
        address=address,
        kinds=["computation failed", "worker lost", "budget passed"],
        changed_at=writer.now,
        changed_by="tomas",
        told_until=never,
        next_at=never,
        sent_at=writer.now + sent_at,
        failed_at=None if failure is None else writer.now - 60,
        failure=failure,
    )


def budget(writer: SeedWriter, amount: float, **of: str) -> None:
    writer.add(
        schema.budget,
        **{"user": "", "tag": ""} | of,
        amount=amount,
        currency="USD",
        changed_at=writer.now,
        changed_by="tomas",
    )


def policy(
    writer: SeedWriter, name: str, after: float, action: str = "shutdown", **fields: Any
) -> None:
    defaults: dict[str, Any] = {
        "users": [],
        "tags": {},
        "begins": None,
        "ends": None,
        "time_zone": "UTC",
    }
    writer.add(
        schema.policy,
        id=name,
        name=name,
        after=after,
        action=action,
        changed_at=writer.now,
        changed_by="tomas",
        **defaults | {"enabled": True} | fields,
    )


def decision(writer: SeedWriter, cluster: str, policy: str, at: float, sentence: str) -> None:
    writer.add(
        schema.decision,
        id=f"{cluster}-{policy}",
        cluster=cluster,
        policy=policy,
        policy_name=policy,
        at=writer.now + at,
        outcome="shutdown",
        sentence=sentence,
    )


def notice(writer: SeedWriter, kind: str, cluster: str, at: float, sentence: str) -> None:
    writer.add(
        schema.notice,
        id=f"{kind}:{cluster}:{at}",
        kind=kind,
        cluster=cluster,
        found_at=writer.now + at,
        sentence=sentence,
        path=f"/clusters/{cluster}",
    )


def usage(
    writer: SeedWriter,
    cluster: str,
    user: str,
    days: int,
    threads: int,
    hours: float,
    *,
    until: int = 0,
    prices: tuple[str, float] | None = None,
) -> None:
    """Add what a cluster came to on each of ``days``, the last ``until`` days ago.

    It was up ``hours`` on each, more or less; ``prices`` are a currency and what an hour of a
    thread costs.
    """
    today = int(writer.now // 86_400)
    seconds = 0.0
    for day in range(today - until - days + 1, today - until + 1):
        seconds += hours * 3600 * (0.5 + day * 7 % 10 / 10)
        ran = seconds * threads
        writer.add(
            schema.usage,
            day=day,
            cluster=cluster,
            seq=100,
            user=user,
            started_at=86_400.0 * (today - until - days + 1),
            up_seconds=seconds,
            thread_seconds=ran,
            idle_seconds=0.37 * ran,
            cost=None if prices is None else ran / 3600 * prices[1],
            idle_cost=None if prices is None else 0.37 * ran / 3600 * prices[1],
            prices=None
            if prices is None
            else json.dumps({"currency": prices[0], "per_hour": {"thread": prices[1]}}),
        )


def repeats(writer: SeedWriter, cluster: str, computation: str) -> None:
    """Say that a computation repeated work, and that others repeated more, for more people."""
    whose = ["maria.lindqvist", "tomas", "finance-batch", "li"]
    groups = [("read-parquet", 1.0), ("parse_events", 31.0), ("groupby-agg", 72.0)]
    works = [
        ("file", 14, whose, 3, 900_000.0, groups),
        ("persist", 2, whose[:1], 1, 140.0, groups[:1]),
    ]
    for instead, runs, users, clusters, seconds, steps in works:
        for prefix, step in steps:
            writer.add(
                schema.repeat,
                name=f"{prefix}-{runs:08x}",
                prefix=prefix,
                runs=runs,
                users=users,
                people=len(users),
                clusters=clusters,
                seconds_again=seconds,
                cost_again=seconds / 90_000 if runs > 2 else None,
                currency="USD" if runs > 2 else None,
                first_at=writer.now - 4 * 86_400,
                last_at=writer.now - 900,
                last_cluster=cluster,
                last_computation=computation,
                output_bytes=31 * GIB,
                instead=instead,
                together=f"{runs:016x}",
                step=step,
            )
    writer.add(
        schema.group_run,
        cluster=cluster,
        computation=computation,
        name="read-parquet-0000000e",
        user=whose[0],
        at=writer.now - 900,
        ended_at=writer.now - 655,
        prefix="read-parquet",
        tasks=100,
        seconds=900.0,
        cost=None,
        currency=None,
        output_bytes=31 * GIB,
        began=writer.now - 899,
    )
