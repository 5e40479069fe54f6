"""Traces: of whom they are, what is in them, and how they go on inside of tasks."""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import dask.array as da
import pytest
from dask.base import annotate, get_annotations
from dask.delayed import delayed
from distributed import Client, Event, LocalCluster, get_client, get_worker, wait
from opentelemetry import _logs, metrics, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import TraceFlags, TraceState

from daskscope import names
from daskscope.observe.tasks.trace_context import parse
from tests.exporter.conftest import TOKEN, Register
from tests.exporter.dask_process import dask_process
from tests.exporter.recorder import Recorder

pytestmark = pytest.mark.contract

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
CALLER = f"00-{TRACE}-{PARENT}-01"

#: Nowhere so in the text of this file, which is sent too.
SECRET = "terces-detnalp"[::-1]

#: How the name begins of what is sent to the workers.
WORKER_PLUGIN = "daskscope-task-context"

#: Trace and parent of a span that the user makes in a task, in hex; empty where there is none.
Seen = tuple[str, str]


def own_span(*_: Any) -> Seen:
    """Make a span, as a user or an instrumented library would."""
    with (
        TracerProvider(shutdown_on_exit=False).get_tracer("user").start_as_current_span("own") as s
    ):
        parent = s.parent  # type: ignore[attr-defined]
        trace_id = f"{s.get_span_context().trace_id:032x}"
        return (trace_id, f"{parent.span_id:016x}") if parent else ("", "")


def own_trace() -> tuple[str, bool]:
    with (
        TracerProvider(shutdown_on_exit=False).get_tracer("user").start_as_current_span("own") as s
    ):
        context = s.get_span_context()
        return f"{context.trace_id:032x}", context.trace_flags.sampled


def trace_state() -> str:
    return trace.get_current_span().get_span_context().trace_state.to_header()


async def own_span_async() -> Any:
    return own_span()


def own_span_of_a_task_in_a_task() -> Seen:
    seen: Seen = get_client().submit(own_span, pure=False).result()
    return seen


def fail(number: int) -> None:
    raise ZeroDivisionError(number)


def nap(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def spans(recorder: Recorder, name: str = "") -> list[Span]:
    return [
        span
        for sent in recorder.otlp(ExportTraceServiceRequest)
        for resource in sent.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if not name or span.name == name or span.name.startswith(f"{name} ")
    ]


def span_of(recorder: Recorder, name: names.SpanKind) -> Span:
    return recorder.wait_for(lambda: spans(recorder, name.name), f"a span {name.name}")[0]


def below_its_group(recorder: Recorder, seen: Seen) -> Span:
    """Wait for the span of the task group that a user's span is below, and return its parent's."""
    trace_id, parent = seen

    def group_and_computation() -> Span | None:
        by_id = {span.span_id.hex(): span for span in spans(recorder)}
        group = by_id.get(parent)
        return None if group is None else by_id.get(group.parent_span_id.hex())

    computation = recorder.wait_for(group_and_computation, "the group and its computation")
    assert names.SPAN_COMPUTATION.includes(computation.name)
    assert computation.trace_id.hex() == trace_id
    return computation


def attributes(span: Span) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in span.attributes
    }


