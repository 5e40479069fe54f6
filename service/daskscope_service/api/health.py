"""``/healthz``: whether the process answers. ``/readyz``: whether it can also read and write."""

from __future__ import annotations

from typing import Literal, TypedDict

from flask import Blueprint
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from daskscope_service.db.schema import workspace
from daskscope_service.services import services
from daskscope_service.web.operation import JSON, Operation, describes
from daskscope_service.web.problems import Problem

blueprint = Blueprint("health", __name__)


class Health(TypedDict):
    """The answer if all is well."""

    status: Literal["ok"]


@blueprint.get("/healthz")
@describes(Operation({JSON: Health}))
def alive() -> Health:
    """Answer that the process runs."""
    return {"status": "ok"}


@blueprint.get("/readyz")
@describes(Operation({JSON: Health}, problems=(503,)))
def ready() -> Health:
    """Answer if the database answers and the writer runs; otherwise 503 with the reason.

    A full queue or a full disk does not change this: reading works, and senders get a 503.
    """
    writer = services().writer
    if not writer.running:
        raise _not_ready("The service is stopping.", "stopping")
    try:
        with services().engine.connect() as connection:
            connection.execute(select(workspace.c.id).limit(1)).first()
    except SQLAlchemyError as error:  # including a timeout of the connection pool
        raise _not_ready("The database does not answer.", "database") from error
    return {"status": "ok"}


def _not_ready(detail: str, reason: str) -> Problem:
    return Problem(503, detail, headers={"Retry-After": "5"}, reason=reason)
