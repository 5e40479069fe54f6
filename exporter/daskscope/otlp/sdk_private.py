"""Contains all uses of private parts of OpenTelemetry, which may change with any release.

These are the logs API, whose modules begin with an underscore; attributes of exporters; the places
where modules read environment variables; and the SDK's log records about our own requests. No other
module uses private parts: ``tests/exporter/test_guards.py`` checks that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk import trace as sdk_trace
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor, ReadWriteLogRecord
from opentelemetry.sdk._logs import _internal as _logs_internal
from opentelemetry.sdk._logs.export import (
    BatchLogRecordProcessor,
    LogRecordExporter,
    LogRecordExportResult,
)

from daskscope.otlp.limits import invalid_limits

__all__ = [
    "BatchLogRecordProcessor",
    "LogRecord",
    "LogRecordExportResult",
    "LogRecordExporter",
    "LogRecordProcessor",
    "LoggerProvider",
    "OTLPLogExporter",
    "ReadWriteLogRecord",
    "SeverityNumber",
    "between_exporter_and_channel",
    "draw_no_pauses",
    "grpc_log_exporter",
    "hide_variable",
    "silence",
    "without_invalid_limits",
]


def grpc_log_exporter() -> ModuleType:
    """Return the module of the exporter of logs over gRPC, which may not be installed."""
    from opentelemetry.exporter.otlp.proto.grpc import _log_exporter

    return _log_exporter


def draw_no_pauses(exporter: Any) -> None:
    """Stop an HTTP exporter from computing a random retry pause, which is never used.

    It computes one before each request, from :mod:`random`, whose sequence a program that seeds it
    expects unchanged. Releases that compute it only after a failure are left as they are.
    """
    client: Any = getattr(exporter, "_client", None)
    if hasattr(client, "_compute_backoff"):
        client._compute_backoff = float


def between_exporter_and_channel(exporter: Any, intercept: Callable[[Any], Any]) -> None:
    """Make a gRPC exporter use the channel that ``intercept`` returns for each channel it creates.

    If a release of the SDK creates channels in another way, nothing is intercepted.
    """
    try:
        stub, channel = exporter._stub, exporter._channel
    except AttributeError:
        return
    exporter._stub = lambda made: stub(intercept(made))
    exporter._client = exporter._stub(channel)


_hiding = threading.RLock()


@contextmanager
def hide_variable(module: ModuleType, *variables: str) -> Iterator[None]:
    """Hide environment variables from a module of the SDK.

    The module raises an error for an invalid number in a variable, even if the value is passed as
    an argument. The process's environment is not changed, because other threads read it.
    """
    with _hiding:
        everything = getattr(module, "environ", None)
        if everything is None or not any(variable in everything for variable in variables):
            yield
            return
        shown = {name: value for name, value in everything.items() if name not in variables}
        setattr(module, "environ", shown)  # noqa: B010 # mypy does not know the attribute
        try:
            yield
        finally:
            setattr(module, "environ", everything)  # noqa: B010


@contextmanager
def without_invalid_limits() -> Iterator[None]:
    """Hide invalid limits from the SDK, whose providers raise an error for them."""
    invalid = invalid_limits()
    with hide_variable(sdk_trace, *invalid), hide_variable(_logs_internal, *invalid):
        yield


class Silence(threading.local):
    """Whether the SDK's logging is suppressed in this thread, and its last suppressed message."""

    on = False
    last: str | None = None


_silence = Silence()
_changing_filters = threading.Lock()
_silent_threads = 0


@contextmanager
def silence() -> Iterator[Silence]:
    """Suppress the SDK's logging in this thread.

    Its loggers have a filter of ours only meanwhile: they belong to the user's process.
    """
    global _silent_threads
    with _changing_filters:
        _silent_threads += 1
        for logger in _loggers_of_sdk():
            if _swallow not in logger.filters:
                # Before the SDK's own filter, which drops messages that another thread has just
                # logged.
                logger.filters.insert(0, _swallow)
    _silence.on, _silence.last = True, None
    try:
        yield _silence
    finally:
        _silence.on = False
        with _changing_filters:
            _silent_threads -= 1
            if not _silent_threads:
                for logger in _loggers_of_sdk():
                    logger.removeFilter(_swallow)


def _loggers_of_sdk() -> list[logging.Logger]:
    # Each of them: a filter applies only to its own logger, not to children.
    names = list(logging.root.manager.loggerDict)
    return [logging.getLogger(name) for name in names if name.startswith("opentelemetry.")]


def _swallow(record: logging.LogRecord) -> bool:
    """Let a log record of the SDK pass, unless one of our own requests caused it."""
    if _silence.on:
        _silence.last = record.getMessage()
    return not _silence.on
