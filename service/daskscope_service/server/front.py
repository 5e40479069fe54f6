"""Receives requests on an event loop, and passes complete ones to the application.

The application uses WSGI, so each request in it takes one of a few threads. No client may hold a
thread by sending slowly or reading slowly. So requests are received, and answers are sent, on an
event loop; a request takes a thread only in between. Addresses take turns for threads, so an
address that sends many requests does not delay others. ``/healthz`` is answered on the event loop,
and ``/readyz`` by threads of its own, so that a busy service does not look like a dead one.

A request whose client has gone still reaches the event loop, and clients can connect, request and
go at a high rate. So each request is first only counted, which takes little, and addresses take
turns for all else.
"""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from sqlalchemy.exc import DBAPIError

from daskscope_service.accounts.login_rate_limit import network
from daskscope_service.ingest.fast_path import Answer
from daskscope_service.periodic import PeriodicTask
from daskscope_service.server.connections import Connections
from daskscope_service.server.reception import SMALL, GoneError, Reception, Refusal, drain
from daskscope_service.server.refusals import Refusals
from daskscope_service.server.turns import Places, Turns
from daskscope_service.web.problems import Problem

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

#: How many requests may have come without having been looked at, and of how many of them the event
#: loop begins to work in one round: more would keep others waiting.
_MOST_COMING = 4000
_AT_A_TIME = 16

#: How many requests may be arriving, and how many may wait for a thread or have one.
_MOST_ARRIVING = 2000
_MOST_WAITING = 2000
#: How many requests may ask whether the service is ready: they have their own places, so that they
#: are not refused because of others.
_MOST_ASKING = 200

#: From this number of threads on, one address may not have all of them.
_MANY = 4

#: The most digits of a body's length.
_DIGITS = 18

#: Paths without a body, which are always answered soon.
_ALIVE, _READY = "/healthz", "/readyz"

#: Who takes turns: an address, or a network of IPv6, because one person has all of it.
_who = lru_cache(maxsize=4096)(network)


class Front:
    """An RSGI application before the WSGI application ``app``.

    Parameters
    ----------
    threads
        How many requests ``app`` works on at a time.
    limits
        Bytes of the largest body, by path; for other paths it is ``SMALL``.
    sender_of
        Returns the workspace for which a request with this ``Authorization`` may send a large
        body, or None. It may query the database.
    at_once
        Answers a request with a small body on the event loop, or returns None.
    refusals
        Answers requests that do not reach ``app``.
    connections
        Is called for the begin and end of each request, and closes other connections.
    """

    def __init__(
        self,
        app: WSGIApplication,
        *,
        threads: int,
        limits: Mapping[str, int],
        sender_of: Callable[[str], str | None],
        at_once: Callable[[WSGIEnvironment, bytes], Awaitable[Answer | None]],
        refusals: Refusals,
        connections: Connections,
    ) -> None:
        self._app = app
        self._at_once = at_once
        self._limits = limits
        self._sender_of = sender_of
        self._reception = Reception()
        self._threads = _Threads(threads, "daskscope-request")
        self._aside = _Threads(2, "daskscope-ready")
        self._refusals = refusals
        self._connections = connections
        self._closing = PeriodicTask("connections", connections.look, connections.interval)
        self._coming = Places(_MOST_COMING, "have not been looked at yet")
        self._entrance = Turns(_AT_A_TIME, _AT_A_TIME)
        self._arriving = Places(_MOST_ARRIVING, "have not arrived as a whole yet")
        self._waiting = Places(_MOST_WAITING, "wait for their answers")
        self._asking = Places(_MOST_ASKING, "wait to hear whether the service is ready")
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
        self._threads.close()
        self._aside.close()

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close: the server calls this once no more requests come."""
        self.close()

    async def __rsgi__(self, scope: Any, request: Any) -> None:
        """Answer a request."""
        self._connections.begin(scope.client)
        sent, began = 0, time.perf_counter()

        def refuse(problem: Problem) -> int:
            seconds = time.perf_counter() - began
            client = _address(scope.client)
            answer = self._refusals.answer(problem, scope.method, client, seconds)
            return _send(request, answer)

        try:
            await self._enter(scope.client)
            sent = await self._handle(scope, request)
        except Problem as problem:
            sent = refuse(problem)
        except GoneError:
            # Perhaps the client is still there, and has sent an invalid body.
            refuse(Problem(400, "The request's body broke off."))
        finally:
            self._connections.end(scope.client, sent)

    async def _enter(self, peer: str) -> None:
        """Wait for a turn on the event loop. Raises Problem (503) if too many wait."""
        who = _who(_address(peer))
        with self._coming.place(who):
            async with self._entrance.turn(who):
                await asyncio.sleep(0)  # the turn lasts one round of the loop

    async def _handle(self, scope: Any, request: Any) -> int:
        """Answer a request; return how many bytes the answer has."""
        environ = self._environ | environ_of(scope)
        path, who = environ["PATH_INFO"], _who(environ["REMOTE_ADDR"])
        if path == _ALIVE:
            environ["wsgi.input"] = io.BytesIO()
            return _send(request, _call(self._app, environ))
        threads, waiting = (
            (self._aside, self._asking) if path == _READY else (self._threads, self._waiting)
        )
        length, body = _length_of(environ), b""
        if length == 0:
            environ["wsgi.input"] = io.BytesIO()
            with waiting.place(who):
                return await threads.run(who, _respond, self._app, environ, request, False)
        try:
            with self._arriving.place(who):
                limit, sender = await self._limit(path, environ, length, who)
                body = await self._receive(environ, request, length, limit, sender)
                if length is not None and length <= SMALL:
                    answer = await self._at_once(environ, body)
                    if answer is not None:
                        return _send(request, answer)
        except Problem as problem:
            environ["wsgi.input"] = Refusal(problem)
            with waiting.place(who):
                return await threads.run(who, _respond, self._app, environ, request, True)
        environ["wsgi.input"] = io.BytesIO(body)
        if length is None:
            environ["CONTENT_LENGTH"] = str(len(body))
        try:
            with waiting.place(who):
                return await threads.run(who, _respond, self._app, environ, request, False)
        finally:
            self._reception.give_back(body, sender)

    async def _receive(
        self, environ: WSGIEnvironment, request: Any, length: int | None, limit: int, sender: str
    ) -> bytes:
        try:
            return await self._reception.receive(request, length, limit, sender)
        except Problem:
            if "HTTP_EXPECT" not in environ:  # else the client waits to be asked
                await drain(request, self._limits.get(environ["PATH_INFO"], SMALL))
            raise

    async def _limit(
        self, path: str, environ: WSGIEnvironment, length: int | None, who: str
    ) -> tuple[int, str]:
        """Return how many bytes of a body are accepted, and whose share of the room it takes."""
        limit = self._limits.get(path, SMALL)
        if limit > SMALL and (length is None or length > SMALL):
            shown = environ.get("HTTP_AUTHORIZATION", "")
            try:
                workspace = await self._threads.run(who, self._sender_of, shown)
            except DBAPIError:
                raise Problem(
                    503,
                    "The database does not answer at the moment; send this again.",
                    headers={"Retry-After": "5"},
                ) from None
            return (SMALL, who) if workspace is None else (limit, workspace)
        return limit, who


class _Threads:
    """Threads for requests, for which addresses take turns."""

    def __init__(self, number: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(number, name)
        # More turns than threads, so that a thread that is done finds another request without
        # waiting for the event loop. An address, whose requests may all be slow, leaves a quarter
        # of many threads to others.
        self._turns = Turns(2 * number, number - number // 4 if number >= _MANY else 2 * number)

    async def run(self, who: str, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Return the result of a call, made in a thread."""
        async with self._turns.turn(who):
            return await asyncio.get_running_loop().run_in_executor(self._pool, call, *args)

    def close(self) -> None:
        """Wait for the calls under way, and end the threads."""
        self._pool.shutdown()


