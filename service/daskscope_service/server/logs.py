"""The format of log lines: text, or one JSON object per line.

A line may carry fields in addition to its message (``extra={"fields": {...}}``), and carries the id
of the request that it belongs to.
"""

from __future__ import annotations

import json
import logging
import logging.config
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from flask import g, has_request_context

from daskscope_service.settings import Settings

#: Characters that could make one line look like two, or colour a terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def configuration(settings: Settings) -> dict[str, Any]:
    """Return the argument of :func:`logging.config.dictConfig`. Lines go to standard error."""
    level = settings.log_level.upper()
    formatter = {"text": TextFormatter, "json": JsonFormatter}[settings.log_format]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": formatter}},
        "handlers": {
            "lines": {
                "class": "logging.StreamHandler",
                "formatter": "lines",
                "stream": "ext://sys.stderr",
            }
        },
        "root": {"handlers": ["lines"], "level": "WARNING"},
        "loggers": {"daskscope_service": {"level": level}, "daskscope": {"level": level}},
    }


def set_up(settings: Settings) -> None:
    """Configure the logging of this process by ``settings``."""
    logging.config.dictConfig(configuration(settings))


class TextFormatter(logging.Formatter):
    """``2026-01-31 12:00:00.000Z INFO access: GET /healthz status=200 … request_id=…``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and below it the traceback if there is one."""
        fields = "".join(f" {name}={value}" for name, value in _fields(record).items())
        line = (
            f"{_time(record)} {record.levelname} {_short(record.name)}: "
            f"{_CONTROL.sub(_escape, record.getMessage() + fields)}"
        )
        if not record.exc_info:
            return line
        # Users may have sent this text, line ends too. Indented, it does not look like a line of
        # the log.
        below = self.formatException(record.exc_info).split("\n")
        return "\n  ".join([line, *(_CONTROL.sub(_escape, one) for one in below)])


class JsonFormatter(logging.Formatter):
    """One JSON object: ``time``, ``level``, ``logger``, ``message``, the fields, ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": _time(record).replace(" ", "T"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _fields(record: logging.LogRecord) -> Mapping[str, Any]:
    fields = dict(getattr(record, "fields", {}))
    if has_request_context() and "request_id" in g:
        fields["request_id"] = g.request_id
    return {name: value for name, value in fields.items() if value is not None}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _short(name: str) -> str:
    return name.removeprefix("daskscope_service.")


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
