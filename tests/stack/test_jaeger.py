"""One trace, from who asked to the user's own span in a task, as Jaeger shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distributed import Client, wait
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import daskscope
from daskscope import names
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.patience import START_PATIENCE, wait_until
from tests.stack import build
from tests.stack.conftest import built
from tests.stack.jaeger import Jaeger, Seen

pytestmark = pytest.mark.slow


def provider(endpoint: str, service: str) -> TracerProvider:
    """Return what sends each span as it ends, as a program of users may have it."""
    made = TracerProvider(resource=Resource({"service.name": service}), shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint)))
    return made


def load(endpoint: str) -> None:
    with provider(endpoint, "storage").get_tracer("user").start_as_current_span("read file"):
        pass


def fail(number: int) -> None:
    raise ValueError(f"no {number}")


@pytest.fixture(scope="module")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jaeger]:
    with Jaeger(built(build.JAEGER), tmp_path_factory.mktemp("jaeger")) as jaeger:
        yield jaeger


@pytest.fixture(scope="module")
def spans(jaeger: Jaeger) -> list[Seen]:
    """The spans of the trace of a request."""
    settings = {
        "DASK_DASKSCOPE__OTLP__ONLY": "true",
        "DASK_DASKSCOPE__INTERVAL": "200ms",
        "DASK_DASKSCOPE__LOGS__TRANSMIT": "false",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": jaeger.endpoint,
    }
    caller = provider(jaeger.endpoint, "web").get_tracer("web")
    with (
        scheduler_process("--preload", "daskscope", **settings) as scheduler,
        worker_process(scheduler.address),
        Client(scheduler.address) as client,
    ):
        client.wait_for_workers(1, timeout=START_PATIENCE)
        daskscope.register(client, otlp__only=True)
        with caller.start_as_current_span("nightly report") as root:
            wait([client.submit(load, jaeger.endpoint)], timeout=START_PATIENCE)
            wait([client.submit(fail, 7)], timeout=START_PATIENCE)
            id = trace.format_trace_id(root.get_span_context().trace_id)
        wait_until(lambda: len(jaeger.trace(id)) >= 8, what="the spans in Jaeger")
    return jaeger.trace(id)


def named(spans: list[Seen], name: str) -> Seen:
    (found,) = (span for span in spans if span.name == name)
    return found


def test_a_users_span_leads_up_to_who_asked(spans: list[Seen]) -> None:
    by_id = {span.id: span for span in spans}
    way = [named(spans, "read file")]
    while way[-1].parent:
        way.append(by_id[way[-1].parent])
    assert [(span.service, span.name) for span in way] == [
        ("storage", "read file"),
        ("dask", f"{names.SPAN_TASK_GROUP.name} load"),
        ("dask", f"{names.SPAN_COMPUTATION.name} load"),
        ("web", "nightly report"),
    ]


def test_a_failed_task_is_an_error_with_the_exception(spans: list[Seen]) -> None:
    failed = named(spans, f"{names.SPAN_TASK.name} fail")
    assert failed.tags["error"] is True
    assert failed.tags["otel.status_code"] == "ERROR"
    assert "ValueError" in failed.tags["otel.status_description"]
    assert "error" not in named(spans, f"{names.SPAN_TASK.name} load").tags
