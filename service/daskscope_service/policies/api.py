"""``/api/v1/policies``: idle policies, and their decisions."""

from __future__ import annotations

import msgspec
from flask import Blueprint

from daskscope import api_types as types
from daskscope_service.accounts.access import changing, check_fresh, require, require_role
from daskscope_service.db.scope import Item, reading
from daskscope_service.policies import idle_policies
from daskscope_service.policies.decision import Action, Policy
from daskscope_service.policies.idle_policies import After, Clock, Tags, TimeZone, Users
from daskscope_service.policies.queries import list_decisions, list_policies, one_policy
from daskscope_service.web.fields import Name
from daskscope_service.web.operation import answers
from daskscope_service.web.parameters import LIST, selection
from daskscope_service.web.problems import Problem
from daskscope_service.web.representation import page_answer

blueprint = Blueprint("policies", __name__, url_prefix="/api/v1")


class PolicyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A rule: what the service does about clusters that are idle for ``after`` seconds.

    It applies to clusters of ``users`` (patterns; none: everyone) that have all of ``tags``
    (patterns by tag), from ``begins`` to ``ends`` (HH:MM; null: all day) in ``time_zone``.
    """

    name: Name
    after: After
    action: Action
    users: Users = []
    tags: Tags = {}
    begins: Clock | None = None
    ends: Clock | None = None
    time_zone: TimeZone = "UTC"
    enabled: bool = True


@blueprint.get("/policies")
@require("read")
@answers(types.Page[types.IdlePolicy])
def policies() -> Item:
    """Answer with the idle policies of the workspace, sorted by name."""
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
    policy = _policy(idle_policies.new_id(), body)
    _check_fresh_for(policy)
    try:
        with changing() as change:
            idle_policies.add(change, policy)
    except idle_policies.TooManyPolicies as error:
        raise Problem(409, str(error)) from None
    return _one(policy.id)


@blueprint.put("/policies/<policy_id>")
@require_role("owner")
@answers(types.IdlePolicy, body=PolicyRequest, problems=(404, 409))
def put_policy(policy_id: str, body: PolicyRequest) -> Item:
    """Replace an idle policy."""
    policy = _policy(policy_id, body)
    _check_fresh_for(policy)
    with changing() as change:
        idle_policies.replace(change, policy)
    return _one(policy_id)


@blueprint.delete("/policies/<policy_id>")
@require_role("owner")
@answers(None, statuses=(204,), problems=(404,))
def delete_policy(policy_id: str) -> None:
    """Remove an idle policy."""
    with changing() as change:
        idle_policies.remove(change, policy_id)


@blueprint.get("/decisions")
@require("read")
@answers(types.Page[types.PolicyDecision], *LIST)
def decisions() -> Item:
    """Answer with the decisions of idle policies about clusters, by time."""
    which = selection()
    with reading() as scope:
        return page_answer(list_decisions(scope, which))


def _check_fresh_for(policy: Policy) -> None:
    if policy.action == "shutdown":
        check_fresh()


def _policy(policy_id: str, said: PolicyRequest) -> Policy:
    return Policy(policy_id, **msgspec.structs.asdict(said) | {"users": tuple(said.users)})


def _one(policy_id: str) -> Item:
    with reading() as scope:
        return one_policy(scope, policy_id)
