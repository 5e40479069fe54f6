"""Packages of which not all in a cluster have the same version."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from distributed import Client
from distributed.scheduler import ClientState, Scheduler
from distributed.versions import get_versions

import daskscope
from daskscope.observe.cluster.versions import MAX_PACKAGES, Versions
from daskscope.protocol import Mismatch
from tests.exporter.conftest import TOKEN
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.patience import START_PATIENCE

pytestmark = pytest.mark.contract

#: What a worker runs before it connects: as if it had been installed at another time.
OTHER_VERSIONS = """
import distributed.worker

told = distributed.worker.get_versions()
told["packages"] |= {"numpy": "1.0", "toolz": None}
distributed.worker.get_versions = lambda: told
"""


def test_what_differs_is_told_while_the_worker_is_there(recorder: Recorder, tmp_path: Path) -> None:
    preload = tmp_path / "other_versions.py"
    preload.write_text(OTHER_VERSIONS)
    with (
        scheduler_process() as scheduler,
        worker_process(scheduler.address),
        Client(scheduler.address, timeout=START_PATIENCE) as client,
    ):
        packages = client.get_versions()["scheduler"]["packages"]
        numpy, toolz = packages["numpy"], packages["toolz"]
        client.wait_for_workers(1, timeout=START_PATIENCE)
        daskscope.register(client, endpoint=recorder.url, token=TOKEN, interval="100ms")
        beat = recorder.wait_for(lambda: next(iter(recorder.beats), None), "a beat")
        assert beat.status.mismatches == ()
        with worker_process(scheduler.address, "--preload", str(preload)):
            beat = recorder.wait_for(
                lambda: next((b for b in recorder.beats if b.status.mismatches), None), "a mismatch"
            )
            assert beat.status.mismatches == (
                Mismatch("numpy", numpy, {numpy: 1, "1.0": 1}, {numpy: 1}),
                Mismatch("toolz", toolz, {toolz: 1, "none": 1}, {toolz: 1}),
            )
        recorder.wait_for(lambda: not recorder.beats[-1].status.mismatches, "it to be gone")


class _Worker:
    def __init__(self, address: str, versions: object) -> None:
        self.address = address
        self.versions = versions


@pytest.fixture
def scheduler() -> Scheduler:
    async def made() -> Scheduler:
        return Scheduler(dashboard_address=":0")

    # It asks for the running event loop, and must not find another test's.
    return asyncio.run(made())


@pytest.fixture
def versions(scheduler: Scheduler) -> Versions:
    return Versions(scheduler)


def test_clients_are_compared_as_they_come_and_go(scheduler: Scheduler, versions: Versions) -> None:
    own = get_versions()["packages"]
    older = {"packages": own | {"toolz": "0.1"}}
    scheduler.clients["same"] = ClientState("same", versions={"packages": own})
    assert versions.mismatches() == ()
    scheduler.clients["older"] = ClientState("older", versions=older)
    (found,) = versions.mismatches()
    assert found == Mismatch("toolz", own["toolz"], {}, {own["toolz"]: 1, "0.1": 1})
    del scheduler.clients["older"]
    assert versions.mismatches() == ()


@pytest.mark.parametrize("told", [None, {}, {"packages": None}, {"packages": {}}])
def test_a_worker_that_tells_nothing_is_no_mismatch(versions: Versions, told: object) -> None:
    versions.added(_Worker("one", told))  # type: ignore[arg-type]  # as much of one as is read
    assert versions.mismatches() == ()


def test_however_much_differs_the_list_is_bounded(versions: Versions) -> None:
    packages = {f"package-{number:04}": "x" * 9_000 for number in range(1_000)}
    for number in range(100):
        told = {"packages": packages | {"package-0000": f"1.{number}"}}
        versions.added(_Worker(str(number), told))  # type: ignore[arg-type]
    versions.added(_Worker("last", {"packages": {"python": "3.11.7.final.0"}}))  # type: ignore[arg-type]
    found = versions.mismatches()
    assert len(found) == MAX_PACKAGES
    assert len(repr(found)) < 100_000


def test_the_last_ones_count_where_none_is_left(scheduler: Scheduler, versions: Versions) -> None:
    own = get_versions()["packages"]
    worker = _Worker("tcp://w:1", {"packages": own | {"toolz": "0.1"}})
    versions.added(worker)  # type: ignore[arg-type]
    client = {"packages": own | {"numpy": "1.0"}}
    scheduler.clients["c1"] = ClientState("c1", versions=client)
    found = versions.mismatches()
    assert [one.package for one in found] == ["numpy", "toolz"]
    # The cluster ends: first the client leaves, then the worker.
    del scheduler.clients["c1"]
    assert versions.mismatches() == found
    versions.removed(worker.address)
    assert versions.mismatches() == found
    # What comes then is compared alone.
    versions.added(_Worker("tcp://w:2", {"packages": own}))  # type: ignore[arg-type]
    assert [one.package for one in versions.mismatches()] == ["numpy"]
    scheduler.clients["c2"] = ClientState("c2", versions={"packages": own})
    assert versions.mismatches() == ()
