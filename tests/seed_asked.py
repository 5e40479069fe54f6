"""What is asked of seeded clusters, decided about them, and told elsewhere: rows of it."""

from __future__ import annotations

from typing import Any

from daskscope_service.db import schema
from tests.seed_writer import SeedWriter


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
