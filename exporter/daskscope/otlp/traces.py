"""Sends spans: one per computation, one per task group below it, and some of the group's tasks."""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    NoOpTracer,
    Span,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from daskscope import names, protocol
from daskscope.config import Settings
from daskscope.containment import Contained
from daskscope.observe.tasks.computation import Traced
from daskscope.observe.tasks.runs import TaskSample
from daskscope.observe.tasks.trace_context import TraceContext, of_computation, of_group
from daskscope.otlp.environment import SCOPE
from daskscope.otlp.sdk_private import without_invalid_limits
from daskscope.privacy import Cleared
from daskscope.version import __version__

#: Running computations with a span. Beyond it, the spans of the oldest are dropped.
MAX_OPEN = 1_000
#: Task groups of running computations. Further ones get no span.
MAX_GROUPS = 20_000
#: Computations whose span context is stored for later log events.
MAX_KNOWN = 5_000


@dataclass(slots=True)
class _Open:
    span: Span
    context: TraceContext
    groups: dict[str, protocol.TaskGroup] = field(default_factory=dict)


class Traces:
    """Makes the spans of computations through a tracer provider.

    ``drops`` counts computations, groups and tasks that get no span because of a bound.
    """

    def __init__(
        self,
        queue: SpanProcessor,
        resource: Resource,
        settings: Settings,
        drops: Counter[str],
    ) -> None:
        self._drops = drops
        self._contained = Contained(drops)
        self._ids = _GivenIds()
        with without_invalid_limits():
            self._provider = TracerProvider(
                resource=resource, id_generator=self._ids, shutdown_on_exit=False
            )
        self._provider.add_span_processor(queue)
        self._tracer = self._provider.get_tracer(SCOPE, __version__)
        self._allowance = _Allowance(settings.traces_max_spans_per_second, settings.interval)
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._groups = 0
        self._known: OrderedDict[str, SpanContext] = OrderedDict()

    def context(self, computation: str) -> SpanContext | None:
        """Return the context of a computation's span; None if it has no span."""
        opened = self._open.get(computation)
        return self._known.get(computation) if opened is None else opened.span.get_span_context()

    def observe(self, snapshot: Cleared) -> None:
        """Start the spans of computations that began, and end those of computations that ended."""
        for computation in snapshot.computations:
            traced = snapshot.traced.get(computation.id)
            if traced is not None and self.context(computation.id) is None:
                with self._contained:
                    self._start(computation, traced.caller)
        for group in snapshot.task_groups:
            self._keep(group)
        ended = [
            (row, self._open.pop(row.id), snapshot.traced[row.id])
            for row in snapshot.computations
            if row.status != "running" and row.id in self._open and row.id in snapshot.traced
        ]
        allowed = self._allowed([traced for _, _, traced in ended], snapshot.status.at)
        for (computation, opened, traced), samples in zip(ended, allowed, strict=True):
            self._groups -= len(opened.groups)
            with self._contained:
                self._end(computation, opened, samples, traced.sent)

    def shutdown(self) -> None:
        """Send waiting spans and shut down. It may take as long as the exporter's timeout."""
        self._provider.shutdown()

    def _start(self, computation: protocol.Computation, caller: TraceContext | None) -> None:
        assert computation.trace_id is not None
        own = of_computation(computation.id, computation.trace_id, caller, sampled=True)
        self._ids.next_are(int(own.trace_id, 16), int(own.span_id, 16))
        span = self._tracer.start_span(
            names.SPAN_COMPUTATION.name,
            context=Context() if caller is None else _inside(_remote(caller)),
            start_time=_ns(computation.started_at),
            attributes={
                names.COMPUTATION_ID: computation.id,
                names.USER_NAME: computation.user,
            },
        )
        self._known[computation.id] = span.get_span_context()
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        self._open[computation.id] = _Open(span, own)
        if len(self._open) > MAX_OPEN:
            _, dropped = self._open.popitem(last=False)
            self._groups -= len(dropped.groups)
            self._drops["trace"] += 1

    def _keep(self, group: protocol.TaskGroup) -> None:
        opened = self._open.get(group.computation)
        if opened is None:
            return
        if group.name not in opened.groups:
            if self._groups >= MAX_GROUPS:
                self._drops["task group span"] += 1
                return
            self._groups += 1
        opened.groups[group.name] = group

    def _allowed(self, ended: Sequence[Traced], now: float) -> list[dict[str, list[TaskSample]]]:
        """Return the samples that get a span, by group: the most important of all that ended."""
        chosen = [
            (sample.exception is None, rank, index, group, sample)
            for index, traced in enumerate(ended)
            for group, samples in traced.samples.items()
            for rank, sample in enumerate(samples)
        ]
        chosen.sort(key=lambda entry: entry[:2])
        count = self._allowance.take(len(chosen), now)
        if count < len(chosen):
            self._drops["sampled task span"] += len(chosen) - count
        allowed: list[dict[str, list[TaskSample]]] = [{} for _ in ended]
        for _, _, index, group, sample in chosen[:count]:
            allowed[index].setdefault(group, []).append(sample)
        return allowed

    def _end(
        self,
        computation: protocol.Computation,
        opened: _Open,
        samples: Mapping[str, Sequence[TaskSample]],
        sent: Mapping[str, float],
    ) -> None:
        span = opened.span
        stopped_at = computation.stopped_at or computation.started_at
        if span.is_recording():
            context = span.get_span_context()
            # All ids first, because a span may be linked to spans that are made after it.
            ran = {
                group.name: SpanContext(
                    context.trace_id,
                    int(of_group(opened.context, group.name).span_id, 16),
                    is_remote=False,
                    trace_flags=context.trace_flags,
                    trace_state=context.trace_state,
                )
                for group in opened.groups.values()
                if group.started_at is not None or group.name in sent
            }
            for name, own in ran.items():
                group = opened.groups[name]
                # Even if no run has reported its times, a run may have made spans below the
                # group's.
                times = (
                    sent[name] if group.started_at is None else group.started_at,
                    stopped_at if group.stopped_at is None else group.stopped_at,
                )
                self._tell_group(group, times, context, own, ran, samples.get(name, ()))
        if opened.groups:
            span.update_name(names.SPAN_COMPUTATION.of(_main_prefix(opened.groups.values())))
        span.set_attribute(names.COMPUTATION_STATUS, computation.status)
        span.set_attribute(names.COMPUTATION_TASKS, computation.tasks)
        if computation.status == "erred":
            span.set_status(_error(computation.erred, computation.tasks))
        span.end(_ns(stopped_at))

    def _tell_group(
        self,
        group: protocol.TaskGroup,
        times: tuple[float, float],
        parent: SpanContext,
        own: SpanContext,
        others: Mapping[str, SpanContext],
        samples: Sequence[TaskSample],
    ) -> None:
        started_at, stopped_at = times
        self._ids.next_are(own.trace_id, own.span_id)
        span = self._tracer.start_span(
            names.SPAN_TASK_GROUP.of(group.prefix),
            context=_inside(parent),
            start_time=_ns(started_at),
            links=[Link(others[name]) for name in group.dependencies if name in others],
            attributes={
                names.COMPUTATION_ID: group.computation,
                names.TASK_GROUP_NAME: group.name,
                names.TASK_PREFIX: group.prefix,
                names.TASK_GROUP_TASKS: group.tasks,
                names.TASK_GROUP_SAMPLED: len(samples),
            },
        )
        for sample in samples:
            self._tell_task(group, own, sample)
        if group.erred:
            span.set_status(_error(group.erred, group.tasks))
        span.end(_ns(max(stopped_at, started_at)))

    def _tell_task(
        self, group: protocol.TaskGroup, parent: SpanContext, sample: TaskSample
    ) -> None:
        attributes: dict[str, AttributeValue] = {
            names.COMPUTATION_ID: group.computation,
            names.TASK_PREFIX: group.prefix,
            names.TASK_OUTCOME: sample.outcome,
            names.WORKER_ADDRESS: sample.worker,
        }
        if sample.exception is not None:
            attributes[names.EXCEPTION_TYPE] = sample.exception
        span = self._tracer.start_span(
            names.SPAN_TASK.of(group.prefix),
            context=_inside(parent),
            start_time=_ns(sample.started_at),
            attributes=attributes,
        )
        if sample.exception is not None:
            span.set_status(Status(StatusCode.ERROR, sample.exception))
        span.end(_ns(sample.stopped_at))


