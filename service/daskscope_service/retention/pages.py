"""Settings, retention: how long each kind of data is kept, and which data is removed next."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from flask import Blueprint, current_app, g, redirect, render_template, request
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import acting_as, changing, check_fresh, may_act, signed_in
from daskscope_service.insight.wording import number, plural, size
from daskscope_service.retention import policy
from daskscope_service.retention.forecast import Forecast, forecast
from daskscope_service.retention.policy import KINDS, Periods, RetainedKind
from daskscope_service.retention.rounds import next_round
from daskscope_service.services import services
from daskscope_service.web.forms import said

blueprint = Blueprint("retention_page", __name__)

_EVER = "forever"
_DAYS = re.compile("[0-9]{1,9}")

#: The name of one row of a kind.
_ROWS = {
    "clusters": "cluster",
    "computations": "computation",
    "failures": "failure",
    "events": "event",
    "profiles": "profile",
    "spans": "span",
    "logs": "log record",
}


@dataclass(frozen=True, slots=True)
class KindRow:
    """A kind: the text of its field, what is ``wrong`` with it, and what is removed, in words."""

    kind: RetainedKind
    said: str
    kept: str
    own: bool
    goes: str
    wrong: str | None = None


@blueprint.get("/settings/retention")
@signed_in
def retention() -> ResponseReturnValue:
    """Show how long each kind of data is kept, and which data is removed next."""
    own = policy.periods_set(services().engine, g.workspace)
    return _page({kind: _EVER if days is None else str(days) for kind, days in own.items()})


@blueprint.post("/settings/retention")
@acting_as("owner")
def change() -> ResponseReturnValue:
    """Store the form; ask for confirmation if it removes data that would have stayed."""
    check_fresh()
    engine = services().engine
    fields = {kind.name: said(kind.name) for kind in KINDS}
    own: dict[str, int | None] = {}
    wrong: dict[str, str] = {}
    for kind, text in fields.items():
        if text.lower() == _EVER:
            own[kind] = None
        elif _DAYS.fullmatch(text) and 1 <= int(text) <= policy.MOST_DAYS:
            own[kind] = int(text)
        elif text:
            wrong[kind] = (
                f"Not a number of days: write 1 to {policy.MOST_DAYS:,}, forever, or nothing "
                "for the default."
            )
    if not wrong:
        try:
            policy.check(own, policy.periods_set(engine, g.workspace))
        except policy.UnfitPolicy as error:
            wrong[error.kind] = f"{str(error)[0].upper()}{str(error)[1:]}."
    if wrong:
        return _page(fields, wrong=wrong)
    if not request.form.get("sure") and (lost := _lost(own)):
        return render_template("retention_sure.html", fields=fields, lost=lost)
    with changing() as change_made:
        policy.set_periods(change_made, own)
    return redirect("/settings/retention", code=303)


def _lost(own: Periods) -> list[str]:
    """Return in words what ``own`` would remove, but the present settings would not."""
    engine = services().engine
    now = policy.periods(engine, g.workspace)
    wanted = {kind.name: own.get(kind.name, kind.days) for kind in KINDS}
    shorter = {
        kind: days
        for kind, days in wanted.items()
        if days is not None and days < (now[kind] or policy.MOST_DAYS + 1)
    }
    with engine.connect() as connection:
        goes = forecast(connection, g.workspace, wanted, time.time())
    return [
        f"{amount(kind, goes[kind])}: older than {policy.in_words(days)}"
        for kind, days in shorter.items()
        if goes[kind].rows
    ]


def _page(fields: dict[str, str], wrong: dict[str, str] | None = None) -> tuple[str, int]:
    engine, now = services().engine, time.time()
    kept, own = policy.periods(engine, g.workspace), policy.periods_set(engine, g.workspace)
    next_at = next_round(engine, current_app.config["SETTINGS"].retention_interval, now)
    with engine.connect() as connection:
        goes = forecast(connection, g.workspace, kept, now if next_at is None else next_at)
    page = render_template(
        "retention.html",
        now=now,
        next_at=next_at,
        rows=[
            KindRow(
                kind,
                fields.get(kind.name, ""),
                policy.in_words(kept[kind.name]),
                kind.name in own,
                _goes(kind.name, kept[kind.name], goes[kind.name]),
                (wrong or {}).get(kind.name),
            )
            for kind in KINDS
        ],
        wrong=wrong,
        may_change=may_act(g.session, "owner"),
    )
    return page, 400 if wrong else 200


def _goes(kind: str, days: int | None, goes: Forecast) -> str:
    if days is None:
        return "Nothing is removed."
    if not goes.rows:
        return f"Nothing is older than {policy.in_words(days)}."
    return f"Older than {policy.in_words(days)}: {amount(kind, goes)}."


def amount(kind: str, goes: Forecast) -> str:
    """Return in words how much is removed: ``1,234 log records, about 1.2 MiB``."""
    more = "more than " if goes.more else ""
    about = f"about {size(goes.bytes)}" + (" or more" if goes.more else "")
    if kind == "clusters":
        return f"{more}{plural(goes.rows, 'cluster')}, with all their other data"
    if kind in _ROWS:
        return f"{more}{plural(goes.rows, _ROWS[kind])}, {about}"
    return f"{more or 'about '}{number(goes.rows)} points, {about}"
