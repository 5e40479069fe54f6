"""The address of the service that runs on a data folder, for the links that commands print."""

from __future__ import annotations

import contextlib

from daskscope_service.db.private_files import give_to_owner_of_folder, make_private
from daskscope_service.settings import Settings

#: The file in the data folder in which ``daskscope serve`` stores the address.
FILE = "address"


def note_address(settings: Settings) -> None:
    """Store the address of the starting service in its data folder, if there is one."""
    file = settings.data_dir / FILE
    with contextlib.suppress(OSError):  # it is only a help
        make_private(file)
        file.write_text(f"{settings.url}\n", encoding="utf-8")
        give_to_owner_of_folder(file)


def address_for_links(settings: Settings) -> str:
    """Return the address of ``settings`` or, if they set none, that in the data folder."""
    if settings.url == Settings().url:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (settings.data_dir / FILE).read_text(encoding="utf-8").strip() or settings.url
    return settings.url
