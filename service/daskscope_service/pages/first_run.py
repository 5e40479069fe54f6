"""What a workspace shows as long as no cluster has reported to it: how to report the first one."""

from __future__ import annotations

import time

from flask import current_app, g, render_template

from daskscope_service.accounts import tokens
from daskscope_service.db.engine import current_engine


def first_run() -> str:
    """Return the page, which tells how far one has come and notices when a cluster arrives."""
    now = time.time()
    sends = [
        one
        for one in tokens.list_in(current_engine(), g.workspace)
        if one.state(now) == "active" and "ingest" in one.scopes
    ]
    used = [one for one in sends if one.last_used_at is not None]
    return render_template(
        "first_run.html",
        now=now,
        url=current_app.config["SETTINGS"].url,
        sends=sends,
        used=max(used, key=lambda one: one.last_used_at or 0.0, default=None),
        may_make="ingest" in g.caller.grants,
    )
