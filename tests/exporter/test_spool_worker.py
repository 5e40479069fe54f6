"""What becomes of what is handed over while the disk hangs."""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daskscope.delivery import spool
from daskscope.delivery.queue import DeliveryQueue
from daskscope.delivery.spool import Spool, read_records
from daskscope.delivery.spool_worker import SpoolWorker
from tests.exporter.test_delivery_queue import event, snapshot
from tests.exporter.test_hung_disk import REMOVE, WRITE, Disk
from tests.patience import PATIENCE


class Kept:
    """A SpoolWorker, what waits for the service, and what the files hold."""

    def __init__(self, folder: Path) -> None:
        self.drops: Counter[str] = Counter()
        self._folder = folder
        self._lock = threading.Lock()
        self.pending = DeliveryQueue(1, self.drops)
        files = Spool(folder, endpoint="", token=None, max_bytes=1 << 20, drops=self.drops)
        self.spool_worker = SpoolWorker(files, self.pending, self._lock, self.drops)

    def add(self, *ids: str, phase: str = "beat") -> None:
        with self._lock:
            self.pending.add(snapshot(events=[event(id, "x") for id in ids], phase=phase))

    def deliver(self) -> None:
        with self._lock:
            self.pending.acknowledge(self.pending.beat(1.0))
        self.spool_worker.clear()

    def close(self) -> None:
        self.spool_worker.close()
        self.spool_worker._thread.join(PATIENCE)
        assert self.spool_worker.done()

    def beats(self) -> list[Any]:
        return [
            json.loads(gzip.decompress(body))
            for file in sorted(self._folder.iterdir())
            for body in read_records(file.read_bytes())
        ]

    def events(self) -> list[str]:
        return [row["id"] for beat in self.beats() for row in beat["events"]]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    kept = Kept(tmp_path)
    yield kept
    kept.close()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, kept: Kept) -> Iterator[Disk]:
    disk = Disk(monkeypatch)
    yield disk
    disk.answers.set()


def test_of_each_kind_one_job_waits(kept: Kept, disk: Disk) -> None:
    disk.hangs_at(WRITE)
    kept.add("0")
    kept.spool_worker.keep()
    assert disk.reached.wait(PATIENCE)
    for number in range(1, 1_000):
        kept.add(str(number))
        kept.spool_worker.keep()
        kept.spool_worker.claim()
        kept.spool_worker.clear()
    assert kept.spool_worker._thread.waiting() == 3
    disk.answers.set()
    kept.close()
    assert sorted(kept.events()) == sorted(map(str, range(1_000)))
    assert not kept.drops


def test_what_was_wanted_last_is_done_last(kept: Kept, disk: Disk) -> None:
    disk.hangs_at(WRITE)
    kept.add("1")
    kept.spool_worker.keep()
    assert disk.reached.wait(PATIENCE)
    kept.spool_worker.keep()
    kept.deliver()
    # The service is away again when the cluster says goodbye.
    kept.add(phase="stop")
    kept.spool_worker.keep()
    disk.answers.set()
    kept.close()
    assert "stop" in [beat["phase"] for beat in kept.beats()]


def test_what_was_delivered_once_is_not_removed_with_what_waits_again(
    kept: Kept, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    discarded = threading.Event()
    monkeypatch.setattr(spool.Spool, "discard", lambda self: discarded.set())
    disk.hangs_at(WRITE)
    kept.add("1")
    kept.spool_worker.keep()
    assert disk.reached.wait(PATIENCE)
    kept.deliver()
    kept.add("2")
    disk.answers.set()
    kept.close()
    assert not discarded.is_set()
    assert "2" in kept.events()


def test_what_changes_while_it_is_written_is_written_again(kept: Kept, disk: Disk) -> None:
    disk.hangs_at(WRITE)
    kept.add("1")
    kept.spool_worker.keep()
    assert disk.reached.wait(PATIENCE)
    kept.add("1")
    disk.answers.set()
    kept.close()
    assert kept.events() == ["1", "1"]
    assert kept.pending.all_spooled()


def test_what_is_not_written_does_not_count_as_kept(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, record: bytes) -> None:
        raise OSError("no room")

    monkeypatch.setattr(*WRITE, full)
    kept.add("1")
    kept.spool_worker.keep()
    kept.close()
    assert not kept.pending.all_spooled()


def test_what_the_disk_was_too_late_with_is_told_later(kept: Kept, disk: Disk) -> None:
    left = Kept(kept._folder)
    left.add("left")
    left.spool_worker.keep()
    left.close()
    disk.hangs_at(REMOVE)
    kept.add("1")
    kept.spool_worker.keep()
    kept.deliver()
    assert disk.reached.wait(PATIENCE)
    kept.spool_worker.claim()
    assert kept.spool_worker.next() is None
    assert kept.spool_worker.next() is None
    disk.answers.set()
    kept.spool_worker._hand_over(lambda: None).result(PATIENCE)  # after all that was handed over
    body = kept.spool_worker.next()
    assert body is not None
    assert body == kept.spool_worker.next()
    assert b'"left"' in gzip.decompress(body)
    kept.spool_worker.taken()
    assert kept.spool_worker.next() is None
