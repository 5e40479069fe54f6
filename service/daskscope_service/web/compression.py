"""Compresses pages, and the files and data that pages fetch, for browsers.

Two kinds of answers stay uncompressed: answers that may not be stored (``no-store``), because their
size could reveal the secrets in them; and answers of the API, whose ETag is a hash of their bytes.
"""

from __future__ import annotations

import gzip
from functools import lru_cache

from flask import Flask, Response, request

_TYPES = frozenset({"text/html", "text/css", "text/csv", "text/javascript", "image/svg+xml"})
#: Answers of fewer bytes fit into one packet anyway, so they are not compressed.
_LEAST = 1000


def install(app: Flask) -> None:
    """Compress the answers of ``app`` for clients that accept gzip."""
    app.after_request(_compress)


def _compress(response: Response) -> Response:
    if response.status_code != 200 or response.mimetype not in _TYPES:
        return response
    response.vary.add("Accept-Encoding")
    static = request.endpoint == "pages.static"
    if (
        request.accept_encodings["gzip"] <= 0
        or request.method == "HEAD"
        or response.cache_control.no_store
        or (response.is_streamed and not static)
    ):
        return response
    response.direct_passthrough = False  # allows to read the content of a static file
    content = response.get_data()
    if len(content) < _LEAST:
        return response
    response.set_data(_of_file(content) if static else gzip.compress(content, 5, mtime=0))
    response.headers["Content-Encoding"] = "gzip"
    etag, _ = response.get_etag()
    if etag is not None:
        response.set_etag(etag, weak=True)  # weak: the content is the same, the bytes are not
    return response


@lru_cache(maxsize=64)
def _of_file(content: bytes) -> bytes:
    return gzip.compress(content, 9, mtime=0)
