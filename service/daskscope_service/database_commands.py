"""``daskscope database``: which revision a database has, and how it gets to the one needed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from daskscope_service.command_line import extra, settings_options
from daskscope_service.settings import Settings

if TYPE_CHECKING:
    from daskscope_service.db.revisions import Position


@click.group("database")
def database_group() -> None:
    """Look at the database's revision, and bring it to the one that this version needs."""


@database_group.command("status")
@settings_options("data_dir", "database_url")
def status(**options: Any) -> None:
    """Tell the revision of the database, and of this daskscope.

    The exit status is 0 if they are the same, else 1. Nothing is changed.
    """
    with extra("service"):
        from daskscope_service.db.engine import database_position
    found = database_position(Settings.from_environment(**options))
    click.echo(f"The database {found.sentence}.")
    sys.exit(found.state != "current")


@database_group.command("upgrade")
@settings_options("data_dir", "database_url")
def upgrade(**options: Any) -> None:
    """Bring the database to the revision that this daskscope needs; make it if it is missing.

    \b
    For example, where the service starts with DASKSCOPE_MIGRATE=refuse:
      daskscope database upgrade --database-url postgresql+psycopg://daskscope@db.example/daskscope

    Make a backup first: there is no way back. All that is missing is applied, or nothing. Stop
    services of the older version before; they may not work with the newer tables.
    """
    with extra("service"):
        from daskscope_service.db.engine import upgrade_database
    before = upgrade_database(Settings.from_environment(**options))
    if before.state == "current":
        click.echo(f"The database {before.sentence}.")
    else:
        say_upgrade(before)


def say_upgrade(before: Position) -> None:
    """Tell what was applied to a database that stood at ``before``; nothing where nothing was."""
    if before.state == "empty":
        click.echo(f"The database was empty; now it has revision {before.newest}.")
    elif before.state == "older":
        click.echo(f"The database had revision {before.at}; now it has {before.newest}.")
