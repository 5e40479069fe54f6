"""``daskscope database``: its revision, upgrade, backup and restore."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from daskscope_service.cli.options import extra, settings_options
from daskscope_service.settings import Settings

if TYPE_CHECKING:
    from daskscope_service.db.revisions import Position


#: Seconds between two lines of progress.
_SAY_EVERY = 2.0


@click.group("database")
def database_group() -> None:
    """Back up and restore the database, and show and upgrade its revision."""


@database_group.command("status")
@settings_options("data_dir", "database_url")
def status(**options: Any) -> None:
    """Show the revision of the database, and the one that this daskscope needs.

    The exit status is 0 if they are the same, else 1. Changes nothing.
    """
    with extra("service"):
        from daskscope_service.db.engine import database_position
    position = database_position(Settings.from_environment(**options))
    click.echo(f"The database {position.sentence}.")
    sys.exit(position.state != "current")


@database_group.command("upgrade")
@settings_options("data_dir", "database_url")
def upgrade(**options: Any) -> None:
    """Upgrade the database to the revision that this daskscope needs; create it if missing.

    \b
    For example, if the service starts with DASKSCOPE_MIGRATE=refuse:
      daskscope database upgrade --database-url postgresql+psycopg://daskscope@db.example/daskscope

    Make a backup first: a downgrade is not possible. The upgrade is applied as a whole or not at
    all. Stop services of the older version first; they may not work with the newer tables.
    """
    with extra("service"):
        from daskscope_service.db.engine import upgrade_database
    before = upgrade_database(Settings.from_environment(**options))
    if before.state == "current":
        click.echo(f"The database {before.sentence}.")
    else:
        say_upgrade(before)


@database_group.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@settings_options("data_dir", "database_url")
def backup(file: Path, **options: Any) -> None:
    """Copy the database to FILE, as it is now. The service may keep running.

    \b
    For example, each night:
      daskscope database backup /backups/daskscope-$(date +%F).db

    The copy is checked before it gets its name. It holds everything that clusters sent, and the
    hashes of tokens and passwords: keep it private. PostgreSQL has pg_dump for this.
    """
    with extra("service"):
        from daskscope_service.db.backup import back_up
    said = time.monotonic()

    def show(part: float) -> None:
        nonlocal said
        if time.monotonic() - said > _SAY_EVERY:
            said = time.monotonic()
            click.echo(f"{part:.0%} copied", err=True)

    back_up(Settings.from_environment(**options), file, show)
    click.echo(
        f"The database was copied to {file} ({file.stat().st_size:,} bytes) and the copy was "
        "checked."
    )


@database_group.command("restore")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--replace", is_flag=True, help="Move the existing database aside and keep it.")
@settings_options("data_dir", "database_url")
def restore(file: Path, replace: bool, **options: Any) -> None:
    """Replace the database by a copy of the backup FILE. Stop the service first.

    \b
    For example:
      systemctl stop daskscope
      export DASKSCOPE_DATA_DIR=/var/lib/daskscope
      daskscope database restore /backups/daskscope-2026-05-01.db --replace
      systemctl start daskscope

    It goes into the data folder of --data-dir or DASKSCOPE_DATA_DIR, and belongs to the user whose
    folder that is. The backup lacks data that arrived after it was made. The next start upgrades a
    backup of an older daskscope. PostgreSQL has pg_restore for this.
    """
    with extra("service"):
        from daskscope_service.db.backup import restore as put_back
        from daskscope_service.db.engine import sqlite_file
    settings = Settings.from_environment(**options)
    aside = put_back(settings, file, replace=replace)
    click.echo(f"The database {sqlite_file(settings)} now holds the backup {file}.")
    if aside is not None:
        click.echo(f"The previous database is {aside}; remove it once you do not need it.")


def say_upgrade(before: Position) -> None:
    """Print which revisions were applied to a database that was at ``before``, if any were."""
    if before.state == "empty":
        click.echo(f"The database was empty; now it has revision {before.newest}.")
    elif before.state == "older":
        click.echo(f"The database had revision {before.at}; now it has {before.newest}.")
