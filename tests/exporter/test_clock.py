"""Clocks that are wrong: the scheduler's, which is set while it runs, and the service's."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
from distributed import Client

from daskscope.delivery.http import MAX_ASKED, asked_to_wait
from tests.exporter.conftest import TOKEN
from tests.exporter.dask_process import scheduler_process, worker_process
from tests.exporter.recorder import Recorder
from tests.patience import START_PATIENCE

HOUR = 3600.0

#: Preloaded before daskscope: all of the scheduler's process goes by a clock that can be set.
CLOCK = """
import sys
import time

real, ahead = time.time, 0.0


def now():
    return real() + ahead


def dask_setup(scheduler):
    for module in list(sys.modules.values()):
        if getattr(module, "time", None) is real:
            module.time = now
"""


def inc(x: int) -> int:
    return x + 1


def _set_clock(ahead: float, dask_scheduler: Any) -> None:
    sys.modules["a_clock"].ahead = ahead  # type: ignore[attr-defined]


def _are_several(recorder: Recorder, ahead: float) -> bool:
    """Return whether several beats came by a clock that is so far ahead of this process's."""
    now = time.time() + ahead
    return sum(abs(beat.sent_at - now) < HOUR / 2 for beat in recorder.beats) >= 4


def _have_finished(recorder: Recorder, number: int) -> bool:
    rows = recorder.computations().values()
    return sum(row.status == "finished" for row in rows) == number


def test_a_clock_that_is_set_while_the_scheduler_runs_changes_nothing_but_the_times(
    recorder: Recorder, tmp_path: Path
) -> None:
    (tmp_path / "a_clock.py").write_text(CLOCK)
    options = [
        "--preload", str(tmp_path / "a_clock.py"),
        "--preload", "daskscope",
        "--daskscope-endpoint", recorder.url,
        "--daskscope-interval", "100ms",
    ]  # fmt: skip
    with scheduler_process(*options, DASK_DASKSCOPE__TOKEN=TOKEN) as scheduler:
        with (
            worker_process(scheduler.address),
            Client(scheduler.address, timeout=START_PATIENCE) as client,
        ):
            client.wait_for_workers(1, timeout=START_PATIENCE)
            for number, ahead in enumerate((0.0, -HOUR, HOUR)):
                # The service's is right: from now on one is an hour ahead of the other.
                client.run_on_scheduler(_set_clock, ahead)
                recorder.wait_for(partial(_are_several, recorder, ahead), "several beats")
                assert (
                    client.submit(inc, number, pure=False).result(timeout=START_PATIENCE)
                    == number + 1
                )
                recorder.wait_for(partial(_have_finished, recorder, number + 1), "the computation")
        output = scheduler.stop()
    assert "daskscope:" not in output
    last = max(recorder.beats, key=lambda beat: beat.seq)
    # The threads had no hour more than they had.
    assert 0 < sum(last.status.worker_seconds.values()) < HOUR / 2
    assert not last.drops


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("Sat, 21 Nov 2026 10:00:05 GMT", 5.0),
        ("Sat, 21 Nov 2026 09:00:00 GMT", 0.0),
        ("Sat, 21 Nov 2026 20:00:00 GMT", MAX_ASKED),
        ("Sat, 21 Nov 99999999999999999999 10:00:00 GMT", 0.0),
        ("Sat, 21 Nov 2026 10:00:05 +99999999999999999999", 0.0),
        ("1e999", MAX_ASKED),
        ("nan", 0.0),
        ("soon", 0.0),
    ],
)
def test_a_date_to_come_again_at_is_of_the_services_own_clock(asked: str, seconds: float) -> None:
    response = requests.Response()
    response.headers["Date"] = "Sat, 21 Nov 2026 10:00:00 GMT"
    response.headers["Retry-After"] = asked
    assert asked_to_wait(response) == seconds
