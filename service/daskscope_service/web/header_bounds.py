"""Takes headers that are too long, and a host that is none, as if they had not been sent.

Libraries look through headers with patterns whose time grows with the square of the length, and
nothing else runs in Python meanwhile: 60,000 spaces in ``Accept`` took six seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

#: Characters of a header. Browsers say what they accept in two hundred; cookies may be those of
#: other services on the same host, too.
_MOST = 8 * 1024
_MOST_OF = {
    "CONTENT_TYPE": 1_000,
    "HTTP_ACCEPT": 1_000,
    "HTTP_ACCEPT_ENCODING": 1_000,
    "HTTP_ACCEPT_LANGUAGE": 1_000,
    "HTTP_COOKIE": 32 * 1024,
    "HTTP_HOST": 300,
}

#: A name of labels of 63 characters at most, or an address: for others Werkzeug builds no links.
_LABEL = r"[A-Za-z0-9_-]{1,63}"
_HOST = re.compile(rf"(?:(?:{_LABEL}\.)*{_LABEL}\.?|\[[0-9A-Fa-f:.]{{2,45}}\])(?::[0-9]{{1,5}})?")


def bounded(app: WSGIApplication) -> WSGIApplication:
    """Return ``app``, which does not see such headers."""

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
