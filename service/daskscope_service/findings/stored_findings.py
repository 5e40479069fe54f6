"""Converts findings to rows of their table, and stores them."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import Connection, delete, insert

from daskscope_service.db.schema import finding
from daskscope_service.db.scope import Item
from daskscope_service.insight.findings.finding import Finding
from daskscope_service.insight.findings.rules import Judgement


def as_rows(judgement: Judgement, user: str, at: float, now: float) -> list[Item]:
    """Return the findings of ``user``'s cluster or computation, which began ``at``, as rows.

    ``now`` is when they were made.
    """
    return [_row(one, place, user, at, now) for place, one in enumerate(judgement.findings)]


def _row(one: Finding, place: int, user: str, at: float, now: float) -> Item:
    item = asdict(one)
    del item["clause"], item["muted"]
    return item | {
        "sentence": one.sentence,
        "position": place,
        "user": user,
        "at": at,
        "found_at": now,
    }


def store_findings(
    connection: Connection, name: str, of_cluster: str, id: str, items: list[Item]
) -> list[Item]:
    """Replace the findings of the computation ``id``, or of the cluster itself if ``id`` is "".

    Return those that were not there before, or with another severity or as the effect of another.
    """
    same = (finding.c.id, finding.c.severity, finding.c.suppressed_by)
    before = connection.execute(
        delete(finding)
        .where(finding.c.workspace == name, finding.c.cluster == of_cluster)
        .where(finding.c.computation == id)
        .returning(*same)
    ).all()
    known = set(map(tuple, before))
    key = {"workspace": name, "cluster": of_cluster, "computation": id}
    rows = [item | key | {"id": f"{id}:{item['rule']}"} for item in items]
    if rows:
        connection.execute(insert(finding), rows)
    return [row for row in rows if tuple(row[column.name] for column in same) not in known]
