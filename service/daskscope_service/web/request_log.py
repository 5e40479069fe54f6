"""Gives each request an id and, when it is answered, a log line and a count.

The line has the request's route (never its address, which may hold a secret), status and duration,
the client's address, and the readable id of its token.
"""

from __future__ import annotations

import logging
import re
import secrets
import time

from flask import Flask, Response, g, request

from daskscope_service.service_metrics import ServiceMetrics

logger = logging.getLogger("daskscope_service.access")

#: Where a request's id is sent, and may come from: :mod:`daskscope_service.web.trusted_proxy` lets
#: only proxies send it.
HEADER = "X-Request-ID"

_SANE = re.compile(r"[A-Za-z0-9._:-]{1,100}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def install(app: Flask, instruments: ServiceMetrics) -> None:
    """Follow the requests of ``app``. Call it before anything else looks at them."""

    @app.before_request
    def begin() -> None:
        g.began = time.perf_counter()
        g.request_id = id_of(request.headers.get(HEADER, ""))

    @app.after_request
    def end(response: Response) -> Response:
        rule, method = request.url_rule, request.method
        response.headers[HEADER] = g.request_id
        log_request(
            instruments,
            "none" if rule is None else rule.rule,
            method if method in _METHODS else "other",
            response.status_code,
            time.perf_counter() - g.began,
            client=request.remote_addr,
            token=g.get("token_id"),
            request_id=g.request_id,
        )
        return response


def id_of(given: str) -> str:
    """Return the id of a request: what a proxy has ``given``, if it can be one, else a new one."""
    return given if _SANE.fullmatch(given) else secrets.token_hex(8)


def log_request(
    instruments: ServiceMetrics,
    route: str,
    method: str,
    status: int,
    seconds: float,
    *,
    client: str | None,
    token: str | None,
    request_id: str,
) -> None:
    """Log and count a request that was answered."""
    count, time_of = instruments.answered(route, method, status)
    count.inc()
    time_of.observe(seconds)
    if logger.isEnabledFor(logging.INFO):
        fields = {
            "status": status,
            "milliseconds": round(seconds * 1000, 1),
            "client": client,
            "token": token,
            "request_id": request_id,
        }
        logger.info("%s %s", method, route, extra={"fields": fields})
