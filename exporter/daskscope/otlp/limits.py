"""Variables with the limits of OpenTelemetry's SDK (``OTEL_ATTRIBUTE_COUNT_LIMIT`` and others).

The SDK raises an error where one is invalid, such as -1: of its providers, and of one even as it is
imported. To us an invalid one counts as not set, and costs a warning.
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
    """Return the variables with limits that the SDK does not take, and their values."""
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
    """Warn of each that makes no sense."""
    for name, value in invalid_limits().items():
        logger.warning(
            "daskscope: %s is %r; it must be a whole number, 0 or above. It is ignored.",
            name,
            value,
        )


def import_sdk() -> None:
    """Import the part of the SDK that looks at limits as it is imported, if some are invalid."""
    if invalid_limits():
        with _not_set():
            import opentelemetry.sdk.trace  # noqa: F401


@contextmanager
def _not_set() -> Iterator[None]:
    # In the process, as there is no module yet to hide them from. Whoever looks meanwhile finds no
    # limit instead of one that makes no sense.
    hidden = invalid_limits()
    for name in hidden:
        os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, value in hidden.items():
            os.environ.setdefault(name, value)
