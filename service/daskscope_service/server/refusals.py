"""Answers requests that are refused before they reach the application, as it would answer them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence

from daskscope_service.ingest.fast_path import Answer
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.web import problems, request_log
from daskscope_service.web.problems import Problem

#: The most of them that are logged in a second, the first ones: anyone can cause thousands, and the
#: log must have room for others.
MOST_LOGGED = 10


class Refusals:
    """Makes and counts such answers, and logs some. ``headers``: added to each of them."""

    def __init__(self, instruments: ServiceMetrics, headers: Sequence[tuple[str, str]]) -> None:
        self._instruments = instruments
        self._headers = headers
        self._second = self._logged = 0

    def answer(self, problem: Problem, method: str, client: str, seconds: float) -> Answer:
        """Return the answer to a request that was refused after so many seconds."""
        request_id = secrets.token_hex(8)
        method = request_log.method_of(method)
        if self._may_log():
            request_log.log_request(
                self._instruments,
                request_log.NO_ROUTE,
                method,
                problem.status,
                seconds,
                client=client,
                token=None,
                request_id=request_id,
            )
        else:
            request_log.count_request(
                self._instruments, request_log.NO_ROUTE, method, problem.status, seconds
            )
        headers = [
            ("Content-Type", problems.CONTENT_TYPE),
            (request_log.HEADER, request_id),
            *self._headers,
            *problem.headers.items(),
        ]
        return problem.status, headers, problems.document(problem, request_id)

    def _may_log(self) -> bool:
        second = int(time.monotonic())
        self._logged = self._logged + 1 if second == self._second else 1
        self._second = second
        return self._logged <= MOST_LOGGED
