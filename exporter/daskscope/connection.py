"""HTTP requests that end, whatever the other side does.

``requests`` waits for each byte in turn: an answer that drips in, or never stops, holds its thread
for as long as it likes. A :class:`Session` takes no more than a bounded answer, and what takes too
long can be ended from another thread.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

#: The longest answer that is taken in, in bytes. Those of a service are far shorter.
MAX_ANSWER = 4 << 20

#: Seconds after which a request is overdue: longer than it takes to connect and to be answered.
OVERDUE = 20.0

# The connections of a session that may be in use.
_Opened = deque[HTTPConnection]


class Session(requests.Session):
    """A session of ``requests`` for one thread.

    Without credentials of its own: requests would put those of ``~/.netrc`` in their place. Its
    ``verify`` wins over ``REQUESTS_CA_BUNDLE`` where it names an authority.
    """

    def __init__(self) -> None:
        self._opened: _Opened = deque(maxlen=4)
        self._began: float | None = None
        super().__init__()
        self.auth = _as_it_is
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter(self._opened))

    def end_overdue(self) -> None:
        """End the request that is under way, if it has been for too long. From any thread."""
        began = self._began
        if began is None or time.monotonic() - began < OVERDUE:
            return
        for connection in tuple(self._opened):
            if isinstance(connection.sock, socket.socket):
                with contextlib.suppress(OSError):
                    # Not the TLS socket's own, which is not made for two threads.
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request and take in its answer, no more of it than ``MAX_ANSWER``."""
        self._began = time.monotonic()
        try:
            response = super().send(request, **{**kwargs, "stream": True})
            body = b""
            for chunk in response.iter_content(1 << 16):
                body += chunk
                if len(body) > MAX_ANSWER:
                    response.close()
                    raise requests.exceptions.ContentDecodingError("the answer is too large")
            response._content = body
            return response
        finally:
            self._began = None

    def merge_environment_settings(
        self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any
    ) -> Any:
        """Return the settings of a request, the environment's among them."""
        if verify is None and isinstance(self.verify, str):
            verify = self.verify
        return super().merge_environment_settings(url, proxies, stream, verify, cert)


class _Adapter(HTTPAdapter):
    """Remembers the connections that it opens."""

    def __init__(self, opened: _Opened) -> None:
        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                opened.append(self)

        class Secure(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                opened.append(self)

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


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
