"""Sends a log event by OTLP for each new finding, to a collector beside InfluxDB or any other.

The plugin cannot send it: findings are made here, of stored rows. Events wait in memory, so those
of the last seconds are lost if the process is killed; the findings themselves are not.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from sqlalchemy import Engine

from daskscope import names
from daskscope.version import __version__
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster
from daskscope_service.db.scope import Item, Scope
from daskscope_service.queries.mutes import may_be_muted, mutes_of
from daskscope_service.service_metrics import ServiceMetrics
from daskscope_service.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds between two requests.
SEND_SECONDS = 5.0

#: Work that began longer ago is no news: rules that changed may find something in all of it.
_BEGAN_WITHIN = 86400.0
#: The most events that wait, and that one request carries.
_MOST_WAITING, _TOGETHER = 2000, 200
#: Seconds to connect, and to wait for an answer.
_TIMEOUT = (3.0, 5.0)

_SEVERITIES = {
    "critical": (SeverityNumber.SEVERITY_NUMBER_ERROR, "ERROR"),
    "warning": (SeverityNumber.SEVERITY_NUMBER_WARN, "WARN"),
}


class FindingEvents:
    """Sends the findings that :meth:`report` gets to the receiver that the settings name, if any.

    Notices, effects of other findings and muted findings are no news. Those that may be muted wait
    until that is known.
    """

    def __init__(
        self, engine: Engine, settings: Settings, silent_after: float, instruments: ServiceMetrics
    ) -> None:
        self._engine = engine
        self._silent_after = silent_after
        self._pages = settings.url
        self._receiver = settings.otlp_endpoint.rstrip("/")
        self._token = settings.otlp_token
        self._count = instruments.finding_events
        self._waiting: deque[ResourceLogs] = deque()
        self._undecided: list[tuple[str, Item]] = []
        self._lock = threading.Lock()
        self._away = False

    def report(self, workspace: str, findings: Iterable[Item]) -> None:
        """Have events sent for those of these new findings that are news."""
        now = time.time()
        news = [
            one
            for one in findings
            if one["severity"] in _SEVERITIES
            and one["suppressed_by"] is None
            and one["at"] > now - _BEGAN_WITHIN
        ]
        if not news or not self._receiver:
            return
        with self._engine.connect() as connection:
            scope = Scope(connection, workspace, now, self._silent_after)
            unmuted = []
            muted = zip(news, mutes_of(scope, news), may_be_muted(scope, news), strict=True)
            for one, mute, may_be in muted:
                if may_be:
                    self._decide_later(workspace, one)
                elif mute is None:
                    unmuted.append(one)
            ids = {one["cluster"] for one in unmuted}
            query = select_in(workspace, cluster, cluster.c.id, cluster.c.name, cluster.c.host)
            of = {row.id: row for row in connection.execute(query.where(cluster.c.id.in_(ids)))}
        for one in unmuted:
            if one["cluster"] in of:  # it was not removed meanwhile
                self._wait(event_of(workspace, one, of[one["cluster"]], pages=self._pages))

    def round(self) -> int:
        """Send what waits; return how many events were sent. Raises nothing for a receiver."""
        with self._lock:
            undecided, self._undecided = self._undecided, []
        for workspace, one in undecided:
            self.report(workspace, [one])
        sent = 0
        while self._receiver and self._waiting:
            with self._lock:
                some = [self._waiting.popleft() for _ in range(min(_TOGETHER, len(self._waiting)))]
            problem = self._problem_with(some)
            if problem is not None:
                with self._lock:  # the newest are dropped, as where there is no more room
                    room = max(_MOST_WAITING - len(self._waiting), 0)
                    self._waiting.extendleft(reversed(some[:room]))
                self._count.labels("dropped").inc(len(some[room:]))
                if not self._away:
                    logger.warning("findings cannot be sent to %s: %s", self._receiver, problem)
                self._away = True
                return sent
            self._away = False
            self._count.labels("sent").inc(len(some))
            sent += len(some)
        return sent

    def _decide_later(self, workspace: str, one: Item) -> None:
        with self._lock:
            if len(self._undecided) < _MOST_WAITING:
                self._undecided.append((workspace, one))
                return
        self._count.labels("dropped").inc()

    def _wait(self, event: ResourceLogs) -> None:
        with self._lock:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(event)
                return
        self._count.labels("dropped").inc()

    def _problem_with(self, events: list[ResourceLogs]) -> str | None:
        """Send events; return why they were not accepted, or None."""
        import requests  # only here: most services send none

        body = ExportLogsServiceRequest(resource_logs=events).SerializeToString()
        headers = {
            "Content-Type": "application/x-protobuf",
            "User-Agent": f"daskscope/{__version__}",
        }
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            answer = requests.post(
                f"{self._receiver}/v1/logs",
                data=body,
                headers=headers,
                timeout=_TIMEOUT,
                allow_redirects=False,
                stream=True,  # its body is of no interest, and may be endless
            )
        except requests.RequestException as error:
            return type(error).__name__
        answer.close()
        return None if answer.status_code == 200 else f"HTTP {answer.status_code}"


def event_of(workspace: str, one: Item, of: Any, *, pages: str) -> ResourceLogs:
    """Return the event of one finding ``of`` a cluster; ``pages`` is the service's address."""
    page = f"{pages}/clusters/{quote(one['cluster'], safe='')}"
    if one["computation"]:
        page += f"/computations/{quote(one['computation'], safe='')}"
    number, text = _SEVERITIES[one["severity"]]
    record = LogRecord(
        time_unix_nano=int(one["found_at"] * 1e9),
        observed_time_unix_nano=time.time_ns(),
        severity_number=number,
        severity_text=text,
        event_name=names.LOG_FINDING.name,
        body=_value(one["sentence"]),
        attributes=_attributes(
            {
                names.EVENT_NAME: names.LOG_FINDING.name,
                names.FINDING_RULE: one["rule"],
                names.FINDING_SEVERITY: one["severity"],
                names.FINDING_SECONDS: one["seconds"],
                names.FINDING_COST: one["cost"],
                names.FINDING_CURRENCY: one["currency"],
                names.FINDING_URL: f"{page}#finding-{one['rule']}",
                names.COMPUTATION_ID: one["computation"] or None,
                names.USER_NAME: one["user"],
            }
        ),
    )
    resource = Resource(
        attributes=_attributes(
            {
                names.SERVICE_NAME: "dask",
                names.SERVICE_NAMESPACE: workspace,
                names.SERVICE_INSTANCE_ID: one["cluster"],
                names.CLUSTER_ID: one["cluster"],
                names.CLUSTER_NAME: of.name,
                names.HOST_NAME: of.host,
            }
        )
    )
    resource_logs = ResourceLogs(resource=resource)
    logs = resource_logs.scope_logs.add(log_records=[record])
    logs.scope.name, logs.scope.version = "daskscope_service", __version__
    return resource_logs


def _attributes(values: dict[str, str | float | None]) -> list[KeyValue]:
    return [
        KeyValue(key=name, value=_value(value))
        for name, value in values.items()
        if value is not None
    ]


def _value(value: str | float) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    return AnyValue(double_value=float(value))
