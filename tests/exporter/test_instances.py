"""The types of workers' machines: where they are read, and how their use is added up."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from distributed.scheduler import Scheduler

import daskscope
from daskscope import protocol
from daskscope.deployment import deployment_of, instance_type_of
from daskscope.observe.cluster import instances
from daskscope.observe.cluster.instances import Instances
from daskscope.worker_process import METRIC
from tests.exporter.recorder import Recorder
from tests.exporter.test_metrics import _settings, in_process
from tests.patience import wait_until

HOUR = 3600.0


class _Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def _worker(address: str, host: str, type: str | None = "", threads: int = 2) -> Any:
    """Return a worker of 4 GiB, which has reported ``type``; None: it has reported nothing."""
    metrics = {} if type is None else {METRIC: (*(None,) * 9, type or None)}
    return SimpleNamespace(
        address=address, host=host, nthreads=threads, memory_limit=4 * 2**30, metrics=metrics
    )


def _reports(worker: Any, type: str) -> None:
    worker.metrics[METRIC] = (*(None,) * 9, type)


def _rows(of: Instances) -> dict[str, tuple[Any, Any, Any]]:
    return {
        row.type: (
            pytest.approx(row.seconds), pytest.approx(row.thread_seconds),
            pytest.approx(row.gib_seconds),
        )
        for row in of.rows()
    }  # fmt: skip


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


def test_the_type_of_a_machine_is_what_the_environment_or_the_firmware_calls_it() -> None:
    assert instance_type_of({}, "Amazon EC2", "m5.large") == "m5.large"
    node = {"NODE_INSTANCE_TYPE": "n2-standard-4"}
    assert instance_type_of(node, "Google", "Google Compute Engine") == "n2-standard-4"
    both = {"DASKSCOPE_INSTANCE_TYPE": "own", "NODE_INSTANCE_TYPE": "other"}
    assert instance_type_of(both, "Amazon EC2", "m5.large") == "own"
    for maker, product in (
        ("Google", "Google Compute Engine"),
        ("Microsoft Corporation", "Virtual Machine"),
        ("Xen", "HVM domU"),
        ("", ""),
    ):
        assert instance_type_of({}, maker, product) is None


def test_variables_that_are_no_utf8_can_be_sent_in_a_heartbeat() -> None:
    # Dask closes a worker whose heartbeat cannot be sent.
    odd = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert instance_type_of({"INSTANCE_TYPE": odd}, "", "") == "caf?"
    values = deployment_of({"SLURM_JOB_ID": "7", "SLURM_JOB_NAME": odd})
    assert values["slurm.job.name"] == "caf?"
    msgpack.dumps([instance_type_of({"INSTANCE_TYPE": odd}, "", ""), values])


def test_a_machine_counts_once_and_from_its_first_worker_on(clock: _Clock) -> None:
    of = Instances(Counter(), wanted=True, default=None, clock=clock)
    first, second = _worker("a:1", "a", None), _worker("a:2", "a", None)
    of.added(first)
    clock.now += 10
    of.added(second)
    assert of.rows() == ()  # neither has reported yet
    clock.now += 10
    _reports(second, "m5.large")
    # What was used before its type was known counts, too.
    assert _rows(of) == {"m5.large": (20, 2 * 20 + 2 * 10, 4 * 20 + 4 * 10)}
    of.removed("a:1")
    clock.now += 10
    assert _rows(of) == {"m5.large": (30, 2 * 20 + 2 * 20, 4 * 20 + 4 * 20)}
    of.removed("a:2")
    of.removed("a:2")
    clock.now += 10
    assert _rows(of) == {"m5.large": (30, 80, 160)}
    # It comes back, with another worker that reports at once.
    of.added(_worker("a:3", "a", "m5.large", threads=8))
    of.added(_worker("b:1", "b", "c5.large"))
    clock.now += 10
    assert _rows(of) == {"m5.large": (40, 80 + 80, 160 + 40), "c5.large": (10, 20, 40)}


def test_machines_that_report_none_are_of_the_type_in_the_settings(clock: _Clock) -> None:
    for default, found in ((None, {}), ("m5.large", {"m5.large": (5, 10, 20)})):
        of = Instances(Counter(), wanted=True, default=default, clock=clock)
        of.added(_worker("a:1", "a", ""))
        clock.now += 5
        assert _rows(of) == found


def test_too_many_types_are_left_out(clock: _Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "MAX_TYPES", 2)
    drops: Counter[str] = Counter()
    of = Instances(drops, wanted=True, default=None, clock=clock)
    for number in range(4):
        of.added(_worker(f"{number}:1", str(number), f"type-{number}"))
    clock.now += 1
    assert list(_rows(of)) == ["type-0", "type-1"]
    assert drops == {"instance type": 2}


def test_workers_that_report_nothing_let_others_have_a_turn(
    clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "AT_ONCE", 2)
    of = Instances(Counter(), wanted=True, default=None, clock=clock)
    for number in range(4):
        of.added(_worker(f"{number}:1", str(number), "m5.large" if number == 3 else None))
    of.rows()
    clock.now += 1
    assert _rows(of) == {"m5.large": (1, 2, 4)}


def _has_the_type(dask_scheduler: Scheduler) -> bool:
    workers = dask_scheduler.workers.values()
    return any("x9.tremendous" in (worker.metrics.get(METRIC) or ()) for worker in workers)


@pytest.mark.parametrize("wanted", [True, False])
def test_it_is_on_the_wire_unless_it_is_refused(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, *, wanted: bool
) -> None:
    monkeypatch.setenv("DASKSCOPE_INSTANCE_TYPE", "x9.tremendous")
    with in_process({}) as client:
        daskscope.register(client, **_settings(recorder, instances__transmit=wanted))
        if wanted:
            recorder.wait_for(
                lambda: any(beat.status.instances for beat in recorder.beats), "the type"
            )
        wait_until(
            lambda: client.run_on_scheduler(_has_the_type), what="a worker's report of its type"
        )
        before = len(recorder.beats)
        recorder.wait_for(lambda: len(recorder.beats) > before + 2, "beats after it")
    assert ("x9.tremendous" in "".join(map(str, recorder.beats))) is wanted
    if wanted:
        [use] = max(recorder.beats, key=lambda beat: beat.seq).status.instances
        assert isinstance(use, protocol.InstanceUse)
        assert use.type == "x9.tremendous"
        assert 0 < use.seconds <= use.thread_seconds * 1.001
