"""Costs of clusters on Kubernetes, as an OpenCost in the same Kubernetes computes them.

The operator names its address and the namespaces whose costs each workspace may read: a cluster
says itself in which namespace it runs. The pods of a cluster are those of its namespace that have
the same label as its scheduler's pod, which Dask's operator, Dask Gateway and Dask's charts set.
"""

from __future__ import annotations

import logging
import random
import re
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import msgspec
import requests
from sqlalchemy import Connection, Engine, Row, func, select, update
from urllib3.exceptions import HTTPError

from daskscope.protocol import MAX_AMOUNT
from daskscope_service.costs import usage_sums
from daskscope_service.db.engine import writing
from daskscope_service.db.rows import select_in
from daskscope_service.db.schema import cluster, computation, finding, usage, workspace
from daskscope_service.insight.verdict import LEAST_THREADS
from daskscope_service.periodic import Lease, Stopped, in_each
from daskscope_service.settings import Settings

logger = logging.getLogger(__name__)

_DAY = 86400

#: The name of the lease, and seconds between two rounds.
WORK, ROUND_SECONDS = "opencost", 300.0
#: Seconds to connect, and of an answer; and its bytes.
_CONNECTS, _MOST_SECONDS, _MOST_BYTES = 3.0, 30.0, 32 << 20
#: The most bytes that are read at once.
_PART = 1 << 16
#: Clusters of a workspace that one round asks about; of more, each round chooses others.
_MOST_CLUSTERS = 50
#: Seconds after its end, or its last heartbeat, in which the cost of a cluster is still read:
#: OpenCost knows it late.
_SETTLES = 3600.0
#: By what share, at most, a day's part of the cost of a cluster that runs may be wrong. Stored sums
#: of past days are removed whenever such a part changes.
_OFF = 0.01
#: How many clusters are remembered whose cost was read after their end.
_REMEMBERED = 20_000
#: The least seconds of a window: OpenCost computes in minutes.
_LEAST_WINDOW = 60.0
#: The label, of a scheduler's pod, whose value all pods of the cluster share. OpenCost replaces the
#: characters that are none of Prometheus' by "_".
_LABELS = ("dask_org_cluster_name", "gateway_dask_org_cluster", "app_kubernetes_io_instance")
_NOT_IN_LABELS = re.compile(r"[^A-Za-z0-9_]")
_HEADERS = {"Accept": "application/json"}


class _Properties(msgspec.Struct):
    namespace: str = ""
    pod: str = ""
    labels: dict[str, str] | None = None


class _Allocation(msgspec.Struct):
    total: float = msgspec.field(name="totalCost")
    properties: _Properties | None = None


class _Answer(msgspec.Struct):
    # One set, of allocations by name, for the whole window.
    data: list[dict[str, _Allocation] | None]


_decoder = msgspec.json.Decoder(_Answer)


class NotRead(Exception):
    """OpenCost gave no valid answer; the message says why."""


class Unreachable(NotRead):
    """No connection to OpenCost came about."""


@dataclass(frozen=True, slots=True)
class OpenCost:
    """An OpenCost at ``url``.

    All workspaces may read ``namespaces``; the keys of ``own`` may read theirs.
    """

    url: str
    currency: str
    namespaces: frozenset[str]
    own: Mapping[str, frozenset[str]]

    def of_workspace(self, name: str) -> frozenset[str]:
        """Return the namespaces whose costs the workspace ``name`` may read."""
        return self.namespaces | self.own.get(name, frozenset())

    def cost(
        self, namespace: str, pod: str, since: float, until: float, ended: threading.Event
    ) -> float | None:
        """Return what the cluster of the scheduler's ``pod`` cost; None if OpenCost knows no such.

        Raises
        ------
        NotRead
            OpenCost gave no valid answer.
        Stopped
            ``ended`` was set before all of the answer was read.
        """
        window = ",".join(f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
                          for at in (since, until))  # fmt: skip
        parameters = {
            "window": window,
            "accumulate": "true",
            "filter": f'namespace:"{namespace}"',
        }
        try:
            answer = _decoder.decode(self._get("allocation/compute", parameters, ended))
        except msgspec.MsgspecError as error:
            raise NotRead(f"not an answer of OpenCost: {error}") from None
        allocations = [one for some in answer.data for one in (some or {}).values()]
        return _cost_of(allocations, namespace, pod)

    def _get(self, path: str, parameters: Mapping[str, str], ended: threading.Event) -> bytes:
        until = time.monotonic() + _MOST_SECONDS
        parts, size = [], 0
        try:
            with requests.get(
                f"{self.url}/{path}",
                params=parameters,
                headers=_HEADERS,
                timeout=(_CONNECTS, _MOST_SECONDS),
                stream=True,
                allow_redirects=False,
            ) as answer:
                if answer.status_code != 200:
                    raise NotRead(f"HTTP {answer.status_code}")
                # Each read returns the bytes that have arrived.
                while part := answer.raw.read1(_PART, decode_content=True):
                    if ended.is_set():
                        raise Stopped
                    size += len(part)
                    if size > _MOST_BYTES:
                        raise NotRead(f"its answer has more than {_MOST_BYTES >> 20} MiB")
                    if time.monotonic() > until:
                        raise NotRead(f"its answer took more than {_MOST_SECONDS:.0f} s")
                    parts.append(part)
        except requests.ConnectionError as error:
            what = f"no connection to DASKSCOPE_OPENCOST_URL: {type(error).__name__}"
            raise Unreachable(what) from None
        except (requests.RequestException, HTTPError) as error:
            raise NotRead(type(error).__name__) from None
        return b"".join(parts)


