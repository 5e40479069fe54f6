"""Which revision of the schema a database has, and how to upgrade it to the one of this code.

A revision is a file in ``migrations/versions``, named by its number; each follows the one before.
Alembic's own table in the database has the number of the last one that was applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, String, column, inspect, select, table

from daskscope_service.db.schema import metadata

#: The first revision with encrypted users' code.
SEALED_SINCE = "0005"

#: The command that applies missing revisions.
COMMAND = "daskscope database upgrade"

_FOLDER = Path(__file__).parent / "migrations"
_APPLIED = table("alembic_version", column("version_num", String))


@dataclass(frozen=True, slots=True)
class Position:
    """``at``: the revision of a database, None if it has none. ``newest``: that of this code."""

    state: Literal["empty", "older", "current", "newer", "unnumbered"]
    at: str | None
    newest: str

    @property
    def leaves_code(self) -> bool:
        """Whether it may hold unencrypted code, or remains of it, even after an upgrade."""
        return self.state == "older" and self.at is not None and self.at < SEALED_SINCE

    @property
    def sentence(self) -> str:
        """The meaning of the position and what to do, to follow the word "it"."""
        return {
            "empty": f"is empty; 'daskscope serve' or '{COMMAND}' creates its tables",
            "older": f"has revision {self.at} and this daskscope needs {self.newest}; make a "
            f"backup, then run '{COMMAND}'",
            "current": f"has revision {self.at}, the one that this daskscope needs",
            "newer": f"has revision {self.at}, but this daskscope knows revisions up to "
            f"{self.newest} only: a newer daskscope upgraded it. Install that version; "
            "nothing was changed",
            "unnumbered": "has tables of daskscope but no revision: a version before the first "
            "release created it, and it cannot be upgraded. Move it away and start with an empty "
            "one; nothing was changed",
        }[self.state]


def known() -> tuple[str, ...]:
    """Return the revisions that this code has, in their order."""
    # By the names of their files: importing Alembic would delay every command by half a second.
    return tuple(sorted(file.name[:4] for file in _FOLDER.glob("versions/[0-9]*.py")))


def position(connection: Connection) -> Position:
    """Return where the database stands."""
    newest = known()[-1]
    tables = set(inspect(connection).get_table_names())
    at: str | None = None
    if _APPLIED.name in tables:
        at = connection.execute(select(_APPLIED.c.version_num)).scalar()
    if at is None:
        ours = tables & set(metadata.tables)
        return Position("unnumbered" if ours else "empty", None, newest)
    if at not in known():
        return Position("newer", at, newest)
    return Position("current" if at == newest else "older", at, newest)


def upgrade(connection: Connection, to: str | None = None) -> Position:
    """Apply the missing revisions, up to ``to``; return where the database stood before.

    A database that is neither empty nor older stays as it is. The caller provides the transaction,
    and prevents other processes from doing the same.
    """
    before = position(connection)
    if before.state not in ("empty", "older"):
        return before
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, to or before.newest)
    return before
