"""Settings, audit log: the entries of the workspace, for its owners."""

from __future__ import annotations

import dataclasses
import time

from flask import Blueprint, g, render_template
from flask.typing import ResponseReturnValue

from daskscope_service.accounts import access, audit
from daskscope_service.services import services
from daskscope_service.web.downloads import csv_table, make_columns
from daskscope_service.web.parameters import part, refuse_unknown

blueprint = Blueprint("audit_page", __name__)

#: How many entries the page shows, and how many a CSV file has at most.
_SHOWN, _IN_FILE = 100, 10_000

_COLUMNS = make_columns("at action actor detail workspace address")


@blueprint.get("/settings/audit")
@access.acting_as("owner")
def entries() -> ResponseReturnValue:
    """Show what happened in the workspace, the newest first."""
    refuse_unknown("cursor")
    after = part()[1]
    logged = audit.newest(
        services().engine,
        _SHOWN + 1,
        workspace=g.workspace,
        after=None if after is None else (after[0], after[1]),
    )
    shown = logged[:_SHOWN]
    return render_template(
        "audit.html",
        now=time.time(),
        entries=shown,
        later=after is not None,
        next=(shown[-1].at, shown[-1].id, "") if len(logged) > _SHOWN else None,
    )


@blueprint.get("/settings/audit.csv")
@access.acting_as("owner")
def file() -> ResponseReturnValue:
    """Answer with the newest entries as CSV."""
    refuse_unknown()
    logged = audit.newest(services().engine, _IN_FILE, workspace=g.workspace)
    return csv_table(_COLUMNS, map(dataclasses.asdict, logged), "audit-log")
