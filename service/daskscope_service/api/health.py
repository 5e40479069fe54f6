"""``/healthz``: the process answers. ``/readyz``: it can also read its database."""

from __future__ import annotations

from flask import Blueprint
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from daskscope_service.db.engine import current_engine
from daskscope_service.db.schema import workspace
from daskscope_service.problems import Problem

blueprint = Blueprint("health", __name__)


@blueprint.get("/healthz")
def alive() -> dict[str, str]:
    """Answer, that is all."""
    return {"status": "ok"}


@blueprint.get("/readyz")
def ready() -> dict[str, str]:
    """Answer once the database does."""
    try:
        with current_engine().connect() as connection:
            connection.execute(select(workspace.c.id).limit(1)).first()
    except DBAPIError as error:
        raise Problem(503, "The database does not answer.", headers={"Retry-After": "5"}) from error
    return {"status": "ok"}
