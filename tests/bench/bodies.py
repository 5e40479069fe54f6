"""What is sent in the service's measurements, made and compressed beforehand."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Iterator

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from daskscope import names
from daskscope.codec import encode
from daskscope.protocol import CodeFrame
from tests.bench.stock import COMPUTATIONS, EVERY, LIFE, Stock, cluster_id
from tests.service.beats import (
    make_beat,
    make_cluster,
    make_code,
    make_computation,
    make_task_group,
)

#: Series of one request with metrics, so points in it.
SERIES = 1_000

_METRICS = 20
_TEN_SECONDS = 10 * 10**9


def beats(stock: Stock, number: int) -> list[bytes]:
    """Return beats of 2 computations of 5 task groups each, of clusters all over ``stock``.

    One computation goes on and the other one is new, until all beats have been sent once.
    """
    chance = random.Random(1)
    code = make_code()
    frames = (CodeFrame(code.file, 12, code.hash),)
    bodies = []
    for n in range(number):
        which = chance.randrange(1, stock.clusters)
        known = (which - 1) * COMPUTATIONS + chance.randrange(COMPUTATIONS)
        ids = (f"c{known}", f"new-{n}")
        beat = make_beat(
            make_cluster(cluster_id(which), started_at=float(stock.now - LIFE - which * EVERY)),
            seq=10**6,
            computations=tuple(make_computation(id, frames=frames) for id in ids),
            task_groups=tuple(make_task_group(id, f"group-{g}") for id in ids for g in range(5)),
        )
        bodies.append(gzip.compress(encode(beat)))
    return bodies


def senders(seconds: float) -> int:
    """Return how many clusters send metrics in rounds of so many seconds: 50 in five."""
    return max(round(seconds * 10), 4)


def metrics(stock: Stock, senders: int) -> Iterator[bytes]:
    """Yield requests without end: of each sender in turn, then of all ten seconds later."""
    plain = [_request(sender) for sender in range(senders)]
    began = stock.now * 10**9
    for step in range(10**9):
        now = struct.pack("<Q", began + step * _TEN_SECONDS)
        for request in plain:
            yield gzip.compress(request.replace(_PLACE, now), 6)


_PLACE = struct.pack("<Q", 0x0A0B0C0D0E0F1011)


def _request(sender: int) -> bytes:
    # The time is put in later: to make each request anew would take longer than to store it.
    # As in what schedulers send, half are counts and sizes, and the others have fractions.
    chance = random.Random(sender)
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    group.resource.attributes.add(key=names.CLUSTER_ID).value.string_value = cluster_id(sender)
    metrics = group.scope_metrics.add().metrics
    for number in range(_METRICS):
        metric = metrics.add(name=f"dask.bench.metric{number}", unit="By")
        if number % 2:
            points = metric.gauge.data_points
        else:
            metric.sum.is_monotonic = True
            metric.sum.aggregation_temporality = (
                AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
            )
            points = metric.sum.data_points
        for prefix in range(SERIES // _METRICS):
            point = points.add(
                time_unix_nano=struct.unpack("<Q", _PLACE)[0],
                start_time_unix_nano=10**18,
                as_double=float(chance.randrange(10**9)) if number % 4 < 2 else chance.random(),
            )
            point.attributes.add(key=names.TASK_PREFIX).value.string_value = f"prefix-{prefix}"
    return bytes(request.SerializeToString())