def of(settings: Settings) -> OpenCost | None:
    """Return the OpenCost that the settings name, if any."""
    if not settings.opencost_url:
        return None
    of_all, own = set[str](), dict[str, frozenset[str]]()
    for one in settings.opencost_namespaces:
        name, _, namespace = one.rpartition("=")
        if name:
            own[name] = own.get(name, frozenset()) | {namespace}
        else:
            of_all.add(namespace)
    url = settings.opencost_url.rstrip("/")
    return OpenCost(url, settings.prices_currency, frozenset(of_all), own)


def _cost_of(allocations: Sequence[_Allocation], namespace: str, pod: str) -> float | None:
    """Return the cost of the pods that have the same label as ``pod``; None without that pod.

    It is not below 0, as that of an allocation may be that OpenCost corrects by a bill.
    """
    own = next((labels for of, labels in _pods(allocations, namespace) if of.pod == pod), None)
    if own is None:
        return None
    label = next((name for name in _LABELS if own.get(name)), None)
    cost = sum(
        one.total
        for one in allocations
        if (of := one.properties) is not None
        and of.namespace == namespace
        and (of.pod == pod or (label and _labels(of).get(label) == own[label]))
    )
    if cost > MAX_AMOUNT:
        raise NotRead(f"a cluster that costs {cost:g}")
    return max(cost, 0.0)


def _pods(
    allocations: Sequence[_Allocation], namespace: str
) -> Iterator[tuple[_Properties, dict[str, str]]]:
    for one in allocations:
        if one.properties is not None and one.properties.namespace == namespace:
            yield one.properties, _labels(one.properties)


def _labels(of: _Properties) -> dict[str, str]:
    return {_NOT_IN_LABELS.sub("_", name): value for name, value in (of.labels or {}).items()}


