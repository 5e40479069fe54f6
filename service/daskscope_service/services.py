"""The parts of a running service: one typed value, which views get by :func:`services`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from flask import Flask, current_app

if TYPE_CHECKING:  # it names parts of every layer, and uses none
    from sqlalchemy import Engine

    from daskscope_service.accounts.openid import Provider
    from daskscope_service.accounts.token_cache import TokenCache
    from daskscope_service.ingest.decoding_turns import DecodingTurns
    from daskscope_service.ingest.fast_path import HeartbeatFastPath
    from daskscope_service.ingest.heartbeat_api import Answers
    from daskscope_service.ingest.otlp import LogStore, SpanStore
    from daskscope_service.ingest.points import MetricStore
    from daskscope_service.ingest.quotas import Quotas
    from daskscope_service.ingest.writer import Writer
    from daskscope_service.notifications.sending import TestMessages
    from daskscope_service.queries.logs import LogReader
    from daskscope_service.service_metrics import ServiceMetrics
    from daskscope_service.telemetry.spans import SpanReader
    from daskscope_service.telemetry.store import SeriesStore

_KEY = "daskscope"


class Closing(Protocol):
    """A part with a thread of its own."""

    def close(self) -> None:
        """End the thread, after the work under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The parts that views use.

    ``turns`` are for bodies that take long to decode. ``metric_store``, ``span_store`` and
    ``log_store`` write what comes by OTLP; ``series``, ``spans`` and ``read_logs`` read it, from
    the database or from InfluxDB. ``background`` are the periodic tasks, in the order in which they
    end.
    """

    engine: Engine
    writer: Writer
    quotas: Quotas
    instruments: ServiceMetrics
    tokens: TokenCache
    openid: Provider | None
    trials: TestMessages
    turns: DecodingTurns
    heartbeats: Answers
    fast_path: HeartbeatFastPath
    metric_store: MetricStore
    span_store: SpanStore
    log_store: LogStore
    series: SeriesStore
    spans: SpanReader
    read_logs: LogReader
    background: tuple[Closing, ...]

    def install(self, app: Flask) -> None:
        """Make these the parts of ``app``."""
        app.extensions[_KEY] = self

    def close(self) -> None:
        """Write what waits, end the threads and close the database."""
        for task in self.background:
            task.close()
        self.writer.close()
        self.series.close()
        self.engine.dispose()


def services(app: Flask | None = None) -> Services:
    """Return the parts of ``app``; by default, of the one that answers the current request."""
    parts: Services = (app or current_app).extensions[_KEY]
    return parts
