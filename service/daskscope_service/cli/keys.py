"""``daskscope keys``: the keys that encrypt users' code, and how to replace them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Any

import click

from daskscope_service.cli.options import database, settings_options


@click.group("keys")
def key_group() -> None:
    """Show and replace the keys that encrypt users' code."""


@key_group.command("status")
@settings_options("data_dir", "database_url")
def status(**options: Any) -> None:
    """Show which keys the database needs, and whether they are available here.

    The exit status is 0 if all are, else 1. Changes nothing and shows no key: an id reveals
    nothing about its key.
    """
    with database(options) as (_, engine):
        from daskscope_service.db.key_register import registered
        from daskscope_service.db.sealing import keys_of

        with engine.connect() as connection:
            entries = registered(connection)
        keys = keys_of(engine.dialect)
        missing = [id for id in entries if keys.find(id) is None]
        newest = keys.newest
    row = "{:<10}{:<18}{:<6}{}"
    click.echo(row.format("ID", "STATE", "HERE", "SINCE"))
    for id, entry in entries.items():
        state = "being replaced" if entry.retired else "in use"
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.made_at))
        click.echo(row.format(id, state, "no" if id in missing else "yes", made))
    click.echo(f"The keys come from {keys.source}.")
    if newest is not None and newest.id not in entries:
        click.echo(
            f"The first key, {newest.id}, is not in use yet: 'daskscope keys rotate' starts "
            "using it."
        )
    sys.exit(bool(missing))


@key_group.command("rotate")
@settings_options("data_dir", "database_url")
def rotate(**options: Any) -> None:
    """Encrypt users' code with a new key, while the service runs.

    \b
    If the key is in the file code.keys in the data folder, this puts a new key before it:
      daskscope keys rotate
    With DASKSCOPE_CODE_KEYS, put a new key before the old one, give both to every service process,
    restart those, and then:
      DASKSCOPE_CODE_KEYS=NEW,OLD daskscope keys rotate

    You can interrupt it at any time; run it again to continue. Keep the old key as long as you have
    backups from before.
    """
    with database(options) as (_, engine):
        from daskscope_service.accounts import key_rotation
        from daskscope_service.db.sealing import keys_of

        start = key_rotation.begin(engine)
        again = "still, because an earlier run was interrupted" if start.resumed else "from now on"
        click.echo(f"Code is encrypted with the key {start.key.id} {again}.")
        total = key_rotation.outstanding(engine, start.key)
        unreadable: Counter[str] = Counter()
        with click.progressbar(length=total, label="Encrypting with the new key") as bar:
            for step in key_rotation.renew(engine, start.key):
                bar.update(step.rows)
                unreadable.update(step.unreadable)
        gone = key_rotation.finish(engine, start.key)
        source = keys_of(engine.dialect).source
    click.echo(f"Done: {total:,} rows. The database no longer needs {_listed(gone)}.")
    for why, count in unreadable.items():
        click.echo(f"{count:,} values were not changed: each is {why}.")
    if gone:
        click.echo(f"It is still in {source}, for backups made before now.")


@key_group.command("forget")
@click.argument("id")
@settings_options("data_dir", "database_url")
def forget(id: str, **options: Any) -> None:
    """Stop requiring the lost key ID; code that it encrypted can no longer be read.

    \b
    For example, if 'daskscope serve' lacks this key and you have no copy of it:
      daskscope keys forget 1a2b3c4d

    Afterwards the service starts with another key, and its pages show which data cannot be read. If
    you find the key later, put it behind the others: then its data can be read again.
    """
    with database(options) as (_, engine):
        from daskscope_service.accounts import key_rotation

        key_rotation.forget(engine, id)
    click.echo(f"The key {id} is no longer required; data that it encrypted cannot be read.")


def _listed(ids: list[str]) -> str:
    return ", ".join(ids) or "another key"
