"""Task streams as files for Perfetto, and for Chrome's own viewer of traces."""

from __future__ import annotations

import json
from dataclasses import replace

from flask import Blueprint, Response

from daskscope_service.accounts.access import require
from daskscope_service.db.scope import Item, Selection, reading
from daskscope_service.insight.task_stream import names_as_entries
from daskscope_service.insight.trace_events import trace_events
from daskscope_service.queries.cluster_filter import cluster_id_called
from daskscope_service.queries.clusters import one_cluster
from daskscope_service.queries.task_streams import list_task_streams
from daskscope_service.web.downloads import attach, lead_on
from daskscope_service.web.operation import JSON, Operation, describes
from daskscope_service.web.parameters import CURSOR, SINCE, UNTIL, part, period, refuse_unknown

blueprint = Blueprint("trace_events", __name__, url_prefix="/api/v1")

#: After so many runs or merged runs, a file has no more: they take some 15 MB.
MOST_EVENTS = 100_000
#: How many reads of task streams a file takes at most, so that nobody waits for long.
_MOST_READS = 50


@blueprint.get("/clusters/<cluster_id>/stream/trace")
@require("read")
@describes(Operation({JSON: None}, (SINCE, UNTIL, CURSOR), problems=(400, 409)))
def trace(cluster_id: str) -> Response:
    """Answer with a cluster's task stream as a file of trace events, to open in Perfetto.

    Each worker is a process. Its threads are lanes in which runs do not overlap, because which of
    its threads a run was in is not known. Merged runs have lanes of their own. If there are more
    than 100,000 runs, the file has the newest: then `more` in its `otherData` is true, and the
    header `Link` has the address of a file of earlier ones.
    """
    refuse_unknown("since", "until", "cursor")
    since, until = period()
    _, after = part()
    streams: list[Item] = []
    with reading() as scope:
        cluster = one_cluster(scope, cluster_id_called(scope, cluster_id))
        which = Selection(since=since, until=until, cluster=cluster.id, after=after)
        events = 0
        for _ in range(_MOST_READS):
            page = list_task_streams(scope, which)
            streams += page.items
            events += sum(len(one["count"]) + names_as_entries(one) for one in page.items)
            which = replace(which, after=page.next)
            if page.next is None or events >= MOST_EVENTS:
                break
    about = {"cluster": cluster.id, "more": which.after is not None}
    lines = ",\n".join(map(_compact, trace_events(streams)))
    file = f'{{"otherData":{_compact(about)},"traceEvents":[\n{lines}\n]}}\n'
    response = Response(file.encode(), content_type=JSON)
    response.headers["Cache-Control"] = "private, no-cache"
    if which.after is not None:
        lead_on(response, which.after)
    return attach(response, "task-stream", cluster.name, cluster.id, ending="trace.json")


def _compact(value: Item) -> str:
    return json.dumps(value, separators=(",", ":"))