@pytest.fixture(autouse=True)
def _send_at_once(_clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")


def told_workers(client: Client) -> bool:
    """Return whether all workers have the plugin that the scheduler has for them, and no other."""

    def ours(plugins: Any) -> list[str]:
        return [name for name in plugins if name.startswith(WORKER_PLUGIN)]

    def of_scheduler(dask_scheduler: Any) -> tuple[list[str], bool]:
        return ours(dask_scheduler.worker_plugins), "_task_to_msg" in vars(dask_scheduler)

    wanted, hands_on = client.run_on_scheduler(of_scheduler)
    found = client.run(lambda dask_worker: ours(dask_worker.plugins))
    return len(wanted) == hands_on and all(names == wanted for names in found.values())


@pytest.fixture
def traced(client: Client, register: Register) -> Client:
    """A client that has registered, once the workers know about contexts."""
    register()
    while not told_workers(client):
        pass
    return client


@pytest.fixture
def caller() -> Iterator[trace.SpanContext]:
    """A span of the caller's, current in this test."""
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("caller")
    with tracer.start_as_current_span("request") as span:
        yield span.get_span_context()


# --- from the caller ------------------------------------------------------------------------------


def test_a_computation_belongs_to_the_span_that_is_active_when_it_is_submitted(
    traced: Client, recorder: Recorder, caller: trace.SpanContext
) -> None:
    da.ones(10, chunks=5).sum().compute()

    span = span_of(recorder, names.SPAN_COMPUTATION)
    assert span.trace_id.hex() == f"{caller.trace_id:032x}"
    assert span.parent_span_id.hex() == f"{caller.span_id:016x}"
    assert recorder.computation().trace_id == span.trace_id.hex()
    group = span_of(recorder, names.SPAN_TASK_GROUP)
    assert (group.trace_id, group.parent_span_id) == (span.trace_id, span.span_id)


@pytest.mark.parametrize("layer", [False, True])
def test_a_computation_belongs_to_the_traceparent_in_its_annotations(
    cluster: LocalCluster, register: Register, recorder: Recorder, layer: bool
) -> None:
    register()
    with Client(cluster, set_as_default=False) as unregistered:
        if layer:
            with annotate(traceparent=CALLER):
                lazy = da.ones(10, chunks=5).sum()
            unregistered.compute(lazy, optimize_graph=False).result()
        else:
            with annotate(traceparent=CALLER):
                unregistered.submit(nap, 0.0, pure=False).result()

    span = span_of(recorder, names.SPAN_COMPUTATION)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)


@pytest.mark.parametrize("header", [CALLER, f"01-{TRACE}-{PARENT}-01-later"])
def test_a_computation_belongs_to_the_trace_of_the_pipeline_that_started_the_program(
    register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    monkeypatch.setenv("TRACEPARENT", header)
    monkeypatch.setenv("TRACESTATE", "vendor=1")
    register()
    da.ones(10, chunks=5).sum().compute()

    span = span_of(recorder, names.SPAN_COMPUTATION)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert span.trace_state == "vendor=1"


def test_what_is_no_context_in_the_environment_is_ignored(
    register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", "00-not-hex")
    register()
    da.ones(10, chunks=5).sum().compute()

    assert not span_of(recorder, names.SPAN_COMPUTATION).parent_span_id


def test_a_state_in_the_environment_that_could_not_be_sent_is_left_out(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", CALLER)
    monkeypatch.setenv("TRACESTATE", "vendor=\udcff")  # a byte that is no UTF-8
    register()
    while not told_workers(client):
        pass
    seen = client.submit(own_span, pure=False).result(timeout=60)
    assert below_its_group(recorder, seen).trace_state == ""


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("vendor=x:1, other=y", True),
        ("9tenant@system=a b", True),
        ("a=b,,c=d,", True),
        ("a=" + "b" * 300, False),
        ("A=b", False),
        ("a==b", False),
        ("=", False),
        ("nonsense", False),
        ("a=\tb", False),
        (",".join(f"k{number}=v" for number in range(33)), False),
    ],
)
def test_a_state_is_handed_on_only_if_none_who_reads_it_complains(
    state: str, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    context = parse(CALLER, state)
    assert context is not None
    assert context.state == (state if told else "")
    TraceState.from_header([context.state])
    assert not caplog.records


def test_the_active_span_goes_before_the_environment(
    cluster: LocalCluster,
    register: Register,
    recorder: Recorder,
    caller: trace.SpanContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRACEPARENT", CALLER)
    register()
    da.ones(10, chunks=5).sum().compute()

    assert span_of(recorder, names.SPAN_COMPUTATION).trace_id.hex() == f"{caller.trace_id:032x}"


def test_the_users_own_annotation_goes_before_the_active_span(
    traced: Client, recorder: Recorder, caller: trace.SpanContext
) -> None:
    with annotate(traceparent=CALLER):
        traced.submit(nap, 0.0, pure=False).result()
    assert span_of(recorder, names.SPAN_COMPUTATION).trace_id.hex() == TRACE


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        3,
        f"00-{TRACE}-{PARENT}",
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"ff-{TRACE}-{PARENT}-01",
    ],
)
def test_what_is_no_trace_context_is_ignored(
    traced: Client, recorder: Recorder, header: object
) -> None:
    with annotate(traceparent=header):
        assert traced.submit(own_span, pure=False).result() == ("", "")
    span = span_of(recorder, names.SPAN_COMPUTATION)
    assert span.trace_id.hex() != TRACE
    assert not span.parent_span_id


def test_a_caller_that_does_not_sample_gets_no_spans_but_its_id_is_told(
    traced: Client, recorder: Recorder
) -> None:
    tracer = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False).get_tracer("caller")
    with trace.use_span(tracer.start_span("request")) as span:
        trace_id, sampled = traced.submit(own_trace, pure=False).result()
        unsampled = f"{span.get_span_context().trace_id:032x}"
    recorder.computation(lambda row: row.trace_id == unsampled)
    # What comes after it is told: so the other would have been.
    traced.submit(nap, 0.0, pure=False).result()
    assert unsampled not in {span.trace_id.hex() for span in spans(recorder)}
    assert span_of(recorder, names.SPAN_COMPUTATION).trace_id.hex() != unsampled
    assert (trace_id, sampled) == (unsampled, False)


