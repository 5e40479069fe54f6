"""A real Jaeger on loopback, that keeps spans in its memory and receives them by OTLP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import requests

from tests.ports import free_port
from tests.stack.part import Part, answers

#: Its ports, of which a test needs two.
_PORTS = (
    *("admin.http", "collector.grpc-server", "collector.http-server", "collector.otlp.grpc"),
    *("collector.otlp.http", "query.grpc-server", "query.http-server"),
)


@dataclass(frozen=True, slots=True)
class Seen:
    """A span as Jaeger shows it. ``parent`` is the id of another span, "" for none."""

    id: str
    trace: str
    service: str
    name: str
    parent: str
    tags: dict[str, Any]


class Jaeger:
    """A Jaeger in ``folder``. Use it in a with-statement.

    ``endpoint`` is where it takes spans by OTLP over HTTP.
    """

    def __init__(self, program: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        ports = {name: free_port() for name in _PORTS}
        self._url = f"http://127.0.0.1:{ports['query.http-server']}"
        self.endpoint = f"http://127.0.0.1:{ports['collector.otlp.http']}/v1/traces"
        self.part = Part(
            "Jaeger",
            [program, *(f"--{name}.host-port=127.0.0.1:{port}" for name, port in ports.items())],
            folder / "log",
            environment={"SPAN_STORAGE_TYPE": "memory"},
            ready=lambda: answers(f"{self._url}/api/services"),
        )

    def __enter__(self) -> Self:
        self.part.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Asked to end, it takes ten seconds, and what it keeps is in its memory.
        self.part.stop("KILL")

    def trace(self, id: str) -> list[Seen]:
        """Return the spans of a trace, none where there is no such trace."""
        answer = requests.get(f"{self._url}/api/traces/{id}", timeout=30)
        if answer.status_code == 404:
            return []
        answer.raise_for_status()
        (found,) = answer.json()["data"]
        services = {key: process["serviceName"] for key, process in found["processes"].items()}
        return [
            Seen(
                span["spanID"],
                span["traceID"],
                services[span["processID"]],
                span["operationName"],
                _parent(span),
                {tag["key"]: tag["value"] for tag in span["tags"]},
            )
            for span in found["spans"]
        ]


def _parent(span: dict[str, Any]) -> str:
    # Links are references, too.
    above = (to["spanID"] for to in span["references"] if to["refType"] == "CHILD_OF")
    return next(above, "")
