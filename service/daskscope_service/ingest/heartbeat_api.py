"""``POST /api/v1/heartbeats``: receives the heartbeats of clusters."""

from __future__ import annotations

import asyncio
import contextlib
import time

import msgspec
from flask import Blueprint, Response, g, request

from daskscope.protocol import MAX_BEAT_BYTES, Reply
from daskscope_service.accounts.access import require_recently
from daskscope_service.ingest.beat_schema import BEAT
from daskscope_service.ingest.correction import Corrected
from daskscope_service.ingest.decoding_turns import DecodingTurns
from daskscope_service.ingest.heartbeat import SMALL_BYTES, BeatStore, TakesLong, parse
from daskscope_service.ingest.quotas import Quotas
from daskscope_service.ingest.writer import Writer
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.services import services
from daskscope_service.shutdowns.command_queue import CommandQueue
from daskscope_service.web.body import encoding_of, receive, unpacked, unpacked_small
from daskscope_service.web.operation import JSON, Operation, describes

PATH = "/api/v1/heartbeats"

#: Heartbeats with more bytes are stored one at a time: twelve with 19,000 small rows each, 900 kB,
#: made all others wait for four seconds.
_FEW_BYTES = 256 * 1024

blueprint = Blueprint("heartbeats", __name__)

_to_json = msgspec.json.Encoder().encode  # as the protocol's encode(), in a tenth of the time


class Answers:
    """Stores heartbeats, and makes the answers to them. ``url``: where users reach the service.

    ``turns``: for heartbeats that take long to decode.
    """

    def __init__(
        self,
        writer: Writer,
        beats: BeatStore,
        outbox: CommandQueue,
        quotas: Quotas,
        instruments: ServiceMetrics,
        url: str,
        turns: DecodingTurns,
    ) -> None:
        self._writer = writer
        self._beats = beats
        self._outbox = outbox
        self._quotas = quotas
        self._instruments = instruments
        self._url = url
        self._turns = turns

    def to(self, body: bytes, encoding: str, workspace: str, token: str) -> bytes:
        """Store a heartbeat permanently, and return the service's reply to its cluster as JSON.

        ``encoding`` is one of :data:`~daskscope_service.ingest.body.ENCODINGS`. The heartbeat came
        with the ``token`` of this id, of the ``workspace``. Raises Problem, or what the writer
        raises.
        """
        self._quotas.check(workspace)
        text = unpacked(body, encoding, MAX_BEAT_BYTES)
        now = time.time()
        if len(text) <= _FEW_BYTES:
            with contextlib.suppress(TakesLong):
                # The writer decodes small heartbeats; larger ones are decoded before they take a
                # place.
                parsed = None if len(text) <= SMALL_BYTES else parse(text, now, at_once=True)
                return self._stored(text, workspace, now, token, parsed)
        with self._turns.turn(workspace):
            return self._stored(text, workspace, now, token, parse(text, now))

    def _stored(
        self, text: bytes, workspace: str, now: float, token: str, parsed: Corrected | None
    ) -> bytes:
        with self._writer.place():
            stored, code_wanted = self._beats.keep(text, workspace, now, token, parsed)
        self._quotas.note(workspace, len(text))
        return self._reply(stored, code_wanted, workspace, now)

    async def soon(self, body: bytes, encoding: str, workspace: str, token: str) -> bytes | None:
        """Do as :meth:`to`, on an event loop; return None if that would take too long."""
        self._quotas.check(workspace)
        text = unpacked_small(body, encoding, SMALL_BYTES)
        if text is None:
            return None
        try:
            async with self._writer.place_soon():
                now = time.time()
                stored, code_wanted = await self._beats.keep_soon(text, workspace, now, token)
        except TakesLong:
            return None
        self._quotas.note(workspace, len(text))
        if self._outbox.knows(workspace):
            return self._reply(stored, code_wanted, workspace, now)
        # This queries the database, which may take long.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self._reply, stored, code_wanted, workspace, now)

    def _reply(
        self,
        stored: Corrected,
        code_wanted: tuple[str, ...],
        workspace: str,
        now: float,
    ) -> bytes:
        beat = stored.beat
        self._instruments.beats.inc()
        if stored.rows_left_out:
            self._instruments.rows_left_out.inc(stored.rows_left_out)
        # After the last heartbeat, there is no one to act on commands.
        over = beat.phase == "stop"
        reply = Reply(
            server_time=now,
            interval=beat.cluster.interval,
            code_wanted=code_wanted,
            url=f"{self._url}/clusters/{beat.cluster.id}",
            commands=() if over else self._outbox.take(workspace, beat.cluster.id),
            corrections=stored.reported,
            rows_left_out=stored.rows_left_out,
        )
        return _to_json(reply)


@blueprint.post(PATH)
@require_recently("ingest")
@describes(Operation({JSON: Reply}, body={JSON: BEAT}, problems=(429,)))
def post_heartbeat() -> Response:
    """Store a heartbeat, then answer with the service's requests to the cluster."""
    answers = services().heartbeats
    body = receive(request, MAX_BEAT_BYTES)
    reply = answers.to(body, encoding_of(request), g.workspace, g.token_id)
    return Response(reply, content_type=JSON)
