"""Numbers in OpenTelemetry's variables.

They are read here, not by the SDK: where a number must be positive, that ends with an error.
"""

from __future__ import annotations

import logging
import os

logger = logging.getLogger("daskscope")


def positive(variable: str, otherwise: int) -> int:
    """Return the number in a ``variable``. One that makes no sense costs a warning; an empty
    variable counts as not set.
    """
    value = os.environ.get(variable)
    if not value:
        return otherwise
    try:
        number = int(value)
        if number > 0:
            return number
    except ValueError:
        pass
    logger.warning(
        "daskscope: %s is %r; it must be a whole number above 0. %d is used instead.",
        variable,
        value,
        otherwise,
    )
    return otherwise
