"""Answers heartbeats before Flask sees them: every cluster sends one every few seconds.

Flask, a thread, and what is done for requests of any kind take longer than all the work for a
heartbeat. So a valid heartbeat is answered on the event loop. Everything else goes on to Flask,
with the body: a token that was not used lately or may not send, a large or invalid heartbeat, and
unexpected errors. A part of the work may then be done twice, which is harmless: a heartbeat may
also arrive twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from daskscope_service.accounts.token_cache import TokenCache
from daskscope_service.accounts.tokens import Token
from daskscope_service.ingest.heartbeat_api import PATH, Answers
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.web import problems, request_log
from daskscope_service.web.body import ENCODINGS
from daskscope_service.web.problems import Problem
from daskscope_service.web.trusted_proxy import Forwarded

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

#: Problems of the service, not of the heartbeat: answered without looking up its token.
_OWN_TROUBLE = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})

#: A status, headers and a body.
Answer = tuple[int, list[tuple[str, str]], bytes]


class HeartbeatFastPath:
    """Answers on an event loop the heartbeats that it can. ``headers``: added to each answer."""

    def __init__(
        self,
        forwarded: Forwarded,
        memory: TokenCache,
        answers: Answers,
        instruments: ServiceMetrics,
        headers: Sequence[tuple[str, str]],
    ) -> None:
        self._forwarded = forwarded
        self._memory = memory
        self._answers = answers
        self._instruments = instruments
        self._headers = headers

    async def answer(self, environ: WSGIEnvironment, body: bytes) -> Answer | None:
        """Return the answer to a request that has arrived; None if Flask has to answer it."""
        began = time.perf_counter()
        token = self._sender(environ)
        if token is None:
            return None
        environ = environ.copy()  # Flask applies the headers of proxies itself
        self._forwarded.apply(environ)
        request_id = request_log.id_of(environ.get("HTTP_X_REQUEST_ID", ""))
        headers: list[tuple[str, str]] = []
        try:
            status, kind = HTTPStatus.OK, "application/json"
            encoding = environ.get("HTTP_CONTENT_ENCODING", "")
            content = await self._answers.soon(body, encoding, token.workspace, token.id)
            if content is None:
                return None
        except Problem as error:
            if error.status not in _OWN_TROUBLE:
                # Flask reports what is wrong, but checks the token first: without a valid one,
                # nothing else may be revealed.
                return None
            status, kind = HTTPStatus(error.status), problems.CONTENT_TYPE
            headers += error.headers.items()
            content = problems.document(error, request_id)
        except Exception:  # whatever it is: Flask tries again, and reports it
            return None
        headers += [
            ("Content-Type", kind),
            ("Content-Length", str(len(content))),
            (request_log.HEADER, request_id),
            *self._headers,
        ]
        request_log.log_request(
            self._instruments,
            PATH,
            "POST",
            status,
            time.perf_counter() - began,
            client=environ.get("REMOTE_ADDR"),
            token=token.id,
            request_id=request_id,
        )
        return status, headers, content

    def _sender(self, environ: WSGIEnvironment) -> Token | None:
        """Return the token of a heartbeat, if it may send data and was used a moment ago."""
        if environ["PATH_INFO"] != PATH or environ["REQUEST_METHOD"] != "POST":
            return None
        scheme, _, text = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme != "Bearer" or environ.get("HTTP_CONTENT_ENCODING", "") not in ENCODINGS:
            return None
        now = time.time()
        token = self._memory.recall(text, now)
        if token is None or token.state(now) != "active" or "ingest" not in token.scopes:
            return None
        return token
