"""Settings, workspace: its name, its quotas, and how to add another cluster."""

from __future__ import annotations

from flask import Blueprint, g, render_template
from flask.typing import ResponseReturnValue
from sqlalchemy import func, select

from daskscope_service.accounts import access, members
from daskscope_service.accounts.first_run import steps
from daskscope_service.db.schema import cluster, workspace
from daskscope_service.db.scope import reading
from daskscope_service.services import services
from daskscope_service.web.parameters import refuse_unknown

blueprint = Blueprint("workspace_page", __name__)


@blueprint.get("/settings/workspace")
@access.signed_in
def show() -> ResponseReturnValue:
    """Show the workspace."""
    refuse_unknown()
    engine = services().engine
    with reading() as scope:
        first, clusters = scope.connection.execute(
            scope.select(cluster, func.min(cluster.c.started_at), func.count())
        ).one()
        made = scope.connection.scalar(
            select(workspace.c.created_at).where(workspace.c.id == g.workspace)
        )
    return render_template(
        "workspace.html",
        **steps(),
        made_at=made,
        first_at=first,
        clusters=clusters,
        members=members.count_in(engine, g.workspace),
        role=g.session.role,
        uses=services().quotas.of(g.workspace),
    )
