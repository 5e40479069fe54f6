"""What OTLP's signals have in common; stores spans and log records.

A resource is stored as its cluster (``dask.cluster.id``) only: the heartbeat has its other
attributes. Data that is sent twice is stored once.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from sqlalchemy import Engine, Table

from daskscope import names
from daskscope.protocol import EARLIEST, MAX_AHEAD, MAX_CLUSTER_ID, MAX_NAME, MAX_WORDS
from daskscope_service.db import schema
from daskscope_service.db.key_register import hasher
from daskscope_service.db.statements import Upsert
from daskscope_service.ingest.writer import Writer

_STATUS = {
    Status.STATUS_CODE_UNSET: "unset",
    Status.STATUS_CODE_OK: "ok",
    Status.STATUS_CODE_ERROR: "error",
}


#: The most characters of attributes, as JSON, and of a record's body.
MAX_CHARACTERS = 128 * 1024

#: The earliest time that is stored, in nanoseconds: an earlier one is of a clock that was never
#: set.
EARLIEST_NANOSECONDS = int(EARLIEST * 1e9)

_REASON_OF_SPANS = (
    "a span needs a trace id of 16 bytes, an id of 8, and a parent id of 8 or none; a name "
    f"of at most {MAX_WORDS} characters and attributes of at most {MAX_CHARACTERS}; and a "
    "start and an end between 2015 and tomorrow, in this order"
)
_REASON_OF_RECORDS = (
    "a log record needs a time between 2015 and tomorrow; a body and attributes of at most "
    f"{MAX_CHARACTERS} characters and an event name of at most {MAX_NAME}; a trace id of 16 "
    "bytes or none, and a span id of 8 or none"
)


@dataclass(frozen=True, slots=True)
class Stored:
    """How many items of a request were not stored, and why, in words; 0 and "" if all were."""

    rejected: int = 0
    reason: str = ""


class SpanStore:
    """Stores spans."""

    def __init__(self, engine: Engine, writer: Writer) -> None:
        self._writer = writer
        self._upsert = _upsert(engine, schema.span)

    def keep(self, request: ExportTraceServiceRequest, workspace: str) -> Stored:
        """Store the spans of ``request`` permanently. Raises what :meth:`Writer.write` raises."""
        rows: list[tuple[Any, ...]] = []
        rejected, latest = 0, latest_nanoseconds()
        for group in request.resource_spans:
            cluster = cluster_of(group.resource)
            for scope in group.scope_spans:
                for span in scope.spans:
                    row = _span_row(span, workspace, cluster, latest)
                    if row is None:
                        rejected += 1
                    else:
                        rows.append(self._upsert.row(row))
        with self._writer.place():
            self._writer.write({self._upsert: rows})
        return Stored(rejected, _REASON_OF_SPANS if rejected else "")


class LogStore:
    """Stores log records."""

    def __init__(self, engine: Engine, writer: Writer) -> None:
        self._writer = writer
        self._upsert = _upsert(engine, schema.log_record)
        with engine.connect() as connection:
            self._keyed = hasher(connection)

    def keep(self, request: ExportLogsServiceRequest, workspace: str) -> Stored:
        """Store the records of ``request`` permanently. Raises what :meth:`Writer.write` raises."""
        rows: list[tuple[Any, ...]] = []
        rejected, latest = 0, latest_nanoseconds()
        for group in request.resource_logs:
            cluster = cluster_of(group.resource)
            for scope in group.scope_logs:
                for record in scope.log_records:
                    row = _log_row(record, workspace, cluster, self._keyed, latest)
                    if row is None:
                        rejected += 1
                    else:
                        rows.append(self._upsert.row(row))
        with self._writer.place():
            self._writer.write({self._upsert: rows})
        return Stored(rejected, _REASON_OF_RECORDS if rejected else "")


def latest_nanoseconds() -> int:
    """Return the latest time that is accepted now, in nanoseconds: clocks may be ahead."""
    return int((time.time() + MAX_AHEAD) * 1e9)


def cluster_of(resource: Resource) -> str:
    """Return the id of the cluster in ``resource``, or "" if it names none.

    An id that is too long counts as none.
    """
    for attribute in resource.attributes:
        if attribute.key == names.CLUSTER_ID:
            id = without_nul(attribute.value.string_value)
            return id if len(id) <= MAX_CLUSTER_ID else ""
    return ""


def without_nul(text: str) -> str:
    """Return ``text`` with NUL, which PostgreSQL's text cannot hold, replaced by U+FFFD."""
    return text.replace("\0", "\ufffd")


def plain(value: AnyValue) -> Any:
    """Return ``value`` as a value of JSON; bytes as base64."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return _object(value.kvlist_value.values)
    content = getattr(value, kind)
    return base64.b64encode(content).decode() if kind == "bytes_value" else content


def text(value: AnyValue) -> str:
    """Return ``value`` as text: a string with NUL replaced, anything else as JSON."""
    content = plain(value)
    return without_nul(content) if isinstance(content, str) else json(content)


def json(value: Any) -> str:
    """Return ``value`` as JSON text; numbers that JSON lacks become null."""
    return msgspec.json.encode(value).decode()


def _object(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    return {attribute.key: plain(attribute.value) for attribute in attributes}


def _span_row(span: Span, workspace: str, cluster: str, latest: int) -> dict[str, Any] | None:
    attributes = json(_object(span.attributes))
    fits = (
        (len(span.trace_id), len(span.span_id)) == (16, 8)
        and len(span.parent_span_id) in (0, 8)
        and len(span.name) <= MAX_WORDS
        and len(attributes) <= MAX_CHARACTERS
        and EARLIEST_NANOSECONDS <= span.start_time_unix_nano <= latest
        and span.start_time_unix_nano <= span.end_time_unix_nano <= latest
    )
    if not fits:
        return None
    return {
        "workspace": workspace,
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_span_id": span.parent_span_id.hex() or None,
        "cluster": cluster,
        "name": without_nul(span.name),
        "started_at": span.start_time_unix_nano / 1e9,
        "stopped_at": span.end_time_unix_nano / 1e9,
        "status": _STATUS.get(span.status.code, "unset"),
        "attributes": attributes,
    }


def _log_row(
    record: LogRecord, workspace: str, cluster: str, keyed: Callable[[str], str], latest: int
) -> dict[str, Any] | None:
    attributes = _object(record.attributes)
    at = record.time_unix_nano or record.observed_time_unix_nano
    body, attributes_text = text(record.body), json(attributes)
    event = without_nul(record.event_name or str(attributes.get(names.EVENT_NAME, "")))
    fits = (
        EARLIEST_NANOSECONDS <= at <= latest
        and max(len(body), len(attributes_text)) <= MAX_CHARACTERS
        and len(event) <= MAX_NAME
        and len(record.trace_id) in (0, 16)
        and len(record.span_id) in (0, 8)
    )
    if not fits:
        return None
    content = cluster.encode() + b"\n" + record.SerializeToString(deterministic=True)
    return {
        "workspace": workspace,
        "id": keyed(hashlib.sha256(content).hexdigest()),
        "cluster": cluster,
        "at": at / 1e9,
        "severity": record.severity_number,
        "event_name": event,
        "body": body,
        "attributes": attributes_text,
        "trace_id": record.trace_id.hex() or None,
        "span_id": record.span_id.hex() or None,
    }


def _upsert(engine: Engine, table: Table) -> Upsert:
    keys = {column.name for column in table.primary_key}
    return Upsert(engine, table, replace=[c.name for c in table.columns if c.name not in keys])
