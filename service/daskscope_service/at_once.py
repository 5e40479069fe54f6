"""Answers heartbeats before Flask sees them: every cluster sends one every few seconds.

Flask, and all that is done for a request of any kind, take as long as everything that is done for a
beat. So what its sender is to be told is told here, be the beat right or wrong. All else goes on to
Flask, with the body: a token that was not shown lately or may not send, a body that is large or of
unknown length, and what fails for a reason that only the log should have. That a part of it was
done here before does no harm, as no beat does that comes twice.
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

#: What is wrong with the service, not with the beat: told without looking its token up.
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
        except Problem as error:
            if error.status not in _OWN_TROUBLE and not self._memory.in_force(token):
                # Flask says what is wrong with the token: nothing else is its owner's business.
                return self._by_flask(environ, start_response, body)
            status, kind = HTTPStatus(error.status), problems.CONTENT_TYPE
            headers += error.headers.items()
            answer = problems.document(error, request_id)
        except Exception:  # whatever it is: Flask tries again, and tells of it
            return self._by_flask(environ, start_response, body)
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

    def _by_flask(
        self, environ: WSGIEnvironment, start_response: StartResponse, body: bytes
    ) -> Iterable[bytes]:
        environ["wsgi.input"] = BytesIO(body)  # it was read here
        return self._app(environ, start_response)

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
    try:
        return read(environ["wsgi.input"], int(length), int(length))
    except Problem:  # it was not received: Flask says why
        return None
