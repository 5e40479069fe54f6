"""Tests of different processes never listen on the same port of loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.ports import free_port

_TAKES = """
import json
from tests.ports import free_port
print(json.dumps([free_port() for _ in range(400)]), flush=True)
input()
"""


def test_no_port_is_given_twice_nor_to_two_processes() -> None:
    others = subprocess.Popen(
        [sys.executable, "-c", _TAKES],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert others.stdout is not None
    theirs = json.loads(others.stdout.readline())
    ours = [free_port() for _ in range(400)]
    others.communicate("\n", timeout=60)
    assert len({*ours, *theirs}) == len(ours) + len(theirs)
