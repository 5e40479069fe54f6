"""Files that only the service's user may read, whichever user creates them."""

from __future__ import annotations

import os
from pathlib import Path


def make_private(file: Path) -> None:
    """Create ``file`` if it is missing, empty and with mode 0600."""
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))


def give_to_owner_of_folder(file: Path) -> None:
    """Give a file that root has created to the service's user, who owns its folder."""
    folder = file.parent.stat()
    if os.geteuid() == 0 and folder.st_uid != 0:
        os.chown(file, folder.st_uid, folder.st_gid)
