"""Keeps our own requests out of users' traces and metrics.

Who has OpenTelemetry's instrumentation of requests or urllib3 in the process would get a span for
each heartbeat. The SDK's exporters keep theirs out in the same way.
"""

from __future__ import annotations

from contextvars import Token

from opentelemetry import context
from opentelemetry.context import Context, attach, set_value

__all__ = ["attach_unobserved", "detach"]

#: A part of OpenTelemetry's API that is private there, and used by each instrumentation.
_KEY: str | None = getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", None)


def attach_unobserved() -> Token[Context] | None:
    """Keep instrumentation from observing what this thread does until :func:`detach`."""
    return None if _KEY is None else attach(set_value(_KEY, True))


def detach(unobserved: Token[Context] | None) -> None:
    """End what :func:`attach_unobserved` has begun."""
    if unobserved is not None:
        context.detach(unobserved)
