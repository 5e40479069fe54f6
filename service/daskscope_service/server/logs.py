"""The format of log lines, and the thread that writes them: text, or one JSON object per line.

A line may carry fields in addition to its message (``extra={"fields": {...}}``), and carries the id
of the request that it belongs to.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import logging.config
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from flask import g, has_request_context

from daskscope_service.settings import Settings

#: Characters that could make one line look like two, or colour a terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

#: Characters of lines that may wait to be written; further lines are dropped.
MOST_WAITING = 1024 * 1024

#: Seconds that the end of the process waits until the last lines are written.
_LAST_SECONDS = 1.0


def configuration(settings: Settings, *, in_background: bool = False) -> dict[str, Any]:
    """Return the argument of :func:`logging.config.dictConfig`. Lines go to standard error.

    With ``in_background`` they are written by a thread: for a process that serves.
    """
    level = settings.log_level.upper()
    formatter = {"text": TextFormatter, "json": JsonFormatter}[settings.log_format]
    handler: dict[str, Any] = {"class": "logging.StreamHandler", "stream": "ext://sys.stderr"}
    if in_background:
        handler = {"()": BackgroundHandler}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"()": formatter}},
        "handlers": {"lines": handler | {"formatter": "lines"}},
        "root": {"handlers": ["lines"], "level": "WARNING"},
        "loggers": {"daskscope_service": {"level": level}, "daskscope": {"level": level}},
    }


def set_up(settings: Settings) -> None:
    """Configure the logging of this process by ``settings``."""
    logging.config.dictConfig(configuration(settings))


class BackgroundHandler(logging.Handler):
    """Writes lines to standard error in a thread, so that nobody who logs waits for its reader.

    A pipe that nobody reads is full after 64 KiB, and then each write waits. The event loop logs
    requests, and the threads that answer them would wait for each other.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._size = self._dropped = 0
        self._on_drop: Callable[[], None] = lambda: None
        self._closing = False
        self._some = threading.Event()
        self._thread: threading.Thread | None = None
        # A forked process forgets the calls for its end that others have registered, logging's too.
        atexit.register(self.close)

    def emit(self, record: logging.LogRecord) -> None:
        """Leave the line to the thread, or drop it if too much waits. The caller has the lock."""
        if self._closing:
            return
        try:
            line = self.format(record) + "\n"
        except Exception:  # as every handler of the standard library does
            self.handleError(record)
            return
        if self._size + len(line) > MOST_WAITING:
            self._dropped += 1
            self._on_drop()
            return
        self._lines.append(line)
        self._size += len(line)
        if self._thread is None or not self._thread.is_alive():  # none in a copy of the process
            self._some = threading.Event()
            self._thread = threading.Thread(target=self._run, name="daskscope-log", daemon=True)
            self._thread.start()
        self._some.set()

    def count_drops(self, call: Callable[[], None]) -> None:
        """Call ``call`` for each line that is dropped."""
        self._on_drop = call

    def close(self) -> None:
        """Wait for the lines to be written, but not for a reader who does not come."""
        super().close()
        if self._thread is not None and self._thread.is_alive():
            self._closing = True
            self._some.set()
            self._thread.join(_LAST_SECONDS)

    def _run(self) -> None:
        while not self._closing:
            self._some.wait()
            self._some.clear()
            self._write()
        self._write()

    def _write(self) -> None:
        assert self.lock is not None
        with self.lock:
            lines, self._lines, self._size = self._lines, [], 0
            dropped, self._dropped = self._dropped, 0
        if dropped:
            what = "dropped %d lines of the log, because nobody read those before them"
            here = logging.LogRecord(__name__, logging.WARNING, __file__, 0, what, (dropped,), None)
            lines.append(self.format(here) + "\n")
        left = memoryview("".join(lines).encode(errors="backslashreplace"))
        # Not by the stream: its lock would be held meanwhile, and it is flushed at the end.
        with contextlib.suppress(OSError, ValueError):  # nobody is there, or it is closed
            while left and sys.stderr is not None:
                left = left[os.write(sys.stderr.fileno(), left) :]


def count_drops(call: Callable[[], None]) -> None:
    """Call ``call`` for each line that this process drops."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, BackgroundHandler):
            handler.count_drops(call)


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


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
