"""HTTP requests that are bounded in time and size, whatever the server does.

The timeout of ``requests`` applies to each read, so an answer that arrives byte by byte, or never
ends, blocks its thread without limit. A :class:`Session` bounds the size of an answer, and another
thread can end a request that takes too long.
"""

from __future__ import annotations

import contextlib
import email.utils
import ipaddress
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies, select_proxy
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from daskscope.unobserved import attach_unobserved, detach

#: The longest answer that is read, in bytes. A service's answers are far shorter.
MAX_ANSWER = 4 << 20

#: The longest pause that a server may ask for, in seconds.
MAX_ASKED = 600.0

# The sockets of a session that may be in use. A connection itself drops its socket as soon as an
# answer contains ``Connection: close``.
_Opened = deque[Any]


class Session(requests.Session):
    """A session of ``requests`` for one thread.

    It never uses credentials of ``~/.netrc``, which requests would put in place of our own. If
    ``verify`` is the path of a CA bundle, it overrides ``REQUESTS_CA_BUNDLE``.
    """

    def __init__(self, overdue: float, max_answer: int = MAX_ANSWER) -> None:
        """A request is overdue after ``overdue`` seconds: more than the sum of its timeouts.

        ``max_answer`` is in bytes.
        """
        self._overdue = overdue
        self._max_answer = max_answer
        self._opened: _Opened = deque(maxlen=4)
        self._began: float | None = None
        self._ended = False
        super().__init__()
        self.auth = _as_it_is
        # A server's cookies mean nothing to us, and may be ever new ones.
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=()))
        for scheme in ("http://", "https://"):
            self.mount(scheme, self._adapter())

    def end_overdue(self) -> None:
        """End the current request if it is overdue. From any thread."""
        began = self._began
        if began is not None and time.monotonic() - began >= self._overdue:
            self.end()

    def end(self) -> None:
        """End the current request, if it is connected. From any thread."""
        self._ended = True
        for opened in tuple(self._opened):
            if isinstance(opened, socket.socket):
                with contextlib.suppress(OSError):
                    # Not the TLS socket's own shutdown, which is not thread-safe.
                    socket.socket.shutdown(opened, socket.SHUT_RDWR)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request and read its answer, at most ``max_answer`` bytes."""
        self._began, self._ended = time.monotonic(), False
        unobserved = attach_unobserved()
        try:
            # No redirects: the data and the token are for this address only.
            response = self._send(request, **{**kwargs, "stream": True, "allow_redirects": False})
            body = bytearray()
            for chunk in response.iter_content(1 << 16):
                body += chunk
                if len(body) > self._max_answer:
                    response.close()
                    raise requests.exceptions.ContentDecodingError("the answer is too large")
            if self._ended:
                raise requests.ReadTimeout  # we closed the socket: the answer is incomplete
            response._content = bytes(body)
            if "Retry-After" in response.headers:
                # Seconds instead of a date, because this machine's clock may be wrong.
                response.headers["Retry-After"] = f"{asked_to_wait(response):g}"
        except OSError as error:
            if self._ended:
                raise requests.ReadTimeout() from error
            raise
        finally:
            self._began = None
            detach(unobserved)
        return response

    def _send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        return super().send(request, **kwargs)

    def _adapter(self) -> _Adapter:
        return _Adapter(self._opened)

    def merge_environment_settings(
        self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> Any:
        """Return the settings of a request, including those of the environment."""
        if verify is None and isinstance(self.verify, str):
            verify = self.verify
        merged = super().merge_environment_settings(url, proxies, stream, verify, cert)
        if _is_this_machine(url):
            merged["proxies"] = {}
        return merged


@contextlib.contextmanager
def watched(session: Session) -> Iterator[Session]:
    """Watch a session in a thread that ends overdue requests, and close the session at the end."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            session.end_overdue()

    with contextlib.suppress(RuntimeError):  # no thread can be started at interpreter exit
        threading.Thread(target=watch, name="daskscope-watch", daemon=True).start()
    try:
        yield session
    finally:
        over.set()
        session.close()


class _Adapter(HTTPAdapter):
    """Stores the sockets that it opens."""

    def __init__(self, opened: _Opened) -> None:
        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                opened.append(self.sock)

        class Secure(HTTPSConnection):
            def _tunnel(self) -> None:
                # Stored before the tunnel exists, because a proxy may take long to open it.
                opened.append(self.sock)
                super()._tunnel()

            def connect(self) -> None:
                super().connect()
                opened.append(self.sock)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        self._pools = {"http": PlainPool, "https": SecurePool}
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = self._pools
        return manager

    def close(self) -> None:
        """Close all connections now: urllib3 would leave those of referenced answers open."""
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 # it cannot be iterated over
                pool = manager.pools.get(key)
                if pool is not None:
                    pool.close()
        super().close()


def _original(owner: type, name: str) -> Any:
    """Return a method of ``requests`` itself.

    If it was replaced before this module was imported, return what calls whatever is there.
    """
    method = vars(owner)[name]
    if getattr(method, "__module__", None) == owner.__module__:
        return method
    return lambda *arguments, **options: getattr(owner, name)(*arguments, **options)


class BackgroundSession(Session):
    """A session for a thread of ours, whose requests nobody expects.

    Tests replace methods of ``requests`` for the whole process, as ``responses`` and
    ``requests_mock`` do. They would count and answer our requests among the tested program's.
    """

    request = _original(requests.Session, "request")
    post = _original(requests.Session, "post")
    get_adapter = _original(requests.Session, "get_adapter")
    _send = _original(requests.Session, "send")

    def _adapter(self) -> _Adapter:
        return _BackgroundAdapter(self._opened)


class _BackgroundAdapter(_Adapter):
    send = _original(HTTPAdapter, "send")


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def proxy_in_clear(url: str) -> str | None:
    """Return the proxy that can read requests to ``url`` and answer them itself.

    It is the environment's, without credentials; None without a proxy, or if requests to ``url``
    are encrypted.
    """
    if urlsplit(url).scheme != "http" or _is_this_machine(url):
        return None
    proxy = select_proxy(url, get_environ_proxies(url))
    return None if proxy is None else proxy.rpartition("//")[2].rpartition("@")[2]


def _is_this_machine(url: str) -> bool:
    # A proxy would take this name for its own machine, and would get the token unencrypted.
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def asked_to_wait(response: requests.Response) -> float:
    """Return the seconds that ``Retry-After`` asks for, as a number or as a date."""
    asked = response.headers.get("Retry-After", "0")
    try:
        seconds = float(asked)
    except ValueError:
        until = _date(asked)
        if until is None:
            return 0.0
        # Compared with the server's clock, if it sends its time: ours may be wrong.
        now = _date(response.headers.get("Date", ""))
        seconds = until - (time.time() if now is None else now)
    return min(seconds, MAX_ASKED) if seconds > 0 else 0.0  # NaN is not above 0


def _date(header: str) -> float | None:
    try:
        moment = email.utils.parsedate_to_datetime(header)
        # -0000 is UTC, too: a time without a zone.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