def test_what_tracing_systems_tell_each_other_goes_along(
    traced: Client, recorder: Recorder
) -> None:
    state = TraceState([("vendor", "x:1"), ("other", "y")])
    caller = trace.SpanContext(int(TRACE, 16), int(PARENT, 16), False, TraceFlags(1), state)
    with trace.use_span(trace.NonRecordingSpan(caller)):
        assert traced.submit(trace_state, pure=False).result() == "vendor=x:1,other=y"
    span_of(recorder, names.SPAN_COMPUTATION)
    told = spans(recorder)
    assert {span.name.partition(" ")[0] for span in told} == {span.name for span in names.SPANS}
    assert {span.trace_state for span in told} == {"vendor=x:1,other=y"}


@pytest.mark.parametrize("state", ["nonsense", 3, f"password={SECRET}", "a=" + "b" * 600])
def test_what_is_no_state_of_a_trace_or_a_secret_is_not_told(
    traced: Client, recorder: Recorder, state: object
) -> None:
    with annotate(traceparent=CALLER, tracestate=state):
        seen = traced.submit(own_span, pure=False).result()
    assert below_its_group(recorder, seen).trace_id.hex() == TRACE
    assert {span.trace_state for span in spans(recorder)} == {""}
    assert SECRET.encode() not in recorder.bytes


