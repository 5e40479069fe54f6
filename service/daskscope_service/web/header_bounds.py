"""Removes request headers that are too long, and a ``Host`` that is not a valid host.

Libraries search headers with regular expressions whose time grows with the square of the length. No
other Python thread runs meanwhile: 60,000 spaces in ``Accept`` took six seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

#: The most characters of a header, and of some in particular. A browser's ``Accept`` headers have
#: about 200. Cookies are longer, because a browser also sends those of other services on this host.
_MOST = 8 * 1024
_MOST_OF = {
    "CONTENT_TYPE": 1_000,
    "HTTP_ACCEPT": 1_000,
    "HTTP_ACCEPT_ENCODING": 1_000,
    "HTTP_ACCEPT_LANGUAGE": 1_000,
    "HTTP_COOKIE": 32 * 1024,
    "HTTP_HOST": 300,
}

#: A host name with labels of at most 63 characters, or an IP address. Werkzeug cannot build links
#: for other hosts.
_LABEL = r"[A-Za-z0-9_-]{1,63}"
_HOST = re.compile(rf"(?:(?:{_LABEL}\.)*{_LABEL}\.?|\[[0-9A-Fa-f:.]{{2,45}}\])(?::[0-9]{{1,5}})?")


def bounded(app: WSGIApplication) -> WSGIApplication:
    """Return ``app`` wrapped so that it does not get such headers."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        long = [
            name
            for name, value in environ.items()
            if name.startswith(("HTTP_", "CONTENT_TYPE")) and len(value) > _MOST_OF.get(name, _MOST)
        ]
        for name in long:
            del environ[name]
        if "HTTP_HOST" in environ and not _HOST.fullmatch(environ["HTTP_HOST"]):
            del environ["HTTP_HOST"]
        return app(environ, start_response)

    return answer
