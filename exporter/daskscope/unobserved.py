"""Keeps our own requests out of users' traces and metrics.

A process with OpenTelemetry's instrumentation of requests or urllib3 would otherwise get a span for
each heartbeat. The SDK's exporters suppress spans of their requests in the same way.
"""

from __future__ import annotations

from contextvars import Token

from opentelemetry import context
from opentelemetry.context import Context, attach, set_value

__all__ = ["attach_unobserved", "detach"]

#: A private key of OpenTelemetry's API, which every instrumentation checks.
_KEY: str | None = getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", None)


def attach_unobserved() -> Token[Context] | None:
    """Stop instrumentation from observing this thread until :func:`detach`."""
    return None if _KEY is None else attach(set_value(_KEY, True))


def detach(unobserved: Token[Context] | None) -> None:
    """Undo :func:`attach_unobserved`."""
    if unobserved is not None:
        context.detach(unobserved)