def test_new_traces_are_sampled_as_the_environment_of_the_scheduler_says(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    register()
    while not told_workers(client):
        pass
    trace_id, sampled = client.submit(own_trace, pure=False).result()
    assert not sampled
    recorder.computation(lambda row: row.trace_id == trace_id)
    # What the caller keeps is kept.
    with annotate(traceparent=CALLER):
        client.submit(nap, 0.0, pure=False).result()
    assert span_of(recorder, names.SPAN_COMPUTATION).trace_id.hex() == TRACE
    assert {span.trace_id.hex() for span in spans(recorder)} == {TRACE}


def test_each_client_has_its_own_callers(
    cluster: LocalCluster, traced: Client, recorder: Recorder, caller: trace.SpanContext
) -> None:
    import daskscope

    with Client(cluster, set_as_default=False) as other, Client(cluster) as unregistered:
        daskscope.register(other, endpoint=recorder.url, token=TOKEN, interval="100ms")
        expected = f"{caller.trace_id:032x}"
        assert traced.submit(own_span, pure=False).result()[0] == expected
        tracer = TracerProvider(shutdown_on_exit=False).get_tracer("caller")
        with tracer.start_as_current_span("another", context=Context()) as span:
            context = span.get_span_context()
            seen = other.submit(own_span, pure=False).result()
            assert seen[0] == f"{context.trace_id:032x}"
        assert unregistered.submit(own_span, pure=False).result()[0] not in ("", expected)
    assert traced.submit(own_span, pure=False).result()[0] == expected


def test_an_asynchronous_client_tells_of_its_callers(
    cluster: LocalCluster, recorder: Recorder
) -> None:
    import daskscope

    async def requests() -> list[tuple[Seen, str]]:
        tracer = TracerProvider(shutdown_on_exit=False).get_tracer("caller")

        async def request(client: Client) -> tuple[Seen, str]:
            with tracer.start_as_current_span("request") as span:
                context = span.get_span_context()
                await asyncio.sleep(0)
                seen: Any = client.submit(own_span, pure=False)
                return await seen, f"{context.trace_id:032x}"

        async with Client(cluster.scheduler_address, asynchronous=True) as client:
            await daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
            while not all((await client.run(_has_plugin)).values()):
                pass
            return await asyncio.gather(*(request(client) for _ in range(5)))

    seen = asyncio.run(requests())
    assert [trace_id for (trace_id, _), _ in seen] == [expected for _, expected in seen]
    assert len({trace_id for (trace_id, _), _ in seen}) == 5


def _has_plugin(dask_worker: Any) -> bool:
    return any(name.startswith(WORKER_PLUGIN) for name in dask_worker.plugins)


def test_one_line_that_serves_two_callers_makes_two_computations(
    traced: Client, recorder: Recorder
) -> None:
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("caller")
    gate = Event(recorder.url, client=traced)
    futures = []
    for _ in range(2):
        with tracer.start_as_current_span("request"):
            futures += [traced.submit(gate_of, recorder.url, pure=False) for _ in range(2)]
    # Else the first might end before the second has arrived.
    recorder.wait_for(
        lambda: [row.tasks for row in recorder.computations().values()] == [2, 2], "all graphs"
    )
    gate.set()
    wait(futures)
    recorder.wait_for(
        lambda: [row.completed for row in recorder.computations().values()] == [2, 2],
        "two computations of two tasks",
    )


def gate_of(name: str) -> None:
    Event(name).wait()


# --- into the tasks -------------------------------------------------------------------------------


def test_spans_made_in_tasks_are_below_their_group_in_the_callers_trace(
    traced: Client, recorder: Recorder, caller: trace.SpanContext
) -> None:
    seen: list[Seen] = [
        traced.submit(own_span, pure=False).result(),
        *traced.gather(traced.map(own_span, range(3), pure=False)),
        delayed(own_span)().compute(),
        traced.compute(delayed(own_span)(1)).result(),
        traced.persist(delayed(own_span)(2)).compute(),
    ]
    of_coroutine: Any = traced.submit(own_span_async, pure=False)
    seen.append(of_coroutine.result())
    for one in seen:
        computation = below_its_group(recorder, one)
        assert computation.trace_id.hex() == f"{caller.trace_id:032x}"
        assert computation.parent_span_id.hex() == f"{caller.span_id:016x}"
    told = {span.span_id.hex(): span.name for span in spans(recorder)}
    assert {told[parent] for _, parent in seen} == {
        names.SPAN_TASK_GROUP.of(prefix) for prefix in ("own_span", "own_span_async")
    }


def test_spans_made_in_tasks_are_below_the_group_of_their_own_task(
    traced: Client, recorder: Recorder
) -> None:
    first = delayed(own_span)()
    second = delayed(own_trace_after)(first)
    seen = second.compute()
    told = {span.span_id.hex(): span for span in spans(recorder)}
    recorder.wait_for(lambda: len(spans(recorder, names.SPAN_TASK_GROUP.name)) == 2, "both groups")
    told = {span.span_id.hex(): span for span in spans(recorder)}
    assert [told[parent].name for _, parent in seen] == [
        names.SPAN_TASK_GROUP.of("own_span"),
        names.SPAN_TASK_GROUP.of("own_trace_after"),
    ]


def own_trace_after(first: Seen) -> tuple[Seen, Seen]:
    return first, own_span()


def test_spans_made_in_tasks_of_no_caller_join_the_computations_trace(
    traced: Client, recorder: Recorder
) -> None:
    seen = traced.submit(own_span, pure=False).result()
    assert not below_its_group(recorder, seen).parent_span_id


@pytest.mark.own_cluster
def test_a_group_of_which_no_run_ended_has_a_span_for_those_that_its_tasks_made(
    traced: Client, recorder: Recorder
) -> None:
    gate, told = Event(f"{recorder.url}/gate", client=traced), Event(recorder.url, client=traced)
    future = traced.submit(own_span_and_wait, recorder.url, pure=False)
    told.wait()
    seen = traced.get_metadata("seen")
    future.cancel()
    gate.set()
    computation = below_its_group(recorder, tuple(seen))
    assert attributes(computation)[names.COMPUTATION_STATUS] == "cancelled"
    (group,) = spans(recorder, names.SPAN_TASK_GROUP.name)
    assert computation.start_time_unix_nano <= group.start_time_unix_nano
    assert group.start_time_unix_nano <= group.end_time_unix_nano
    assert group.end_time_unix_nano <= computation.end_time_unix_nano


def own_span_and_wait(url: str) -> None:
    get_client().set_metadata("seen", own_span())
    Event(url).set()
    Event(f"{url}/gate").wait()


def test_what_runs_again_is_of_the_trace_of_whoever_asked_for_it(
    traced: Client, recorder: Recorder
) -> None:
    first, after = ("seen-again", 0), ("seen-again-after", 0)
    graph: dict[Any, Any] = {first: (own_span, 0), after: (list, first)}
    (kept,) = traced.get(graph, [after], sync=False)
    before = kept.result()
    recorder.wait_for(
        lambda: traced.run_on_scheduler(
            lambda dask_scheduler: dask_scheduler.tasks[first].state == "released"
        ),
        "Dask to let go of the result",
    )
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("caller")
    with tracer.start_as_current_span("request") as caller:
        ((trace_id, parent),) = traced.get(graph, [first])
    assert trace_id == f"{caller.get_span_context().trace_id:032x}" != before[0]

    span = recorder.wait_for(
        lambda: next(
            (
                span
                for span in spans(recorder, names.SPAN_COMPUTATION.name)
                if span.trace_id.hex() == trace_id
            ),
            None,
        ),
        "the second computation's span",
    )
    assert span.parent_span_id.hex() == f"{caller.get_span_context().span_id:016x}"
    assert below_its_group(recorder, (trace_id, parent)) == span


def test_a_context_does_not_leak_from_task_to_task(traced: Client) -> None:
    with annotate(traceparent=CALLER):
        marked: list[Any] = traced.map(own_span, range(20), pure=False)
        marked += [traced.submit(own_span_async, pure=False) for _ in range(5)]
    others: list[Any] = traced.map(own_span, range(20), pure=False)
    others += [traced.submit(own_span_async, pure=False) for _ in range(5)]
    assert {trace_id for trace_id, _ in traced.gather(marked)} == {TRACE}
    assert TRACE not in {trace_id for trace_id, _ in traced.gather(others)}


def test_what_a_task_submits_is_of_the_same_trace(traced: Client, recorder: Recorder) -> None:
    with annotate(traceparent=CALLER):
        outer = traced.submit(own_span_of_a_task_in_a_task, pure=False)
    inner = below_its_group(recorder, outer.result())
    recorder.wait_for(
        lambda: (
            [span.trace_id.hex() for span in spans(recorder, "dask.computation")] == [TRACE] * 2
        ),
        "both computations in the caller's trace",
    )
    # What a task submits is below the group of that task, as all that it does.
    outer_one = below_its_group(recorder, (TRACE, inner.parent_span_id.hex()))
    assert outer_one.parent_span_id.hex() == PARENT


@pytest.mark.usefixtures("caller")
@pytest.mark.parametrize("own", [{}, {"retries": 2, "mine": "x"}], ids=["none", "some"])
def test_users_meet_no_annotations_but_their_own(traced: Client, own: dict[str, Any]) -> None:
    def of_this_task() -> tuple[dict[str, Any], dict[str, Any], Seen]:
        worker = get_worker()
        task = worker.state.tasks[worker.get_current_task()]
        return dict(task.annotations or {}), get_annotations(), own_span()

    def of_task(dask_scheduler: Any, key: str) -> dict[str, Any]:
        return dict(dask_scheduler.tasks[key].annotations or {})

    with annotate(**own):
        futures = [
            traced.submit(of_this_task, pure=False),
            # Of a task of a task, and of some of a collection.
            traced.submit(lambda: get_client().submit(of_this_task, pure=False).result()),
            *traced.compute([delayed(of_this_task, pure=False)() for _ in range(2)]),
        ]
        told = traced.gather(futures)
    for of_worker, visible, (trace_id, _) in told:
        assert set(of_worker) <= set(own)
        assert "traceparent" not in visible
        assert not [name for name in visible if "daskscope" in name]
        assert trace_id
    assert [told[0][0], told[2][0]] == [own, own]
    for future in futures:
        assert traced.run_on_scheduler(of_task, key=future.key) == own


@pytest.mark.uncounted("its plugin goes before its last task")
@pytest.mark.own_cluster
def test_workers_that_come_later_know_and_forget_when_the_plugin_goes(
    cluster: LocalCluster, traced: Client
) -> None:
    cluster.scale(2)
    traced.wait_for_workers(2)
    while not told_workers(traced):
        pass
    assert wrapped(traced) == [True, True]
    traced.run_on_scheduler(_remove)
    while any(wrapped(traced)):
        pass
    assert told_workers(traced)
    assert traced.submit(own_span, pure=False).result() == ("", "")


@pytest.mark.own_cluster
def test_the_users_own_spans_go_on_in_tasks_to_a_backend_of_the_users_own(
    traced: Client, recorder: Recorder
) -> None:
    with Recorder() as backend:
        endpoint = f"{backend.url}/v1/traces"
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint)))
        traced.run(use_a_provider_of_its_own, endpoint)
        with provider.get_tracer("user").start_as_current_span("request"):
            assert traced.submit(step_of_the_users, pure=False).result() == "user"
        provider.shutdown()

        request, step = span_of_name(backend, "request"), span_of_name(backend, "step")
        computation = span_of(recorder, names.SPAN_COMPUTATION)
        assert (computation.trace_id, computation.parent_span_id) == (
            request.trace_id,
            request.span_id,
        )
        of_step = step.trace_id.hex(), step.parent_span_id.hex()
        assert below_its_group(recorder, of_step) == computation
        assert not [span for span in spans(backend) if span.name.startswith("dask.")]
        assert not [span for span in spans(recorder) if not span.name.startswith("dask.")]
    # In this process runs the scheduler, with the plugin.
    assert trace._TRACER_PROVIDER is None
    assert _logs._internal._LOGGER_PROVIDER is None
    assert metrics._internal._METER_PROVIDER is None


