"""The page of the notifications: the targets that receive them, and the monthly budgets."""

from __future__ import annotations

import time

from flask import Blueprint, current_app, g, redirect, render_template, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import acting_as, changing, check_fresh, may_act, signed_in
from daskscope_service.costs.budgets import (
    Budget,
    TooManyBudgets,
    list_budgets,
    remove_budget,
    set_budget,
)
from daskscope_service.costs.forecasts import in_words, spent
from daskscope_service.notifications import targets
from daskscope_service.notifications.addresses import UnfitAddress, check
from daskscope_service.notifications.sending import Busy, NotSent
from daskscope_service.notifications.wording import KINDS
from daskscope_service.services import services
from daskscope_service.settings import Settings
from daskscope_service.web.fields import NameTaken, Unfit
from daskscope_service.web.forms import said

blueprint = Blueprint("notifications", __name__)


@blueprint.get("/settings/notifications")
@signed_in
def notifications() -> ResponseReturnValue:
    """Show the targets of the workspace, and to owners a form for another one."""
    return _page()


@blueprint.post("/settings/notifications")
@acting_as("owner")
def add() -> ResponseReturnValue:
    """Store a target."""
    check_fresh()
    settings: Settings = current_app.config["SETTINGS"]
    kinds = [kind for kind in KINDS if kind in request.form.getlist("kinds")]
    try:
        address = check(said("address"), settings.notify_networks)
        with changing() as change:
            targets.add(change, name=said("name"), address=address, kinds=kinds)
    except (Unfit, UnfitAddress, targets.TooManyTargets) as error:
        return _page(400, str(error))
    except NameTaken as error:
        return _page(409, str(error))
    return redirect("/settings/notifications", code=303)


@blueprint.post("/settings/notifications/<target_id>/remove")
@acting_as("owner")
def remove(target_id: str) -> ResponseReturnValue:
    """Remove a target."""
    with changing() as change:
        targets.remove(change, target_id)
    return redirect("/settings/notifications", code=303)


@blueprint.post("/settings/notifications/<target_id>/test")
@acting_as("owner")
def test(target_id: str) -> ResponseReturnValue:
    """Send a test message to a target at once."""
    trials = services().trials
    with services().engine.connect() as connection:
        address = targets.address_of(connection, g.workspace, target_id)
    try:
        trials.run(g.workspace, address, g.actor)
    except NotSent as error:
        return _page(wrong=f"The test was not sent: {error}.")
    except Busy:
        return _page(429, "Another test is running. Try again when it has finished.")
    return _page(done="The test was sent.")


@blueprint.post("/settings/notifications/budget")
@acting_as("owner")
def change_budget() -> ResponseReturnValue:
    """Set the budget of all clusters, of a user or of a tag; an empty amount removes it."""
    user, tag, amount = said("user"), said("tag"), said("amount")
    try:
        with changing() as change:
            if amount:
                set_budget(change, Budget(float(amount), said("currency").upper(), user, tag))
            else:
                remove_budget(change, user, tag)
    except TooManyBudgets as error:
        return _page(409, str(error))
    except Unfit as error:
        return _page(400, str(error))
    except ValueError:
        return _page(400, f"{amount!r} is not an amount of money.")
    return redirect("/settings/notifications", code=303)


def _page(status: int = 200, wrong: str | None = None, done: str | None = None) -> tuple[str, int]:
    with services().engine.connect() as connection:
        listed = targets.list_targets(connection, g.workspace)
        now = time.time()
        budgets = [
            (one, in_words(one, spent(connection, g.workspace, one, now)))
            for one in list_budgets(connection, g.workspace)
        ]
    page = render_template(
        "notifications.html",
        now=now,
        targets=listed,
        budgets=budgets,
        kinds=KINDS,
        wrong=wrong,
        done=done,
        may_change=may_act(g.session, "owner"),
    )
    return page, status