class OpenCostReader:
    """Reads the costs of all workspaces' clusters on Kubernetes, in rounds.

    A round stops early if ``ended`` is set.
    """

    def __init__(
        self, engine: Engine, opencost: OpenCost, silent_after: float, ended: threading.Event
    ) -> None:
        self._engine = engine
        self._opencost = opencost
        self._silent_after = silent_after
        self._ended = ended
        self.lease = Lease(engine, WORK)
        # The ids and namespaces of clusters whose cost this round could not read, and why.
        self._failed: list[tuple[str, str, NotRead]] = []
        # The workspaces and ids of clusters whose cost was read after their end.
        self._final: set[tuple[str, str]] = set()

    def round(self) -> int:
        """Read the costs of clusters that run or have just ended; return how many were stored.

        Raises
        ------
        Unreachable
            No connection to OpenCost came about.
        Stopped
            ``ended`` was set meanwhile.
        """
        with self._engine.connect() as connection:
            names = connection.execute(select(workspace.c.id)).scalars().all()
        self._failed = []
        try:
            # If it cannot be reached for one workspace, it cannot for the others. So that none is
            # always the last one, they come in another order each time.
            names = random.sample(names, len(names))
            return in_each(names, self._workspace, ends_all=(Unreachable, Stopped))
        finally:
            self._log_failed()

    def _log_failed(self) -> None:
        if self._failed:
            id, namespace, error = self._failed[0]
            more = f" ({len(self._failed) - 1} more)" if len(self._failed) > 1 else ""
            logger.warning(
                "OpenCost, DASKSCOPE_OPENCOST_URL, gave no cost of cluster %s in namespace %s: %s",
                *(id, namespace, f"{error}{more}"),
            )

    def _workspace(self, name: str) -> int:
        stored = 0
        for row in self._due(name):
            if self._ended.is_set():
                raise Stopped
            self.lease.renew()
            namespace, pod = row.deployment["k8s.namespace.name"], row.deployment["k8s.pod.name"]
            silent = row.last_seen_at <= time.time() - self._silent_after
            ended_at = row.last_seen_at if row.stopped_at is None and silent else row.stopped_at
            until = time.time() if ended_at is None else ended_at
            until = max(until, row.started_at + _LEAST_WINDOW)
            try:
                cost = self._opencost.cost(namespace, pod, row.started_at, until, self._ended)
            except Unreachable:
                raise
            except NotRead as error:
                self._failed.append((row.id, namespace, error))
                continue
            if cost is not None:
                self._store(name, row.id, cost, has_ended=ended_at is not None)
                stored += 1
        return stored

    def _due(self, name: str) -> Collection[Row[Any]]:
        """Return clusters without prices of their own that are up, or were until a moment ago."""
        namespaces = self._opencost.of_workspace(name)
        if not namespaces:
            return []
        now = time.time()
        names = ("id", "started_at", "stopped_at", "last_seen_at", "deployment")
        columns = [cluster.c[one] for one in names]
        query = (
            select_in(name, cluster, *columns)
            .where(
                cluster.c.deployment["k8s.namespace.name"].as_string().in_(sorted(namespaces)),
                cluster.c.deployment["k8s.pod.name"].as_string() != "",
                cluster.c.prices["currency"].as_string().is_(None),
            )
            .order_by(func.random())
            .limit(_MOST_CLUSTERS)
        )
        # In two queries: there is an index for each of these conditions, but none for both.
        seen = cluster.c.last_seen_at > now - max(self._silent_after, _SETTLES)
        up = query.where(cluster.c.stopped_at.is_(None), seen)
        ended = query.where(
            cluster.c.stopped_at.is_not(None), cluster.c.stopped_at > now - _SETTLES
        )
        with self._engine.connect() as connection:
            rows = [row for some in (up, ended) for row in connection.execute(some)]
        return random.sample(rows, min(len(rows), _MOST_CLUSTERS))

    def _store(self, name: str, id: str, cost: float, *, has_ended: bool) -> None:
        of_operator = {
            "operator_currency": self._opencost.currency,
            "operator_source": "opencost",
        }
        columns = [usage.c[one] for one in ("day", "thread_seconds", "operator_cost", *of_operator)]
        of_days = select_in(name, usage, *columns).where(usage.c.cluster == id)
        with writing(self._engine) as connection:
            this = (cluster.c.workspace == name, cluster.c.id == id)
            before = connection.execute(select(cluster.c.operator_cost).where(*this)).scalar()
            values = of_operator | {"operator_cost": cost}
            connection.execute(update(cluster).where(*this).values(values))
            if before is None or (
                has_ended and ((name, id) not in self._final or abs(cost - before) > _OFF * before)
            ):
                _judge_anew(connection, name, id)
            days = connection.execute(of_days.order_by(usage.c.day)).all()
            parts = _shared(cost, [row.thread_seconds for row in days])
            off = 0.0 if has_ended else _OFF
            changed = [
                (row.day, part)
                for row, part in zip(days, parts, strict=True)
                if row[3:] != tuple(of_operator.values())
                or row.operator_cost is None
                or abs(row.operator_cost - part) > (off if row.day < days[-1].day else 0.0) * part
            ]
            for day, part in changed:
                of_day = (usage.c.workspace == name, usage.c.cluster == id, usage.c.day == day)
                values = of_operator | {"operator_cost": part}
                connection.execute(update(usage).where(*of_day).values(values))
            if changed and changed[0][0] < (today := int(time.time() // _DAY)):
                usage_sums.forget(connection, name, changed[0][0], today)
        if has_ended:
            if len(self._final) >= _REMEMBERED:
                self._final.clear()  # their findings are made once more, that is all
            self._final.add((name, id))


def _judge_anew(connection: Connection, name: str, id: str) -> None:
    """Have the findings of a cluster's computations made again, for they store what they cost."""
    with_findings = select_in(name, finding, finding.c.computation).where(finding.c.cluster == id)
    connection.execute(
        update(computation)
        .where(computation.c.workspace == name, computation.c.cluster == id)
        .where(computation.c.id.in_(with_findings))
        # Those that run are due anyway.
        .where(computation.c.judge_at.is_(None))
        .values(judge_at=0.0)
    )


def _shared(cost: float, threads: Sequence[float]) -> list[float]:
    """Return what of ``cost`` a cluster had come to at the end of each of its days.

    ``threads`` is its threads' time at the end of each, by which the cost is shared. It falls if
    the plugin was restarted, which counts from 0 again; so does what is returned.
    """
    whole = sum(now if now < then else now - then for then, now in pairwise([0.0, *threads]))
    if whole < LEAST_THREADS:
        return [*([0.0] * (len(threads) - 1)), cost][: len(threads)]
    return [cost * (now / whole) for now in threads]
