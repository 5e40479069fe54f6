"""The room before the application: receives requests, and gives it those that are complete.

The application is a WSGI one, so each request in it takes one of a few threads. Nobody may hold
one by sending slowly, or by reading slowly. So a request is received here, on an event loop, and an
answer leaves from here; only between the two it takes a thread. Whether the service lives is
answered here as well, and whether it is ready, by threads of their own: a busy service is not a
dead one.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from daskscope_service.ingest.fast_path import Answer
from daskscope_service.periodic import PeriodicTask
from daskscope_service.server.connections import Connections
from daskscope_service.server.reception import SMALL, GoneError, Reception, Refusal, drain
from daskscope_service.web import problems
from daskscope_service.web.problems import Problem

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

#: Requests that are here at a time, those that wait for a thread included.
_MOST_REQUESTS = 2000

#: Those of one address whose bodies have not arrived yet. It is a proxy's address, too.
_MOST_OF_ONE = _MOST_REQUESTS // 2

#: Where no body is expected, and every answer is wanted at once.
_ALIVE, _READY = "/healthz", "/readyz"


class Front:
    """An RSGI application before the WSGI application ``app``.

    Parameters
    ----------
    threads
        Requests that ``app`` works on at a time.
    limits
        Bytes of the largest body, by path; of other paths it is ``SMALL``.
    may_send
        Tells whether a request of this ``Authorization`` may send a large body. It may ask the
        database.
    at_once
        Answers a request with a small body on the event loop, or returns None.
    connections
        Learns which connections carry a request, and closes others in its rounds.
    """

    def __init__(
        self,
        app: WSGIApplication,
        *,
        threads: int,
        limits: Mapping[str, int],
        may_send: Callable[[str], bool],
        at_once: Callable[[WSGIEnvironment, bytes], Awaitable[Answer | None]],
        connections: Connections,
    ) -> None:
        self._app = app
        self._at_once = at_once
        self._limits = limits
        self._may_send = may_send
        self._reception = Reception()
        self._threads = ThreadPoolExecutor(threads, "daskscope-request")
        self._aside = ThreadPoolExecutor(2, "daskscope-ready")
        self._connections = connections
        self._closing = PeriodicTask("connections", connections.round, connections.interval)
        self._here = 0
        self._sending: Counter[str] = Counter()
        self._environ: WSGIEnvironment = {
            "SCRIPT_NAME": "",
            "wsgi.errors": sys.stderr,
            "wsgi.input_terminated": True,
            "wsgi.multiprocess": False,
            "wsgi.multithread": True,
            "wsgi.run_once": False,
            "wsgi.version": (1, 0),
        }

    def close(self) -> None:
        """Wait for the requests that are being answered, and end the threads."""
        self._closing.close()
        self._threads.shutdown()
        self._aside.shutdown()

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close: the server calls this once no more requests come."""
        self.close()

    async def __rsgi__(self, scope: Any, request: Any) -> None:
        """Answer a request."""
        if self._here >= _MOST_REQUESTS and scope.path != _ALIVE:
            request.response_bytes(*_BUSY)
            return
        self._here += 1
        self._connections.begin(scope.client)
        try:
            await self._handle(scope, request)
        except GoneError:
            return
        finally:
            self._connections.end(scope.client)
            self._here -= 1

    async def _handle(self, scope: Any, request: Any) -> None:
        environ = self._environ | environ_of(scope)
        path = environ["PATH_INFO"]
        if path == _ALIVE:
            environ["wsgi.input"] = io.BytesIO()
            request.response_bytes(*_call(self._app, environ))
            return
        threads = self._aside if path == _READY else self._threads
        length, body = _length_of(environ), b""
        if length == 0:
            environ["wsgi.input"] = io.BytesIO()
            await _run(threads, self._app, environ, request)
            return
        try:
            limit = await self._limit(path, environ, length)
            body = await self._receive(environ, request, length, limit)
        except Problem as problem:
            environ["wsgi.input"] = Refusal(problem)
            await _run(threads, self._app, environ, request, last=scope.http_version != "2")
            return
        if length is not None and length <= SMALL:
            answer = await self._at_once(environ, body)
            if answer is not None:
                request.response_bytes(*answer)
                return
        environ["wsgi.input"] = io.BytesIO(body)
        if length is None:
            environ["CONTENT_LENGTH"] = str(len(body))
        try:
            await _run(threads, self._app, environ, request)
        finally:
            self._reception.give_back(body)

    async def _receive(
        self, environ: WSGIEnvironment, request: Any, length: int | None, limit: int
    ) -> bytes:
        """Receive a body, unless one address takes the places of all others."""
        address, path = environ["REMOTE_ADDR"], environ["PATH_INFO"]
        version = environ["SERVER_PROTOCOL"].removeprefix("HTTP/")
        if self._sending[address] >= _MOST_OF_ONE:
            raise _too_many_of_one()
        self._sending[address] += 1
        try:
            return await self._reception.receive(request, length, limit, version)
        except Problem:
            if "HTTP_EXPECT" not in environ:  # else it sends nothing until it is asked to
                await drain(request, self._limits.get(path, SMALL))
            raise
        finally:
            self._sending[address] -= 1
            if not self._sending[address]:
                del self._sending[address]

    async def _limit(self, path: str, environ: WSGIEnvironment, length: int | None) -> int:
        """Return how many bytes of a body are received."""
        limit = self._limits.get(path, SMALL)
        if limit > SMALL and (length is None or length > SMALL):
            shown = environ.get("HTTP_AUTHORIZATION", "")
            loop = asyncio.get_running_loop()
            if not await loop.run_in_executor(self._threads, self._may_send, shown):
                return SMALL
        return limit


