"""However much there is to tell apart, little is told apart, and what was folded is counted."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import dask.config
import pytest
from dask.base import compute
from dask.delayed import delayed
from distributed import Client, LocalCluster, wait
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

import daskscope
from daskscope import names
from daskscope.background import MAX_WAITING_BYTES
from daskscope.names import OTHER
from daskscope.observe import naming
from daskscope.observe.cluster import cluster as observed_cluster
from daskscope.observe.errors.failures import MAX_TYPES
from daskscope.observe.messages.events import MAX_EVENT_BYTES, MAX_TOPICS
from daskscope.observe.snapshot import weight
from daskscope.observe.tasks import code as observed_code
from daskscope.observe.tasks import computation as computation_module
from daskscope.observe.tasks.groups import MAX_DEPENDENCIES
from daskscope.observe.workers import workers
from daskscope.plugin import Plugin
from daskscope.privacy import Privacy
from daskscope.size import size_of
from tests.exporter.conftest import Register
from tests.exporter.recorder import Recorder
from tests.patience import PATIENCE

MB = 1_000_000


def function(name: str) -> Callable[..., int]:
    def work(*_: Any) -> int:
        return 1

    work.__name__ = work.__qualname__ = name
    return work


def fail(number: int) -> None:
    raise type(f"Error{number}", (Exception,), {})


def series(recorder: Recorder) -> dict[str, dict[tuple[str, ...], float]]:
    """The last values of each metric, by its attributes in the order of their names."""
    sent = recorder.otlp(ExportMetricsServiceRequest)
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for resource in sent[-1].resource_metrics if sent else ():
        for metric in resource.scope_metrics[0].metrics:
            points = getattr(metric, metric.WhichOneof("data")).data_points
            found[metric.name] = {
                tuple(
                    attribute.value.string_value
                    for attribute in sorted(point.attributes, key=lambda attribute: attribute.key)
                ): point.count if metric.name == names.TASK_DURATION.name else point.as_double
                for point in points
            }
    return found


def by_prefix(values: dict[tuple[str, ...], float], place: int = -1) -> dict[str, float]:
    """Those of a metric without the others of its attributes; and without what has no prefix."""
    added: dict[str, float] = {}
    for key, value in values.items():
        if key[place]:
            added[key[place]] = added.get(key[place], 0.0) + value
    return added


def plugin_of(cluster: LocalCluster) -> Plugin:
    assert cluster.scheduler is not None
    found = cluster.scheduler.plugins["daskscope"]
    assert isinstance(found, Plugin)
    return found


@pytest.fixture
def plugin(cluster: LocalCluster, register: Register) -> Plugin:
    """One that tells nothing by itself once it has told that it began."""
    register(interval="1h", events__allow=["mine*"])
    return plugin_of(cluster)


@pytest.mark.own_cluster
def test_series_are_few_and_add_up(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    max_prefixes, max_groups = 100, 40  # Dask takes long to make the hundreds that may be told
    monkeypatch.setattr(naming, "MAX_PREFIXES", max_prefixes)
    monkeypatch.setattr(workers, "MAX_PREFIXES", max_prefixes)
    monkeypatch.setattr(computation_module, "MAX_GROUPS", max_groups)
    prefixes, kinds, topics = max_prefixes + 20, MAX_TYPES + 10, MAX_TOPICS + 10
    register(events__allow=["mine-*"])
    failed = client.map(fail, range(kinds))
    wait(failed)
    # All of them in one computation, which keeps fewer groups apart.
    work = [delayed(function(f"f{i}"))() for i in range(prefixes)]
    assert sum(compute(*work)) == prefixes
    for i in range(topics):
        client.log_event(f"mine-{i}", {"number": i})
        client.log_event(f"mine-{i}", {"number": i})

    def all_told() -> dict[str, dict[tuple[str, ...], float]] | None:
        found = series(recorder)
        completed = found.get(names.TASK_COMPLETED.name, {})
        events = found.get(names.EVENT_COUNT.name, {})
        times = by_prefix(found.get(names.TASK_TIME.name, {}))
        done = sum(completed.values()) == prefixes + kinds and sum(events.values()) == 2 * topics
        return found if done and len(times) > max_prefixes else None

    found = recorder.wait_for(all_told, "all series")
    dropped = {what: count for (what,), count in found[names.DROPPED.name].items()}

    # The names of tasks: in all metrics the same.
    completed = by_prefix(found[names.TASK_COMPLETED.name])
    assert len(completed) == max_prefixes + 1
    assert sum(completed.values()) == prefixes + kinds
    folded = prefixes + 1 - max_prefixes
    assert dropped["prefix"] == completed[OTHER] == folded
    for metric in names.TASK_OUTPUT, names.TASK_TIME:
        assert set(by_prefix(found[metric.name])) == set(completed), metric.name
    for metric in names.TASK_DURATION, names.TASK_RUNNING:
        assert set(by_prefix(found.get(metric.name, {}))) <= set(completed), metric.name
    assert sum(found[names.TASK_DURATION.name].values()) >= prefixes

    for metric, most, what, each, count in (
        (names.EXCEPTION_COUNT, MAX_TYPES, "exception type", 1, kinds),
        (names.EVENT_COUNT, MAX_TOPICS, "event topic", 2, topics),
    ):
        values = by_prefix(found[metric.name])
        assert len(values) == most + 1
        assert sum(values.values()) == each * count
        assert dropped[what] == values[OTHER] == each * (count - most)
    # So is what is told of the computation.
    assert dropped["task group"] == prefixes - max_groups
    computation = recorder.computation(lambda row: row.tasks == prefixes)
    groups = recorder.groups(computation.id)
    assert len(groups) == max_groups + 1
    assert groups[OTHER].completed == prefixes - max_groups


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.own_cluster
def test_of_tasks_with_very_many_prefixes_states_that_were_not_counted_are_left_out(
    client: Client, register: Register, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_cluster, "MAX_DASK_PREFIXES", 50)  # Dask takes long to make 1,000
    register()

    def counts() -> dict[str, float]:
        found = series(recorder).get(names.TASK_COUNT.name, {})
        return {state: number for (state,), number in found.items()}

    few = [client.submit(function("few"), number) for number in range(2)]
    wait(few)
    recorder.wait_for(lambda: counts().get("memory") == 2, "two results")
    assert set(counts()) == set(recorder.beats[-1].status.tasks) > {"released", "erred", "waiting"}
    assert sum(counts().values()) == 2

    many = [client.submit(function(f"f{number}")) for number in range(50)]
    wait(many)
    none = {"processing": 0, "queued": 0, "no-worker": 0}
    recorder.wait_for(lambda: counts() == none, "no number of tasks in memory")
    results = len(few) + len(many)
    recorder.wait_for(
        lambda: any(
            (beat.status.tasks, beat.status.held_by.get("results")) == (none, results)
            for beat in recorder.beats
        ),
        "no number in the heartbeats, either, but what the cluster is kept for",
    )


def test_a_group_that_needs_many_names_few(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register()
    needed = [client.submit(function(f"f{i}")) for i in range(MAX_DEPENDENCIES + 20)]
    client.submit(function("total"), needed).result()
    group = recorder.wait_for(
        lambda: next(
            (row for beat in recorder.beats for row in beat.task_groups if row.prefix == "total"),
            None,
        ),
        "the group",
    )
    assert len(group.dependencies) == MAX_DEPENDENCIES + 1
    assert OTHER in group.dependencies
    recorder.wait_for(
        lambda: [beat for beat in recorder.beats if beat.drops.get("dependency") == 20],
        "a beat that counts the others",
    )


def test_code_that_waits_is_bounded_in_bytes(
    client: Client, register: Register, recorder: Recorder
) -> None:
    register(
        interval="1h",
        computation__code__context_lines=1_000_000,
        computation__code__max_bytes="1 MiB",
    )
    calls = 12
    filler = f"    # {'x' * 90}\n" * 5_000
    # Dask skips files below pytest's own folder.
    folder = TemporaryDirectory()
    path = Path(folder.name) / "many_calls.py"
    path.write_text(
        "".join(
            f"def call{i}(client, work):\n{filler}    return client.submit(work, {i}).result()\n"
            for i in range(calls)
        )
    )
    spec = importlib.util.spec_from_file_location("many_calls", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with folder, dask.config.set({"distributed.diagnostics.computations.nframes": 2}):
        for i in range(calls):
            getattr(module, f"call{i}")(client, str)

    daskscope.explain(client)
    recorder.wait_for(lambda: recorder.beats[-1].drops.get("code"), "a beat that counts it")
    kept = recorder.wait_for(
        lambda: [code for code in recorder.code().values() if code.file == str(path)] or None,
        "some of the code",
    )
    dropped = recorder.beats[-1].drops["code"]
    assert sum(size_of(code) for code in kept) < observed_code.MAX_BYTES + MB
    assert len(kept) + dropped == calls


def test_events_that_wait_are_bounded_in_bytes(
    client: Client, plugin: Plugin, recorder: Recorder
) -> None:
    for i in range(10):
        client.log_event("mine", {"number": i, "text": "x" * MB})
    daskscope.explain(client)
    kept = MAX_EVENT_BYTES // MB
    recorder.wait_for(lambda: len(recorder.events()) == kept or None, "the last events")
    assert recorder.beats[-1].drops["event"] == 10 - kept


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Snapshots are not cleared until this is set."""
    released = threading.Event()
    clear = Privacy.clear

    def wait_and_clear(privacy: Privacy, snapshot: Any) -> Any:
        released.wait(PATIENCE)
        return clear(privacy, snapshot)

    monkeypatch.setattr(Privacy, "clear", wait_and_clear)
    yield released
    released.set()


def test_snapshots_that_wait_are_bounded_in_bytes(
    client: Client,
    cluster: LocalCluster,
    register: Register,
    recorder: Recorder,
    stuck: threading.Event,
) -> None:
    # Slowly: so many snapshots wait before the next one is put off.
    register(interval="1s", events__allow=["mine"])
    plugin = plugin_of(cluster)
    assert plugin.session is not None
    queue, drops = plugin.session._clear, plugin.drops
    ends = time.monotonic() + PATIENCE
    while not drops["snapshot"] and time.monotonic() < ends:
        client.log_event("mine", "x" * MB)
        held = [item for item, _ in list(queue._items)]
        assert sum(map(size_of, held)) < 1.5 * MAX_WAITING_BYTES
        for snapshot in held[-1:]:
            assert 0.5 < weight(snapshot) / size_of(snapshot) < 10
        time.sleep(0.01)
    assert drops["snapshot"]
    stuck.set()
    recorder.wait_for(
        lambda: [beat for beat in recorder.beats if beat.drops.get("snapshot")],
        "a beat that counts what went",
    )