def use_a_provider_of_its_own(endpoint: str) -> None:
    provider = TracerProvider(resource=Resource({"service.name": "user"}))
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint)))
    trace.set_tracer_provider(provider)


def step_of_the_users() -> Any:
    with trace.get_tracer("user").start_as_current_span("step") as span:
        return span.resource.attributes["service.name"]  # type: ignore[attr-defined]


def span_of_name(recorder: Recorder, name: str) -> Span:
    return recorder.wait_for(lambda: spans(recorder, name), f"a span {name}")[0]


@pytest.mark.own_cluster
@pytest.mark.parametrize("lacks", ["opentelemetry", "daskscope"])
def test_a_worker_that_lacks_what_it_takes_is_unharmed(
    cluster: LocalCluster, traced: Client, recorder: Recorder, lacks: str
) -> None:
    preload = f"import sys; sys.modules[{lacks!r}] = None"
    wanted = int(TRACE, 16)

    # In here, so that it is sent by value: this file needs both.
    def what_is_there() -> tuple[bool, bool]:
        """Return whether the package is there, and whether this task has its context."""
        try:
            importlib.import_module(lacks)
            found = True
        except ImportError:
            found = False
        try:
            api: Any = importlib.import_module("opentelemetry.trace")
        except ImportError:
            return found, False
        return found, api.get_current_span().get_span_context().trace_id == wanted

    name = ["--name", "bare", "--no-nanny", "--no-dashboard"]
    worker = ["worker", cluster.scheduler_address, *name, "--preload", preload]
    with dask_process(*worker, python=sys.executable):  # which has imported nothing yet
        traced.wait_for_workers(2)
        while not told_workers(traced):
            pass
        with annotate(traceparent=CALLER):
            future: Any = traced.submit(
                what_is_there, workers="bare", allow_other_workers=False, pure=False
            )
        # That takes OpenTelemetry alone.
        assert future.result() == (False, lacks == "daskscope")
        assert span_of(recorder, names.SPAN_COMPUTATION).trace_id.hex() == TRACE


