"""Files that only the user of the service may read, whoever makes them."""

from __future__ import annotations

import os
from pathlib import Path


def make_private(file: Path) -> None:
    """Make ``file`` if it is missing, empty and with mode 0600."""
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))


def give_to_owner_of_folder(file: Path) -> None:
    """Let the service's user, whose folder it is, read what root has put there."""
    folder = file.parent.stat()
    if os.geteuid() == 0 and folder.st_uid != 0:
        os.chown(file, folder.st_uid, folder.st_gid)
