"""Finds the client's address, scheme and host behind a trusted proxy.

A proxy sends them in headers, but anyone can send such headers. Therefore they are used only if the
sender is a proxy that the settings name. From other senders they are removed.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: The headers that only a trusted proxy may send.
_ONLY_FROM_PROXIES = (
    "HTTP_FORWARDED",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PORT",
    "HTTP_X_FORWARDED_PREFIX",
    "HTTP_X_FORWARDED_PROTO",
    "HTTP_X_REAL_IP",
    "HTTP_X_REQUEST_ID",
)

_HOST = re.compile(r"(?:[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?")


class Forwarded:
    """Replaces the proxy's address, scheme and host in a request by the client's.

    Parameters
    ----------
    proxies
        Addresses and networks of the proxies, as in the settings.
    """

    def __init__(self, proxies: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(proxy, strict=False) for proxy in proxies]
        self._is_proxy = functools.lru_cache(maxsize=1024)(self._look_up)

    def middleware(self, app: WSGIApplication) -> WSGIApplication:
        """Return ``app`` wrapped so that it sees the client's address, scheme and host."""

        def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            self.apply(environ)
            return app(environ, start_response)

        return answer

    def apply(self, environ: WSGIEnvironment) -> None:
        """Put the client's own address, scheme and host into ``environ``."""
        if self._networks and self._is_proxy(environ.get("REMOTE_ADDR", "")):
            self._believe(environ)
        else:
            for name in _ONLY_FROM_PROXIES:
                environ.pop(name, None)

    def _believe(self, environ: WSGIEnvironment) -> None:
        # Each proxy appends the address that it got the request from. So read from the end and skip
        # trusted proxies: the first other address is the client's. The client may have invented the
        # addresses before it.
        for text in reversed(environ.get("HTTP_X_FORWARDED_FOR", "").split(",")):
            address = _address(text.strip())
            if address is None:
                break
            environ["REMOTE_ADDR"] = str(address)
            if not self._is_proxy(str(address)):
                break
        scheme = _last(environ, "HTTP_X_FORWARDED_PROTO").lower()
        if scheme in ("http", "https"):
            environ["wsgi.url_scheme"] = scheme
        host = _last(environ, "HTTP_X_FORWARDED_HOST")
        if _HOST.fullmatch(host):
            environ["HTTP_HOST"] = host

    def _look_up(self, text: str) -> bool:
        address = _address(text)
        return address is not None and any(address in network for network in self._networks)


def _last(environ: WSGIEnvironment, name: str) -> str:
    text: str = environ.get(name, "")
    return text.rpartition(",")[2].strip()


def _address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    # A server that listens on IPv6 sees 10.0.0.7 as ::ffff:10.0.0.7.
    return getattr(address, "ipv4_mapped", None) or address