@pytest.mark.own_cluster
def test_shuffles_between_workers_work(cluster: LocalCluster, traced: Client) -> None:
    cluster.scale(2)
    traced.wait_for_workers(2)
    array = da.arange(400, chunks=20).reshape((20, 20)).rechunk((20, 1))
    shuffled = array.rechunk((1, 20), method="p2p").compute()
    assert shuffled.tolist() == [list(range(first, first + 20)) for first in range(0, 400, 20)]


def _remove(dask_scheduler: Any) -> None:
    del dask_scheduler.plugins["daskscope"]


def wrapped(client: Client) -> list[bool]:
    found = client.run(lambda dask_worker: "execute" in vars(dask_worker))
    return list(found.values())


# --- what is in a trace ---------------------------------------------------------------------------


def test_failed_and_slowest_tasks_have_spans_below_their_group(
    traced: Client, recorder: Recorder
) -> None:
    tasks = [delayed(nap)(number / 100) for number in (0, 20, 1, 2)]
    tasks += [delayed(fail)(number) for number in range(3)]
    wait(traced.compute(tasks))

    span_of(recorder, names.SPAN_COMPUTATION)
    groups = {
        attributes(span)[names.TASK_PREFIX]: span for span in spans(recorder, "dask.task_group")
    }
    below = {
        prefix: [s for s in spans(recorder, "dask.task") if s.parent_span_id == group.span_id]
        for prefix, group in groups.items()
    }
    assert {prefix: len(found) for prefix, found in below.items()} == {"nap": 4, "fail": 3}
    for prefix, found in below.items():
        assert attributes(groups[prefix])[names.TASK_GROUP_SAMPLED] == len(found)
    for span in below["fail"]:
        told = attributes(span)
        assert (told[names.TASK_OUTCOME], told[names.EXCEPTION_TYPE]) == (
            "erred",
            "ZeroDivisionError",
        )
        assert span.name == names.SPAN_TASK.of("fail")
        assert (span.status.code, span.status.message) == (2, "ZeroDivisionError")
        assert told[names.WORKER_ADDRESS].startswith("tcp://")
    (computation,) = spans(recorder, names.SPAN_COMPUTATION.name)
    assert computation.status.message == "3 of 7 tasks raised an exception"
    assert groups["fail"].status.message == "3 of 3 tasks raised an exception"
    assert {span.status.message for span in [groups["nap"], *below["nap"]]} == {""}
    longest = max(span.end_time_unix_nano - span.start_time_unix_nano for span in below["nap"])
    assert longest >= 0.2e9


