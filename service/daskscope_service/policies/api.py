"""``/api/v1/policies``: what is done about clusters that are idle, and what was decided."""

from __future__ import annotations

from typing import Annotated

import msgspec
from flask import Blueprint, g, request
from msgspec import Meta

from daskscope import api_types as types
from daskscope_service.accounts.access import require, require_role
from daskscope_service.db.engine import writing
from daskscope_service.db.scope import Item, reading
from daskscope_service.insight.idle_policy import Action, Policy
from daskscope_service.policies import idle_policies as kept
from daskscope_service.policies.idle_policies import MOST_SECONDS, NameTaken, Unfit
from daskscope_service.policies.queries import list_decisions, list_policies, one_policy
from daskscope_service.services import services
from daskscope_service.web.operation import answers
from daskscope_service.web.parameters import LIST, selection
from daskscope_service.web.problems import Problem
from daskscope_service.web.representation import page_answer

blueprint = Blueprint("policies", __name__, url_prefix="/api/v1")

_Pattern = Annotated[str, Meta(min_length=1, max_length=300, pattern=r"^[^\x00]*$")]
_Clock = Annotated[str, Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")]


class PolicyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be done about clusters that are idle for ``after`` seconds.

    It means clusters of ``users`` (patterns; none: everyone) that have all of ``tags`` (patterns by
    tag), from ``begins`` to ``ends`` (HH:MM; None: all day) in ``time_zone``.
    """

    name: Annotated[str, Meta(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f]*$")]
    after: Annotated[float, Meta(ge=60, le=MOST_SECONDS)]
    action: Action
    users: Annotated[list[_Pattern], Meta(max_length=50)] = []
    tags: Annotated[dict[_Pattern, _Pattern], Meta(max_length=20)] = {}
    begins: _Clock | None = None
    ends: _Clock | None = None
    time_zone: Annotated[str, Meta(max_length=80)] = "UTC"
    enabled: bool = True


@blueprint.get("/policies")
@require("read")
@answers(types.Page[types.IdlePolicy])
def policies() -> Item:
    """Answer with the idle policies of the workspace, by name."""
    with reading() as scope:
        return {"items": list_policies(scope), "next": None}


@blueprint.get("/policies/<policy_id>")
@require("read")
@answers(types.IdlePolicy)
def policy(policy_id: str) -> Item:
    """Answer with one idle policy."""
    return _one(policy_id)


@blueprint.post("/policies")
@require_role("owner")
@answers(types.IdlePolicy, body=PolicyRequest, statuses=(201,), problems=(409,))
def post_policy(body: PolicyRequest) -> Item:
    """Create an idle policy."""
    return _one(_keep(kept.new_id(), body))


@blueprint.put("/policies/<policy_id>")
@require_role("owner")
@answers(types.IdlePolicy, body=PolicyRequest, problems=(404, 409))
def put_policy(policy_id: str, body: PolicyRequest) -> Item:
    """Replace an idle policy."""
    _one(policy_id)
    return _one(_keep(policy_id, body))


@blueprint.delete("/policies/<policy_id>")
@require_role("owner")
@answers(None, statuses=(204,), problems=(404,))
def delete_policy(policy_id: str) -> None:
    """Remove an idle policy."""
    with writing(services().engine) as connection:
        if not kept.remove(
            connection, g.workspace, policy_id, actor=g.actor, address=request.remote_addr
        ):
            raise _missing(policy_id)


@blueprint.get("/decisions")
@require("read")
@answers(types.Page[types.PolicyDecision], *LIST)
def decisions() -> Item:
    """Answer with what idle policies did about clusters, by time."""
    which = selection()
    with reading() as scope:
        return page_answer(list_decisions(scope, which))


def _keep(policy_id: str, said: PolicyRequest) -> str:
    values = msgspec.structs.asdict(said) | {"users": tuple(said.users)}
    try:
        with writing(services().engine) as connection:
            kept.keep(
                connection,
                g.workspace,
                Policy(policy_id, **values),
                actor=g.actor,
                address=request.remote_addr,
            )
    except NameTaken:
        raise Problem(
            409, f"There is already a policy named {said.name!r}.", field="$.name"
        ) from None
    except Unfit as error:
        raise Problem(400, str(error), field=f"$.{error.field}") from None
    return policy_id


def _one(policy_id: str) -> Item:
    with reading() as scope:
        found = one_policy(scope, policy_id)
    if found is None:
        raise _missing(policy_id)
    return found


def _missing(policy_id: str) -> Problem:
    return Problem(404, f"This workspace has no policy {policy_id!r}.", title="Not found")
