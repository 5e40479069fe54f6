"""``POST /api/v1/heartbeats``: where clusters report."""

from __future__ import annotations

import time

import msgspec
from flask import Blueprint, Response, current_app, g, request

from daskscope.protocol import MAX_BEAT_BYTES, Reply
from daskscope_service.accounts.access import require_recently
from daskscope_service.api.operation import JSON, Operation, describes
from daskscope_service.commands.outbox import Outbox
from daskscope_service.ingest.beat_schema import BEAT
from daskscope_service.ingest.body import receive, unpacked
from daskscope_service.ingest.heartbeat import BeatStore, parse
from daskscope_service.ingest.writer import Writer
from daskscope_service.instruments import Instruments
from daskscope_service.problems import Problem

blueprint = Blueprint("heartbeats", __name__, url_prefix="/api/v1")

_to_json = msgspec.json.Encoder().encode  # as the protocol's encode(), in a tenth of the time


@blueprint.post("/heartbeats")
@require_recently("ingest")
@describes(Operation({JSON: Reply}, body={JSON: BEAT}, problems=(429,)))
def post_heartbeat() -> Response:
    """Store a beat for good, then answer with what the service wants of the cluster."""
    writer: Writer = current_app.extensions["daskscope.writer"]
    beats: BeatStore = current_app.extensions["daskscope.beats"]
    body = receive(request, MAX_BEAT_BYTES)
    with writer.place(), unpacked(request, body, MAX_BEAT_BYTES) as text:
        beat = parse(text)
        meant = beat.cluster.workspace
        if meant is not None and meant != g.workspace:
            raise Problem(
                403,
                f"The cluster is configured for the workspace {meant!r}, but its token is of the "
                f"workspace {g.workspace!r}. Use a token of {meant!r}, or leave out "
                "daskscope.workspace.",
                field="$.cluster.workspace",
            )
        now = time.time()
        code_wanted = beats.keep(beat, g.workspace, now, g.token_id)
    instruments: Instruments = current_app.extensions["daskscope.instruments"]
    instruments.beats.inc()
    outbox: Outbox = current_app.extensions["daskscope.outbox"]
    reply = Reply(
        server_time=now,
        interval=beat.cluster.interval,
        code_wanted=code_wanted,
        url=f"{current_app.config['SETTINGS'].url}/clusters/{beat.cluster.id}",
        # No one is left to obey after the last beat.
        commands=() if beat.phase == "stop" else outbox.take(g.workspace, beat.cluster.id),
    )
    return Response(_to_json(reply), content_type="application/json")
