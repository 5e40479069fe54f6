"""The steps to make a cluster report; an empty workspace and the settings show them."""

from __future__ import annotations

import time
from typing import Any

from flask import current_app, g, render_template

from daskscope_service.accounts import tokens
from daskscope_service.db.schema import cluster
from daskscope_service.db.scope import Scope
from daskscope_service.services import services


def has_clusters(scope: Scope) -> bool:
    """Return whether any cluster of the workspace has ever reported."""
    query = scope.select(cluster, cluster.c.id).limit(1)
    return scope.connection.execute(query).first() is not None


def first_run() -> str:
    """Return the page with the steps and which are done; it reloads until a cluster reports."""
    shown = steps()
    used = [one for one in shown["sends"] if one.last_used_at is not None]
    return render_template(
        "first_run.html",
        **shown,
        used=max(used, key=lambda one: one.last_used_at or 0.0, default=None),
    )


def steps() -> dict[str, Any]:
    """Return the variables of ``_connect.html``: the steps to a cluster that reports."""
    now = time.time()
    return {
        "now": now,
        "url": current_app.config["SETTINGS"].url,
        "sends": [
            one
            for one in tokens.list_in(services().engine, g.workspace)
            if one.state(now) == "active" and "ingest" in one.scopes
        ],
        "may_make": "ingest" in g.caller.grants,
    }
