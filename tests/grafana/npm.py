"""Packages from npm's registry, Grafana's and axe-core, for tests to hold our files against."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest


def installed(*packages: str) -> Path:
    """Return a folder whose ``node_modules`` has ``packages``; installed once, into the cache.

    Without npm, or where it cannot install them, the test is skipped; under ``CI`` it fails.
    """
    npm = shutil.which("npm")
    if npm is None:
        _missing("there is no npm")
        raise AssertionError
    key = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "daskscope" / "npm" / key
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            # Peers would bring all of what Grafana's pages are made of.
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps"]
            made = subprocess.run(
                [npm, "install", *options, "--prefix", str(folder), *packages],
                capture_output=True,
                text=True,
                check=False,
            )
            if made.returncode != 0:
                _missing(f"npm could not install {' '.join(packages)}: {made.stderr[-500:]}")
            (folder / "done").touch()
    return folder


def _missing(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
