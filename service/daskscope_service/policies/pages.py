"""The page of the idle policies."""

from __future__ import annotations

from flask import Blueprint, g, redirect, render_template, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import acting_as, changing, check_fresh, may_act, signed_in
from daskscope_service.db.scope import Item, reading
from daskscope_service.policies import idle_policies
from daskscope_service.policies.decision import Policy
from daskscope_service.policies.queries import list_policies, one_policy
from daskscope_service.web.fields import NameTaken, Unfit

blueprint = Blueprint("idle", __name__)

#: The initial values of the form.
_BLANK: Item = {"name": "", "minutes": "30", "action": "notice", "users": "", "tags": "",
                "begins": "", "ends": "", "time_zone": "UTC", "enabled": True}  # fmt: skip


@blueprint.get("/settings/policies")
@signed_in
def policies() -> ResponseReturnValue:
    """Show the policies of the workspace, and to owners a form for another one."""
    return _page(_BLANK)


@blueprint.post("/settings/policies")
@acting_as("owner")
def make() -> ResponseReturnValue:
    """Store a new policy."""
    return _keep(idle_policies.new_id())


@blueprint.get("/settings/policies/<policy_id>")
@acting_as("owner")
def edit(policy_id: str) -> ResponseReturnValue:
    """Show the form for one policy."""
    policy = _one(policy_id)
    said = policy | {
        "minutes": f"{policy['after'] / 60:g}",
        "users": " ".join(policy["users"]),
        "tags": " ".join(f"{name}={pattern}" for name, pattern in policy["tags"].items()),
        "begins": policy["begins"] or "",
        "ends": policy["ends"] or "",
        "read_at": repr(policy["changed_at"]),
    }
    return _page(said, policy_id)


@blueprint.post("/settings/policies/<policy_id>")
@acting_as("owner")
def change(policy_id: str) -> ResponseReturnValue:
    """Replace a policy with the one in the form."""
    return _keep(policy_id)


@blueprint.post("/settings/policies/<policy_id>/remove")
@acting_as("owner")
def remove(policy_id: str) -> ResponseReturnValue:
    """Remove a policy."""
    with changing() as change:
        idle_policies.remove(change, policy_id)
    return redirect("/settings/policies", code=303)


def _keep(policy_id: str) -> ResponseReturnValue:
    said = {name: request.form.get(name, "").replace("\0", "").strip() for name in _BLANK}
    read_at = request.form.get("read_at", "")
    form = said | {"enabled": bool(said["enabled"]), "read_at": read_at}
    old = policy_id if request.view_args else None
    try:
        policy = _policy(policy_id, said)
        if policy.action == "shutdown":
            check_fresh()
        with changing() as change:
            if old is None:
                idle_policies.add(change, policy)
            else:
                idle_policies.replace(change, policy, read_at=_number(read_at))
    except idle_policies.PolicyChanged:
        return _page(form, old, 409, "Someone has changed this policy meanwhile: open it again.")
    except NameTaken as error:
        return _page(form, old, 409, str(error))
    except (Unfit, idle_policies.TooManyPolicies) as error:
        return _page(form, old, 400, str(error))
    return redirect("/settings/policies", code=303)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _policy(policy_id: str, said: dict[str, str]) -> Policy:
    """Return the policy in the form. Raises Unfit."""
    try:
        after = float(said["minutes"]) * 60
    except ValueError:
        raise Unfit("after", f"{said['minutes']!r} is not a number of minutes.") from None
    pairs = [part.partition("=")[::2] for part in said["tags"].split()]
    tags = dict(pairs)
    if len(tags) < len(pairs):
        raise Unfit("tags", "A tag is named twice; write one pattern for each tag.")
    if not all(name and pattern for name, pattern in tags.items()):
        raise Unfit("tags", "Write tags as name=value, separated by spaces.")
    return Policy(
        policy_id,
        said["name"],
        after,
        "shutdown" if said["action"] == "shutdown" else "notice",
        users=tuple(said["users"].split()),
        tags=tags,
        begins=said["begins"] or None,
        ends=said["ends"] or None,
        time_zone=said["time_zone"] or "UTC",
        enabled=bool(said["enabled"]),
    )


def _page(
    said: Item, policy_id: str | None = None, status: int = 200, wrong: str | None = None
) -> tuple[str, int]:
    with reading() as scope:
        policies = list_policies(scope)
    page = render_template(
        "policies.html",
        policies=policies,
        said=said,
        policy_id=policy_id,
        wrong=wrong,
        may_change=may_act(g.session, "owner"),
    )
    return page, status


def _one(policy_id: str) -> Item:
    with reading() as scope:
        return one_policy(scope, policy_id)
