"""A finished SQLite database, to be copied: that takes a hundredth of applying all revisions."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from daskscope_service.db.engine import sqlite_file, upgrade_database
from daskscope_service.settings import Settings


def copy_to(data_dir: Path) -> None:
    """Put a database with all tables into ``data_dir``, unless there is one."""
    file = sqlite_file(Settings(data_dir=data_dir))
    if file.exists():
        return
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copy(_template(), file)


@functools.cache
def _template() -> Path:
    folder = tempfile.mkdtemp(prefix="daskscope-template-")
    atexit.register(shutil.rmtree, folder)
    settings = Settings(data_dir=Path(folder))
    upgrade_database(settings)
    return sqlite_file(settings)
