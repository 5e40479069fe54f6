"""The real Frisky, a scheduler of its own inside Dask's: its work keeps a cluster."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import forked
from tests.exporter import counted_preload
from tests.exporter.conftest import TOKEN
from tests.exporter.recorder import Recorder
from tests.needed import needed

needed("frisky", "there is no package of frisky for this system")

#: Tasks of a second each, one after another: well over the two seconds of ``idle.timeout``.
TASKS = 12


@pytest.mark.slow
def test_a_cluster_at_work_for_frisky_is_not_closed_as_idle(
    recorder: Recorder, tmp_path: Path
) -> None:
    ended = forked.run(
        ["-m", "tests.exporter.frisky_program", recorder.url, TOKEN, str(TASKS)],
        os.environ | counted_preload.beside(tmp_path / "differs"),
        timeout=120,
        program="python",
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [str(TASKS)]
    counted_preload.assert_equal(tmp_path / "differs")
    assert "closing" not in {row.state for row in recorder.shutdowns()}
    at_work = [
        beat.status
        for beat in recorder.beats
        if any(sign.startswith("Frisky") for sign in beat.status.busy_by or ())
    ]
    assert at_work
    assert {status.idle_seconds for status in at_work} == {None}
    # That its tasks are not seen is said, too.
    assert at_work[-1].held_by["other schedulers"] == 1