def environ_of(scope: Any) -> WSGIEnvironment:
    """Return the WSGI environment of a request, without its body."""
    headers: dict[str, str] = {}
    for name, value in scope.headers.items():
        if "_" in name:  # it would look like another header
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
    environ["REMOTE_ADDR"] = _address(scope.client)
    environ["SERVER_PROTOCOL"] = f"HTTP/{scope.http_version}"
    environ["REQUEST_METHOD"] = scope.method
    environ["PATH_INFO"] = scope.path.encode().decode("latin-1")
    environ["QUERY_STRING"] = scope.query_string
    environ["wsgi.url_scheme"] = scope.scheme
    return environ


def _address(peer: str) -> str:
    return peer.rpartition(":")[0].strip("[]")


def _length_of(environ: WSGIEnvironment) -> int | None:
    """Return the length of the body in bytes; None if the request does not say it."""
    text = environ.get("CONTENT_LENGTH")
    if text is not None:
        # The server also accepts several equal values, or an empty one.
        if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
            raise Problem(400, "Content-Length must be one whole number.")
        return int(text)
    return None if "HTTP_TRANSFER_ENCODING" in environ else 0


def _respond(app: WSGIApplication, environ: WSGIEnvironment, request: Any, last: bool) -> int:
    status, headers, content = _call(app, environ)
    if last:
        headers = [*headers, ("Connection", "close")]
    return _send(request, (status, headers, content))


def _send(request: Any, answer: Answer) -> int:
    """Send an answer, and return how many bytes it has."""
    request.response_bytes(*answer)
    return len(answer[2])


def _call(app: WSGIApplication, environ: WSGIEnvironment) -> Answer:
    began: list[Any] = []

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        began[:] = [int(status[:3]), headers]
        return None

    answer = app(environ, start)
    try:
        # The answer is built as a whole, so a slow reader holds nothing but its bytes.
        content = b"".join(answer)
    finally:
        close = getattr(answer, "close", None)
        if close is not None:
            close()
    return began[0], began[1], content
