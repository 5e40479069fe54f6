"""A real Prometheus on loopback that receives OTLP, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import requests

from tests.ports import free_port
from tests.stack.part import Part, answers


class Prometheus:
    """A Prometheus in ``folder``. Use it in a with-statement.

    ``endpoint`` is where it takes metrics by OTLP over HTTP.
    """

    def __init__(self, program: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        configuration = folder / "prometheus.yaml"
        configuration.write_text("otlp:\n  promote_all_resource_attributes: true\n")
        address = f"127.0.0.1:{free_port()}"
        self._url = f"http://{address}"
        self.endpoint = f"{self._url}/api/v1/otlp/v1/metrics"
        self.part = Part(
            "Prometheus",
            [
                *(program, "--web.enable-otlp-receiver", f"--web.listen-address={address}"),
                f"--config.file={configuration}",
                f"--storage.tsdb.path={folder / 'data'}",
                # A counter is 0 at the start that it names, also where that is before its first
                # point: what the first interval counted is an increase then.
                "--enable-feature=created-timestamp-zero-ingestion",
            ],
            folder / "log",
            environment={},
            ready=lambda: answers(f"{self._url}/-/ready"),
        )

    def __enter__(self) -> Self:
        self.part.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.part.stop()

    def ask(self, query: str) -> dict[tuple[str, ...], float]:
        """Return the values of a PromQL query by the values of their labels, in sorted order."""
        answer = requests.get(f"{self._url}/api/v1/query", params={"query": query}, timeout=30)
        answer.raise_for_status()
        return {
            tuple(value for _, value in sorted(found["metric"].items())): float(found["value"][1])
            for found in answer.json()["data"]["result"]
        }

    def names(self) -> set[str]:
        """Return the names of all metrics that have arrived."""
        answer = requests.get(f"{self._url}/api/v1/label/__name__/values", timeout=30)
        answer.raise_for_status()
        return set(answer.json()["data"])
