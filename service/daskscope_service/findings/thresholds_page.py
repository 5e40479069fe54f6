"""Settings, thresholds: the numbers from which on something is a finding, and their sources."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Blueprint, g, render_template

from daskscope_service.accounts.access import signed_in
from daskscope_service.insight.findings.headline import threshold_in_words
from daskscope_service.insight.findings.thresholds import TABLE
from daskscope_service.queries.thresholds import own_thresholds
from daskscope_service.services import services
from daskscope_service.web.parameters import refuse_unknown

blueprint = Blueprint("thresholds_page", __name__)


@dataclass(frozen=True, slots=True)
class ThresholdRow:
    """A threshold in words. ``own`` is the workspace's value, None where the default applies."""

    name: str
    default: str
    own: str | None
    source: str


@blueprint.get("/settings/thresholds")
@signed_in
def thresholds() -> str:
    """Show the thresholds in force, those that the workspace has set first."""
    refuse_unknown()
    with services().engine.connect() as connection:
        own = own_thresholds(connection, g.workspace)
    rows = [
        ThresholdRow(
            one.name,
            threshold_in_words(one.value, one.unit),
            threshold_in_words(own[one.name], one.unit) if one.name in own else None,
            one.source,
        )
        for one in sorted(TABLE, key=lambda one: one.name not in own)
    ]
    return render_template("thresholds.html", rows=rows, own=len(own))
