"""Answers heartbeats before Flask sees them: every cluster sends one every few seconds.

Flask, and all that is done for a request of any kind, take as long as everything that is done for a
beat. So what is right is answered here, and a full queue is told here. Everything else goes on to
Flask, which looks at the whole of it and says what is wrong: a token that was not shown lately, a
large body, a beat that cannot be kept. That a part of it was done here before does no harm, as no
beat does that comes twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING

from daskscope_service import problems, request_log
from daskscope_service.accounts.tokens import Memory, Token
from daskscope_service.api.heartbeats import PATH, Answers
from daskscope_service.ingest.body import ENCODINGS, read
from daskscope_service.instruments import Instruments
from daskscope_service.problems import Problem

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

#: Bytes of the largest body that is taken here.
_MOST = 64 * 1024

#: What is wrong with the service, not with the beat or its token: Flask would say the same.
_OWN_TROUBLE = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class AtOnce:
    """WSGI middleware before ``app``, inside what believes proxies."""

    def __init__(
        self, app: WSGIApplication, memory: Memory, answers: Answers, instruments: Instruments
    ) -> None:
        self._app = app
        self._memory = memory
        self._answers = answers
        self._instruments = instruments

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        began = time.perf_counter()
        token = self._sender(environ)
        body = None if token is None else _receive(environ)
        if token is None or body is None:
            return self._app(environ, start_response)
        request_id = request_log.id_of(environ.get("HTTP_X_REQUEST_ID", ""))
        headers: list[tuple[str, str]] = []
        try:
            status, kind = HTTPStatus.OK, "application/json"
            encoding = environ.get("HTTP_CONTENT_ENCODING", "")
            answer = self._answers.to(body, encoding, token.workspace, token.id)
        except Exception as error:  # whatever it is: Flask tries again, and tells of it
            if not isinstance(error, Problem) or error.status not in _OWN_TROUBLE:
                environ["wsgi.input"] = BytesIO(body)
                return self._app(environ, start_response)
            status, kind = HTTPStatus(error.status), problems.CONTENT_TYPE
            headers += error.headers.items()
            answer = problems.document(error, request_id)
        headers += [
            ("Content-Type", kind),
            ("Content-Length", str(len(answer))),
            (request_log.HEADER, request_id),
        ]
        request_log.tell(
            self._instruments,
            PATH,
            "POST",
            status,
            time.perf_counter() - began,
            client=environ.get("REMOTE_ADDR"),
            token=token.id,
            request_id=request_id,
        )
        start_response(f"{status} {status.phrase}", headers)
        return [answer]

    def _sender(self, environ: WSGIEnvironment) -> Token | None:
        """Return the token of a heartbeat, if it may send one and was shown a moment ago."""
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


def _receive(environ: WSGIEnvironment) -> bytes | None:
    """Return the body; None if it is large, or of a length that is not told."""
    length = environ.get("CONTENT_LENGTH", "")
    if not (length.isascii() and length.isdigit()) or int(length) > _MOST:
        return None
    return read(environ["wsgi.input"], int(length), int(length))