def sampling() -> Callable[[str], bool] | None:
    """Return a function that returns whether a new trace with that id is sampled.

    It follows OTEL_TRACES_SAMPLER, and is needed before the first span is made. Return None if
    OTEL_SDK_DISABLED is true, so that there are no spans.
    """
    with without_invalid_limits():
        provider = TracerProvider(resource=Resource.get_empty(), shutdown_on_exit=False)
    if isinstance(provider.get_tracer(SCOPE), NoOpTracer):
        return None
    sample, name = provider.sampler.should_sample, names.SPAN_COMPUTATION.name

    def sampled(trace_id: str) -> bool:
        return sample(Context(), int(trace_id, 16), name).decision is Decision.RECORD_AND_SAMPLE

    return sampled


class _GivenIds(RandomIdGenerator):
    """Generates random ids, or uses the given ids for the next span.

    The SDK takes its ids from :mod:`random`. That would change the sequence that a program expects
    which seeds it, and each of its runs would have the same ids.
    """

    _trace: int | None = None
    _span: int | None = None

    def next_are(self, trace: int, span: int) -> None:
        self._trace, self._span = trace, span

    def generate_trace_id(self) -> int:
        given, self._trace = self._trace, None
        return _drawn(128) if given is None else given

    def generate_span_id(self) -> int:
        given, self._span, self._trace = self._span, None, None
        return _drawn(64) if given is None else given


