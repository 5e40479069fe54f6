"""Which tests share what is expensive to make, so that one process runs them all."""

from __future__ import annotations

import re

_STACK = re.compile(r"^tests/stack/.*\[.*\b(influxdb\d)\b")


def group_of(nodeid: str) -> str:
    """Return the group of a test: its file, or of the stack's tests the InfluxDB that they need."""
    stack = _STACK.match(nodeid)
    return stack[1] if stack else nodeid.partition("::")[0]
