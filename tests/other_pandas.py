"""A second environment of Python that has another pandas than this one, and all else alike."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest


def python_with_other_pandas() -> Path:
    """Return the Python of an environment with the newest pandas below the one that is here.

    It is made once, in the user's cache folder. Where uv or a package index cannot be had, the test
    is skipped and says why; but not in continuous integration.
    """
    here = version("pandas")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = f"below-{here}-{sys.version_info.major}.{sys.version_info.minor}"
    folder = base / "daskscope" / "other-pandas" / name
    python = folder / "bin" / "python"
    whole = folder / "whole"
    if not whole.exists():
        try:
            _make(folder, python, here)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", "") or error
            if "CI" in os.environ:
                raise
            pytest.skip(f"there is no environment with another pandas: {said}")
        whole.touch()
    # What is here comes after what is there: all but pandas. Its path may be another each time.
    site = next((folder / "lib").glob("python*/site-packages"))
    here_too = f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})\n"
    (site / "beside.pth").write_text(here_too, encoding="utf-8")
    return python


def _make(folder: Path, python: Path, here: str) -> None:
    uv = shutil.which("uv")
    if uv is None:
        raise FileNotFoundError("uv is not installed")
    shutil.rmtree(folder, ignore_errors=True)
    commands: tuple[list[str | Path], ...] = (
        [uv, "venv", "--quiet", "--python", sys.executable, folder],
        [
            *(uv, "pip", "install", "--quiet", "--python", python, "--no-deps"),
            *("--only-binary", ":all:", f"pandas<{here}"),
        ],
    )
    for command in commands:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
