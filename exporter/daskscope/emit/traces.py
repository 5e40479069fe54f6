"""Spans: one per computation, and one per task group below it."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Span, Status, StatusCode, set_span_in_context

from daskscope import names, protocol
from daskscope.emit.providers import SCOPE
from daskscope.version import __version__


class Traces:
    """A tracer provider, and the spans of the computations that run."""

    def __init__(self, exporter: SpanExporter, resource: Resource) -> None:
        self._ids = _ComputationIds()
        self._provider = TracerProvider(
            resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(SCOPE, __version__)

    def start(self, computation: protocol.Computation) -> Span:
        """Start the span of a computation. Its trace has the id that the computation names."""
        self._ids.trace_id = computation.trace_id
        return self._tracer.start_span(
            names.SPAN_COMPUTATION.name,
            context=Context(),
            start_time=_ns(computation.started_at),
            attributes={
                names.COMPUTATION_ID: computation.id,
                names.USER_NAME: computation.user,
            },
        )

    def end(
        self,
        span: Span,
        computation: protocol.Computation,
        groups: list[protocol.TaskGroup],
    ) -> None:
        """End the span of a computation, with a span for each of its groups that ran."""
        inside = set_span_in_context(span)
        for group in groups:
            if group.started_at is None or group.stopped_at is None:
                continue
            child = self._tracer.start_span(
                names.SPAN_TASK_GROUP.name,
                context=inside,
                start_time=_ns(group.started_at),
                attributes={
                    names.COMPUTATION_ID: computation.id,
                    names.TASK_GROUP_NAME: group.name,
                    names.TASK_PREFIX: group.prefix,
                    names.TASK_GROUP_TASKS: group.tasks,
                },
            )
            if group.erred:
                child.set_status(Status(StatusCode.ERROR))
            child.end(_ns(group.stopped_at))
        span.set_attribute(names.COMPUTATION_STATUS, computation.status)
        span.set_attribute(names.COMPUTATION_TASKS, computation.tasks)
        if computation.status == "erred":
            span.set_status(Status(StatusCode.ERROR))
        span.end(_ns(computation.stopped_at or computation.started_at))

    def shutdown(self) -> None:
        """Send what waits and end. Takes as long as the exporter's timeout."""
        self._provider.shutdown()


class _ComputationIds(RandomIdGenerator):
    """Random ids, but for the next trace if its id was given."""

    trace_id: str | None = None

    def generate_trace_id(self) -> int:
        given, self.trace_id = self.trace_id, None
        return int(given, 16) if given else super().generate_trace_id()


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