def _drawn(bits: int) -> int:
    # Zero is not a valid id.
    return secrets.randbits(bits) or _drawn(bits)


class _Allowance:
    """A rate limit per second; unused permits accumulate for one interval."""

    def __init__(self, per_second: int, interval: float) -> None:
        self._per_second = per_second
        self._most = self._left = per_second * max(interval, 1.0)
        self._at: float | None = None

    def take(self, count: int, now: float) -> int:
        """Return how many of ``count`` permits are granted at ``now``, in seconds."""
        passed = 0.0 if self._at is None else max(now - self._at, 0.0)
        self._at = now
        self._left = min(self._left + passed * self._per_second, self._most)
        granted = min(count, int(self._left))
        self._left -= granted
        return granted


def _main_prefix(groups: Iterable[protocol.TaskGroup]) -> str:
    """Return the prefix with the most task time or, if no task ran, with the most tasks."""
    weights: dict[str, tuple[float, int]] = {}
    for group in groups:
        seconds, tasks = weights.get(group.prefix, (0.0, 0))
        weights[group.prefix] = seconds + sum(group.seconds.values()), tasks + group.tasks
    return max(weights, key=weights.__getitem__)


def _error(raised: int, tasks: int) -> Status:
    """Return the status of a span whose tasks failed. Its text contains only numbers that vary."""
    if not raised:
        return Status(StatusCode.ERROR, "tasks could not run, because others had failed")
    return Status(StatusCode.ERROR, f"{raised} of {tasks} tasks raised an exception")


def _remote(context: TraceContext) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(int(context.sampled)),
        trace_state=TraceState.from_header([context.state]),
    )


def _inside(context: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(context), Context())


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
