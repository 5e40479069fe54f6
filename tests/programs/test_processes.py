"""Programs with workers in processes of their own do with daskscope as they do without it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.exporter import counted_preload
from tests.programs import preludes
from tests.programs.processes import PROCESSES
from tests.programs.test_programs import Outcome, Runner, outcome_of, read_outputs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
]

#: Seconds for all of them: workers restart several times.
_DEADLINE = 400.0
#: What comes after the last of them: the end of the cluster.
_CLOSING = "the end"
_PROGRAM = f"""
{preludes.PROCESSES}
PROGRAMS = {[*PROCESSES.values()]!r}
if __name__ == "__main__":  # a worker's process imports this file
    main()
"""

Outcomes = dict[str, Outcome]


@pytest.fixture(scope="module")
def outcomes(refusing: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Outcomes]]:
    """The outcomes of all programs, without daskscope and with it."""
    folder = tmp_path_factory.mktemp("processes")
    differs = folder / "differs"
    requests = []
    for endpoint, name in (("", "without"), (refusing, "with")):
        (folder / name).mkdir()
        file = folder / name / "program.py"
        file.write_text(_PROGRAM)
        requests.append(
            {
                "id": name,
                "folder": str(file.parent),
                "program": str(file),
                "environment": {
                    "ENDPOINT": endpoint,
                    "XDG_STATE_HOME": str(folder / name / "state"),
                },
                "seconds": _DEADLINE,
                **({"differs": str(differs)} if endpoint else {}),
            }
        )
    runner = Runner()
    try:
        codes = runner.run(*requests)
    finally:
        runner.stop()
    yield [split(codes[name], folder / name) for name in ("without", "with")]
    counted_preload.assert_equal(differs)


def split(code: int, folder: Path) -> Outcomes:
    """Return the outcome of each program that has ended."""
    parts = [text.split(preludes.END) for text in read_outputs(folder)]
    names = [*PROCESSES, _CLOSING]
    return {
        name: outcome_of(code, stdout, stderr)
        for name, stdout, stderr in zip_longest(names, *parts, fillvalue="")
    }


@pytest.mark.parametrize("program", [*PROCESSES, _CLOSING])
def test_it_runs_as_without_daskscope(outcomes: list[Outcomes], program: str) -> None:
    without, with_it = (some[program] for some in outcomes)
    assert without.code != -signal.SIGKILL, "they do not end, not even without daskscope"
    assert "raised" not in without.stdout
    assert with_it == without