def environ_of(scope: Any) -> WSGIEnvironment:
    """Return what WSGI says of a request, but for its body."""
    headers: dict[str, str] = {}
    for name, value in scope.headers.items():
        if "_" in name:  # it would be taken for another one
            continue
        key = "HTTP_" + name.upper().replace("-", "_")
        if key in headers:
            # Cookies cannot be joined by commas.
            value = f"{headers[key]}{';' if key == 'HTTP_COOKIE' else ','}{value}"
        headers[key] = value
    environ: WSGIEnvironment = headers
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        value = headers.pop(f"HTTP_{name}", None)
        if value is not None:
            environ[name] = value
    environ.setdefault("HTTP_HOST", scope.authority or "")
    server, _, port = scope.server.rpartition(":")
    environ["SERVER_NAME"], environ["SERVER_PORT"] = server.strip("[]"), port
    environ["REMOTE_ADDR"] = scope.client.rpartition(":")[0].strip("[]")
    environ["SERVER_PROTOCOL"] = f"HTTP/{scope.http_version}"
    environ["REQUEST_METHOD"] = scope.method
    environ["PATH_INFO"] = scope.path.encode().decode("latin-1")
    environ["QUERY_STRING"] = scope.query_string
    environ["wsgi.url_scheme"] = scope.scheme
    return environ


def _length_of(environ: WSGIEnvironment) -> int | None:
    """Return the bytes of the body; None if it is not said how many there are."""
    text = environ.get("CONTENT_LENGTH")
    if text is not None:
        return int(text)  # the server refuses what is no number
    if environ["SERVER_PROTOCOL"] != "HTTP/2" and "HTTP_TRANSFER_ENCODING" not in environ:
        return 0
    return None


async def _run(
    threads: Executor,
    app: WSGIApplication,
    environ: WSGIEnvironment,
    request: Any,
    *,
    last: bool = False,
) -> None:
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(threads, _respond, app, environ, request, last)


def _respond(app: WSGIApplication, environ: WSGIEnvironment, request: Any, last: bool) -> None:
    status, headers, content = _call(app, environ)
    if last:
        headers = [*headers, ("Connection", "close")]
    request.response_bytes(status, headers, content)


def _call(app: WSGIApplication, environ: WSGIEnvironment) -> Answer:
    began: list[Any] = []

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        began[:] = [int(status[:3]), headers]
        return None

    answer = app(environ, start)
    try:
        # An answer is made whole: who reads it slowly holds nothing but its bytes.
        content = b"".join(answer)
    finally:
        close = getattr(answer, "close", None)
        if close is not None:
            close()
    return began[0], began[1], content


def _too_many_of_one() -> Problem:
    return Problem(
        503,
        f"{_MOST_OF_ONE} requests of your address have not arrived as a whole yet; send this "
        "again.",
        headers={"Retry-After": "5"},
    )


_BUSY = (
    503,
    [("Content-Type", problems.CONTENT_TYPE), ("Retry-After", "5")],
    problems.document(
        Problem(503, "More requests arrive than the service can answer; send this again."), None
    ),
)
