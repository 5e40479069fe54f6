"""Reads the thresholds of findings of a workspace."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import threshold
from daskscope_service.insight.findings.thresholds import DEFAULTS


def own_thresholds(connection: Connection, workspace: str) -> Mapping[str, float]:
    """Return the thresholds that the workspace has set, by name."""
    row = connection.execute(select_in(workspace, threshold, threshold.c.own)).first()
    # Another version may have stored thresholds that this one does not know.
    return {} if row is None else {name: row.own[name] for name in DEFAULTS if name in row.own}


def thresholds_of(connection: Connection, workspace: str) -> Mapping[str, float]:
    """Return the thresholds in force: the workspace's own, and the defaults of all others."""
    own = own_thresholds(connection, workspace)
    return {**DEFAULTS, **own} if own else DEFAULTS
