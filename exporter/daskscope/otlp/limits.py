"""Environment variables with limits of OpenTelemetry's SDK (``OTEL_ATTRIBUTE_COUNT_LIMIT``, …).

The SDK raises an error for an invalid limit, such as -1, when a provider is created, and for one of
them even on import. daskscope treats an invalid limit as not set, and logs a warning.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

logger = logging.getLogger("daskscope")

_NAMES = re.compile(r"OTEL_([A-Z]+_)+LIMIT")


def invalid_limits(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables with limits that the SDK does not accept, and their values."""
    return {
        name: value
        for name, value in environment.items()
        if _NAMES.fullmatch(name) and not _is_taken(value)
    }


def _is_taken(value: str) -> bool:
    if not value.strip():
        return True  # no limit
    try:
        return int(value) >= 0
    except ValueError:
        return False


def warn_of_invalid_limits() -> None:
    """Log a warning for each invalid limit."""
    for name, value in invalid_limits().items():
        logger.warning(
            "daskscope: %s is %r; it must be a whole number, 0 or above. It is ignored.",
            name,
            value,
        )


def import_sdk() -> None:
    """Import the part of the SDK that reads limits on import, if some limits are invalid."""
    if invalid_limits():
        with _not_set():
            import opentelemetry.sdk.trace  # noqa: F401


@contextmanager
def _not_set() -> Iterator[None]:
    # This changes the process's environment, because the module that reads it is not imported yet.
    # Other threads meanwhile see no limit instead of an invalid one.
    hidden = invalid_limits()
    for name in hidden:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in hidden.items():
            os.environ.setdefault(name, value)
