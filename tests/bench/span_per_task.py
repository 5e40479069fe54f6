"""The naive way, for comparison: one span of OpenTelemetry's SDK per task."""

from __future__ import annotations

import asyncio
from typing import Any

from dask.typing import Key
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


class SpanPerTask(SchedulerPlugin):
    """Makes a span of every task run and sends it over OTLP/HTTP, in the background."""

    name = "span-per-task"

    def __init__(self, endpoint: str, token: str) -> None:
        self._endpoint = endpoint
        self._token = token

    async def start(self, scheduler: Scheduler) -> None:
        """Make the provider."""
        provider = TracerProvider(shutdown_on_exit=False)
        exporter = OTLPSpanExporter(
            f"{self._endpoint}/v1/traces",
            headers={"Authorization": f"Bearer {self._token}"},
            compression=Compression.Gzip,
        )
        # A queue in which nothing is dropped: dropping would be cheaper than sending.
        provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=100_000))
        self._provider = provider
        self._tracer = provider.get_tracer("naive")

    async def close(self) -> None:
        """Send what waits."""
        await asyncio.to_thread(self._provider.shutdown)

    def transition(self, key: Key, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Make a span of a run that ended."""
        if start != "processing" or finish not in ("memory", "erred"):
            return
        runs = [run for run in kwargs.get("startstops") or () if run["action"] == "compute"]
        if runs:
            span = self._tracer.start_span(
                str(key),
                start_time=int(runs[0]["start"] * 1e9),
                attributes={
                    "dask.task.key": str(key),
                    "dask.task.state": finish,
                    "dask.worker.address": str(kwargs.get("worker")),
                    "dask.task.output": kwargs.get("nbytes") or 0,
                },
            )
            span.end(int(runs[-1]["stop"] * 1e9))


async def close_spans(dask_scheduler: Scheduler) -> None:
    """Take the plugin out."""
    await dask_scheduler.plugins[SpanPerTask.name].close()
    dask_scheduler.remove_plugin(SpanPerTask.name)