def test_groups_are_linked_to_the_groups_that_they_need(traced: Client, recorder: Recorder) -> None:
    first = delayed(nap)(0.0)
    delayed(max)([first, first]).compute()

    span_of(recorder, names.SPAN_COMPUTATION)
    groups = {
        attributes(span)[names.TASK_PREFIX]: span for span in spans(recorder, "dask.task_group")
    }
    assert [link.span_id for link in groups["max"].links] == [groups["nap"].span_id]
    assert not groups["nap"].links


def test_a_computation_that_never_ends_leaves_a_trail(
    traced: Client, recorder: Recorder, caller: trace.SpanContext
) -> None:
    futures: list[Any] = []

    def told_twice() -> list[LogRecord]:
        # All from this line: one computation.
        futures.append(traced.submit(nap_or_wait, len(futures), recorder.url, pure=False))
        wait(futures[1:])
        records = progress(recorder)
        return records if len(records) > 1 else []

    records = recorder.wait_for(told_twice, "progress, again and again")
    assert {record.trace_id.hex() for record in records} == {f"{caller.trace_id:032x}"}
    told = [done_of(record) for record in records]
    assert told == sorted(set(told))
    assert all(0 < done < tasks for done, tasks in told)
    assert b"dask.computation.finished" not in recorder.bytes
    Event(recorder.url, client=traced).set()
    wait(futures)


