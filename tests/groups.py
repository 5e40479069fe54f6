"""Which tests share what is expensive to make, so that one process runs them all."""

from __future__ import annotations

import re

_STACK = re.compile(r"^tests/stack/.*\[.*\b(influxdb\d)\b")

#: Tests that share a browser and a service full of data. That of the demo has a service of its own.
_BROWSER = re.compile(r"^tests/browser/(?!test_demo|test_fixtures)")


def group_of(nodeid: str) -> str:
    """Return the group of a test: its file, but the browser's tests are one, and the stack's are
    those of the InfluxDB that they need.
    """
    if _BROWSER.match(nodeid):
        return "browser"
    stack = _STACK.match(nodeid)
    return stack[1] if stack else nodeid.partition("::")[0]
