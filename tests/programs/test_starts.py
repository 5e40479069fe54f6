"""However a program is started, it prints, warns and ends with daskscope as without it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.exporter import counted_preload
from tests.patience import stretched
from tests.programs.starts import STARTS
from tests.programs.test_programs import outcome

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
]


@pytest.mark.parametrize("way", STARTS)
def test_it_runs_as_without_daskscope(refusing: str, way: str, tmp_path: Path) -> None:
    start = STARTS[way]
    differs = tmp_path / "differs"
    folders = {endpoint: tmp_path / name for endpoint, name in (("", "out"), (refusing, "with"))}
    running = []
    for endpoint, folder in folders.items():
        folder.mkdir()
        environment = {
            "ENDPOINT": endpoint,
            "PATHS": os.pathsep.join(sys.path),
            "XDG_STATE_HOME": str(folder / "state"),
            **(counted_preload.beside(differs) if endpoint else {}),
        }
        running.append((start.begin(folder, environment), folder))
    try:
        ended = [outcome(process.wait(stretched(100)), folder) for process, folder in running]
    finally:
        for process, _ in running:
            process.kill()
    without, with_it = ended
    assert without.code == start.code, without.stderr
    assert with_it == without
    if way != "-OO":  # in which nothing is asserted
        counted_preload.assert_equal(differs)
