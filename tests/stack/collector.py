"""A real collector on loopback, with the very configurations that are in ``collector_config``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

import requests

from tests.patience import wait_until
from tests.ports import free_port
from tests.stack.influxdb import InfluxDB
from tests.stack.part import Part, answers

_PATIENCE = 120.0

CONFIGURATIONS = Path(__file__).parents[2] / "collector_config"


class Collector:
    """A collector that keeps its queue in ``folder``. Use it in a with-statement.

    ``configurations`` are files: names are those in ``collector_config``. ``environment`` is what
    they read, beside addresses, which are free ports on loopback.
    """

    def __init__(
        self,
        program: Path,
        folder: Path,
        configurations: Iterable[str | Path],
        environment: Mapping[str, str],
    ) -> None:
        self._telemetry = free_port()
        self._health = free_port()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.queue = folder / "queue"
        folder.mkdir(parents=True, exist_ok=True)
        command: list[str | Path] = [program]
        for configuration in configurations:
            command += ["--config", CONFIGURATIONS / configuration]
        self.part = Part(
            "the collector",
            command,
            folder / "log",
            environment={
                "QUEUE_DIRECTORY": str(self.queue),
                "OTLP_HTTP_ENDPOINT": f"127.0.0.1:{self.port}",
                "OTLP_GRPC_ENDPOINT": f"127.0.0.1:{free_port()}",
                "HEALTH_ENDPOINT": f"127.0.0.1:{self._health}",
                "TELEMETRY_PORT": str(self._telemetry),
                "PROMETHEUS_ENDPOINT": f"127.0.0.1:{free_port()}",
                **environment,
            },
            ready=lambda: answers(f"http://127.0.0.1:{self._health}"),
        )

    def __enter__(self) -> Self:
        self.part.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.part.stop()

    @property
    def telemetry_url(self) -> str:
        """Where it tells of itself, for Prometheus."""
        return f"http://127.0.0.1:{self._telemetry}/metrics"

    def told(self, metric: str) -> dict[str, float]:
        """Return the points of one of its own metrics, by their labels as they are written."""
        lines = requests.get(self.telemetry_url, timeout=5).text.splitlines()
        found = (line.removeprefix(metric) for line in lines if line.startswith(metric + "{"))
        return {
            labels: float(value) for labels, _, value in (text.rpartition(" ") for text in found)
        }

    def drain(self) -> None:
        """Return once nothing waits: no trace for the rest of it, nothing in an exporter's queue.

        Nothing may come in meanwhile.
        """
        # In this order: a trace is in the queue by the time that it no longer waits for its rest.
        wait_until(
            lambda: (
                not self._traces_held()
                and not any(self.told("otelcol_exporter_queue_size").values())
            ),
            what=self.part.last_lines,
        )

    def _traces_held(self) -> float:
        """Return how many traces it has not yet decided on: it waits for spans that come late."""
        came, decided = (
            sum(self.told(f"otelcol_processor_tail_sampling_{what}_total").values())
            for what in ("new_trace_id_received", "global_count_traces_sampled")
        )
        return came - decided

    def complaints(self) -> list[str]:
        """Return the lines of its log that are warnings or errors."""
        lines = self.part.log.read_text(encoding="utf-8").splitlines()
        return [line for line in lines if "\terror\t" in line or "\twarn\t" in line]


def into(database: InfluxDB) -> str:
    """Return the configuration that writes into ``database``."""
    return f"influxdb{database.major}.yaml"
