"""Gives each request an id; logs and counts it when it is answered.

The log line has the route (never the path or query, which may hold a secret), the status, the
duration, the client's address, and the readable id of the token.
"""

from __future__ import annotations

import logging
import re
import secrets
import time

from flask import Flask, Response, g, request

from daskscope_service.service_metrics import ServiceMetrics

logger = logging.getLogger("daskscope_service.access")

#: The header with the request's id, in answers and, from a trusted proxy, in requests:
#: :mod:`daskscope_service.web.trusted_proxy` removes it from other clients' requests.
HEADER = "X-Request-ID"

_SANE = re.compile(r"[A-Za-z0-9._:-]{1,100}")
#: What stands for the route of a request that has none.
NO_ROUTE = "none"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def install(app: Flask, instruments: ServiceMetrics) -> None:
    """Log and count the requests of ``app``. Call this before other hooks are installed."""

    @app.before_request
    def begin() -> None:
        g.began = time.perf_counter()
        g.request_id = id_of(request.headers.get(HEADER, ""))

    @app.after_request
    def end(response: Response) -> Response:
        rule = request.url_rule
        response.headers[HEADER] = g.request_id
        log_request(
            instruments,
            NO_ROUTE if rule is None else rule.rule,
            method_of(request.method),
            response.status_code,
            time.perf_counter() - g.began,
            client=request.remote_addr,
            token=g.get("token_id"),
            request_id=g.request_id,
        )
        return response


def method_of(given: str) -> str:
    """Return the method under which a request is logged and counted."""
    return given if given in _METHODS else "other"


def id_of(given: str) -> str:
    """Return the id of a request: the one ``given`` by a proxy if it is valid, else a new one."""
    return given if _SANE.fullmatch(given) else secrets.token_hex(8)


def count_request(
    instruments: ServiceMetrics, route: str, method: str, status: int, seconds: float
) -> None:
    """Count an answered request, which took ``seconds``."""
    count, time_of = instruments.answered(route, method, status)
    count.inc()
    time_of.observe(seconds)


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
    """Log and count an answered request, which took ``seconds``."""
    count_request(instruments, route, method, status, seconds)
    if logger.isEnabledFor(logging.INFO):
        fields = {
            "status": status,
            "milliseconds": round(seconds * 1000, 1),
            "client": client,
            "token": token,
            "request_id": request_id,
        }
        logger.info("%s %s", method, route, extra={"fields": fields})
