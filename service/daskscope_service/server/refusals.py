"""Answers requests that are refused before they reach the application, as it would answer them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from daskscope_service.ingest.fast_path import Answer
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.web import problems, request_log
from daskscope_service.web.problems import Problem


class Refusals:
    """Makes, logs and counts such answers. ``headers``: added to each of them."""

    def __init__(self, instruments: ServiceMetrics, headers: Sequence[tuple[str, str]]) -> None:
        self._instruments = instruments
        self._headers = headers

    def answer(self, problem: Problem, method: str, client: str, seconds: float) -> Answer:
        """Return the answer to a request that was refused after so many seconds."""
        request_id = secrets.token_hex(8)
        request_log.log_request(
            self._instruments,
            request_log.NO_ROUTE,
            request_log.method_of(method),
            problem.status,
            seconds,
            client=client,
            token=None,
            request_id=request_id,
        )
        headers = [
            ("Content-Type", problems.CONTENT_TYPE),
            (request_log.HEADER, request_id),
            *self._headers,
            *problem.headers.items(),
        ]
        return problem.status, headers, problems.document(problem, request_id)