def nap_or_wait(number: int, gate: str) -> None:
    if number == 0:
        Event(gate).wait()
    time.sleep(0.01)


def progress(recorder: Recorder) -> list[LogRecord]:
    return [
        record
        for sent in recorder.otlp(ExportLogsServiceRequest)
        for resource in sent.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
        if record.event_name == names.LOG_COMPUTATION_PROGRESS.name
    ]


def done_of(record: LogRecord) -> tuple[int, int]:
    told = {pair.key: pair.value.int_value for pair in record.attributes}
    return told[names.COMPUTATION_DONE], told[names.COMPUTATION_TASKS]


def test_tasks_get_no_more_spans_than_the_settings_say(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(traces__tasks_per_group=4)
    wait(client.map(fail, range(30)) + client.map(nap, [0.0] * 30, pure=False))

    recorder.computation(lambda row: row.erred == 30)
    span_of(recorder, names.SPAN_COMPUTATION)
    prefixes = [attributes(span)[names.TASK_PREFIX] for span in spans(recorder, "dask.task")]
    assert prefixes.count("fail") == 4


def test_what_is_over_the_rate_has_no_span_and_is_counted(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(traces__max_spans_per_second=2, traces__tasks_per_group=10, interval="1s")
    wait(client.map(nap, [0.0] * 9, pure=False))

    span_of(recorder, names.SPAN_COMPUTATION)
    assert len(spans(recorder, "dask.task")) == 2
    recorder.wait_for(lambda: recorder.beats[-1].drops.get("sampled task span") == 7, "the count")


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.own_cluster
def test_without_traces_there_are_none(
    client: Client, register: Register, recorder: Recorder, caller: trace.SpanContext
) -> None:
    register(traces__transmit=False)
    with annotate(traceparent=CALLER):
        client.submit(nap, 0.0, pure=False).result()
    assert client.submit(own_span, pure=False).result() == ("", "")
    assert recorder.computation(lambda row: row.completed).trace_id is None
    recorder.wait_for(lambda: b"dask.computation.finished" in recorder.bytes, "the log")
    assert "_graph_to_futures" not in vars(client)
    client.run_on_scheduler(_end)
    recorder.wait_for(lambda: b"dask.cluster.stopped" in recorder.bytes, "the end")
    assert wrapped(client) == [False]
    assert not spans(recorder)
    assert TRACE.encode() not in recorder.bytes
    for sent in recorder.otlp(ExportLogsServiceRequest):
        for resource in sent.resource_logs:
            for scope in resource.scope_logs:
                assert not any(record.trace_id for record in scope.log_records)


@pytest.mark.usefixtures("registered_without_otlp")
def test_without_otlp_no_trace_is_begun_and_the_callers_goes_on(
    client: Client, recorder: Recorder
) -> None:
    while not told_workers(client):
        pass
    # The span that it would be part of is never sent.
    assert client.submit(own_span, pure=False).result() == ("", "")
    assert set(client.gather(client.map(own_span, range(3), pure=False))) == {("", "")}
    with annotate(traceparent=CALLER):
        assert client.submit(own_span, pure=False).result() == (TRACE, PARENT)
        outer = client.submit(own_span_of_a_task_in_a_task, pure=False)
        assert outer.result() == (TRACE, PARENT)
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("caller")
    with tracer.start_as_current_span("request") as span:
        context = span.get_span_context()
        seen = client.submit(own_span, pure=False).result()
        assert seen == (f"{context.trace_id:032x}", f"{context.span_id:016x}")
    assert recorder.computation(lambda row: row.completed).trace_id is None
    assert not spans(recorder)


async def _end(dask_scheduler: Any) -> None:
    await dask_scheduler.plugins["daskscope"].close()


def test_a_second_client_cannot_ask_for_traces_that_the_first_refused(
    cluster: LocalCluster, register: Register
) -> None:
    import daskscope

    register(traces__transmit=False)
    with Client(cluster, set_as_default=False) as other:
        daskscope.register(other, token="dsk_another_one", endpoint="http://127.0.0.1:1")
        assert "_graph_to_futures" not in vars(other)
