"""What a type checker finds in the client's functions, as a user's program calls them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXPORTER = Path(__file__).parents[2] / "exporter"

PROGRAM = """
import daskscope

reveal_type(daskscope.register())
reveal_type(daskscope.register(interval="1s").cluster_id)
reveal_type(daskscope.register().url)
reveal_type(daskscope.list_computations())
daskscope.register(install="yes")
"""


@pytest.mark.slow
def test_a_type_checker_knows_what_register_returns(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    checked = subprocess.run(
        # What daskscope imports of others is not what it returns, and takes long to read.
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent",
         "--no-site-packages",
         "--config-file", os.devnull, "--cache-dir", str(tmp_path), "program.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(EXPORTER)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    told = re.findall(r"program\.py:\d+: note: Revealed type is \"(.+)\"", checked.stdout)
    assert len(told) == 4, checked.stdout + checked.stderr
    assert told[0] == "daskscope.registration.Registration"
    assert told[1:3] == ["str | None", "str | None"]
    assert "Any" not in told[3], told[3]
    (error,) = re.findall(r"error: (.+)", checked.stdout)[:1]
    assert "install" in error
    assert 'expected "bool"' in error
