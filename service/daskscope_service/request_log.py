"""Gives each request an id, and when it is answered, a line in the log and a place in the counts.

Told of a request are its route, never its address, which may hold a secret; how it was answered and
how long that took; who asked, by address and by the readable id of a token.
"""

from __future__ import annotations

import logging
import re
import secrets
import time

from flask import Flask, Response, g, request

from daskscope_service.instruments import Instruments

logger = logging.getLogger("daskscope_service.access")

#: Where a request's id is told, and may come from: :mod:`daskscope_service.forwarded` lets only
#: proxies send it.
HEADER = "X-Request-ID"

_SANE = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def install(app: Flask, instruments: Instruments) -> None:
    """Follow the requests of ``app``. Call it before anything else looks at them."""

    @app.before_request
    def begin() -> None:
        g.began = time.perf_counter()
        told = request.headers.get(HEADER, "")
        g.request_id = told if _SANE.fullmatch(told) else secrets.token_hex(8)

    @app.after_request
    def end(response: Response) -> Response:
        seconds = time.perf_counter() - g.began
        rule, method = request.url_rule, request.method
        route = "none" if rule is None else rule.rule
        method = method if method in _METHODS else "other"
        status = response.status_code
        response.headers[HEADER] = g.request_id
        instruments.requests.labels(route, method, str(status)).inc()
        instruments.request_seconds.labels(route, method).observe(seconds)
        logger.info(
            "%s %s",
            method,
            route,
            extra={
                "fields": {
                    "status": status,
                    "milliseconds": round(seconds * 1000, 1),
                    "client": request.remote_addr,
                    "token": g.get("token_id"),
                }
            },
        )
        return response
