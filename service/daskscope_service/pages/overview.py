"""The overview of a workspace: the first page, which answers five questions."""

from __future__ import annotations

import time

from flask import Blueprint, render_template
from flask.typing import ResponseReturnValue

from daskscope_service.accounts.access import signed_in
from daskscope_service.accounts.first_run import first_run, has_clusters
from daskscope_service.costs.day_bars import columns
from daskscope_service.costs.spending import by_period, total
from daskscope_service.costs.usage import list_usage
from daskscope_service.db.scope import Selection, reading
from daskscope_service.insight.attention import concerns
from daskscope_service.insight.findings.rules import RULES
from daskscope_service.insight.news import news
from daskscope_service.insight.repetition import joined
from daskscope_service.insight.time import all_together
from daskscope_service.queries.causes import causes_by_cost
from daskscope_service.queries.computations import list_computations
from daskscope_service.queries.failures import list_exceptions
from daskscope_service.queries.overview import (
    MOST_NOTICES,
    clusters_to_look_at,
    count_incidents,
    running_clusters,
    seen_before,
)
from daskscope_service.web.parameters import refuse_unknown

blueprint = Blueprint("overview", __name__)

#: How many rows each part shows. The list to which it links shows all.
MOST_SHOWN = 6
#: How many of the last computations it considers: those that look alike are one row.
MOST_COMPUTATIONS = 36
#: How many groups of equal exceptions the page considers.
MOST_GROUPS = 50

_DAY = 86400
_WEEK = 7


@blueprint.get("/")
@signed_in
def overview() -> ResponseReturnValue:
    """Show what runs, what failed, what it cost, what took the time, and where to look next."""
    refuse_unknown()
    now = time.time()
    yesterday = now - _DAY
    first = int(now // _DAY) - 2 * _WEEK + 1
    with reading() as scope:
        if not has_clusters(scope):
            return first_run()
        running, newest = running_clusters(scope, MOST_SHOWN)
        groups = list_exceptions(scope, Selection(since=yesterday, limit=MOST_GROUPS)).items
        fingerprints = [group.fingerprint for group in groups]
        known = seen_before(scope, fingerprints, yesterday)
        counts, accidents = count_incidents(scope, yesterday, fingerprints)
        used = by_period(list_usage(scope, first, 2 * _WEEK, 1), 2 * _WEEK)
        last = list_computations(scope, Selection(limit=MOST_COMPUTATIONS))
        looks = concerns(clusters_to_look_at(scope), now)
        costs = causes_by_cost(scope, now - _WEEK * _DAY)
    silent = sum(one.reasons[0].word == "silent" for one in looks)
    parts = joined(last.items)[:MOST_SHOWN]
    shown = [one for part in parts for one in part]
    week, before = total(used[_WEEK:]), total(used[:_WEEK])
    return render_template(
        "overview.html",
        now=now,
        every=10,
        most=MOST_SHOWN,
        running=running,
        newest=newest,
        yesterday=yesterday,
        news=news(groups, known, yesterday, counts | {"cluster silent": silent}),
        accidents=accidents[:MOST_SHOWN],
        left_out=max(len(groups) - MOST_SHOWN, 0) + max(len(accidents) - MOST_SHOWN, 0),
        cut=len(groups) == MOST_GROUPS or sum(counts.values()) > MOST_NOTICES,
        week=week,
        before=before,
        columns=columns(used, int(now // _DAY)),
        computations=[
            (part, sum(one.duration for one in part), all_together(part)) for part in parts
        ],
        # Whether the last part may go on with computations that were not read.
        goes_on=last.next is not None and len(shown) == len(last.items),
        seconds=all_together(shown),
        looks=looks,
        costs=costs,
        meanings={rule.name: rule.meaning for rule in RULES},
    )
