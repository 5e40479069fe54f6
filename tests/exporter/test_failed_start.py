"""A plugin that cannot start leaves its scheduler, the workers and the process as they were."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from distributed import Client, LocalCluster

import daskscope
from tests.exporter.conftest import TOKEN
from tests.exporter.recorder import Recorder
from tests.patience import wait_until


def _state(cluster: LocalCluster) -> dict[str, Any]:
    """Return all that daskscope could have changed."""
    scheduler, (worker,) = cluster.scheduler, cluster.workers.values()
    assert scheduler is not None
    return {
        "plugins": dict(scheduler.plugins),
        "worker plugins": set(scheduler.worker_plugins),
        **{f"stream {name}": one for name, one in scheduler.stream_handlers.items()},
        **{f"handler {name}": one for name, one in scheduler.handlers.items()},
        "scheduler": set(vars(scheduler)),
        "worker": set(vars(worker)),
        "metrics": set(worker.metrics),
        "logging": logging.Logger.callHandlers,
    }


#: These handlers stay, and do nothing: a message without a handler ends the worker's connection.
_STAY = {"stream daskscope-logs", "handler daskscope-logs"}


def _changed(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    changed = {what: now.get(what) for what in before | now if now.get(what) != before.get(what)}
    return {what: one for what, one in changed.items() if what not in _STAY}


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if "daskscope" in thread.name}


@pytest.mark.uncounted("the plugin does not start")
@pytest.mark.parametrize("which", range(1, 7))
def test_a_start_that_fails_half_way_leaves_nothing_behind(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    start, started = threading.Thread.start, []

    def start_or_not(thread: threading.Thread) -> None:
        if thread.name.startswith("daskscope-"):
            started.append(thread.name)
            if len(started) >= which:
                raise RuntimeError("can't start new thread")
        start(thread)

    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        before = _state(cluster)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start_or_not)
            for _ in range(2):
                registered = daskscope.register(client, endpoint=recorder.url, token=TOKEN)
        assert "cannot start on the scheduler" in repr(registered)
        assert wait_until(lambda: not _threads(), what=lambda: str(_threads()))
        assert client.submit(abs, -2).result() == 2
        assert wait_until(
            lambda: not _changed(before, _state(cluster)),
            what=lambda: str(_changed(before, _state(cluster))),
        )
