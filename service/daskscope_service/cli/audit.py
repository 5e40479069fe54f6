"""``daskscope audit``: sign-ins, refusals, and changes of rights."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import click

from daskscope.one_line import one_line
from daskscope_service.cli.options import database, settings_options


@click.command("audit")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="The most entries to show.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for each entry.")
@settings_options("data_dir", "database_url")
def audit(limit: int, as_json: bool, **options: Any) -> None:
    """Show sign-ins, and changes of tokens, users and roles, newest first.

    \b
    For example, recent refusals:
      daskscope audit --limit 1000 | grep refused

    Times are UTC.
    """
    with database(options) as (_, engine):
        from daskscope_service.accounts.audit import newest

        entries = newest(engine, limit)
    if as_json:
        for entry in entries:
            click.echo(json.dumps(dataclasses.asdict(entry)))
        return
    row = "{:<21}{:<18}{:<26}{:<16}{:<18}{}"
    click.echo(row.format("TIME", "ACTION", "WHO", "WORKSPACE", "ADDRESS", "DETAIL").rstrip())
    for entry in entries:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(entry.at))
        said = (when, entry.action, entry.actor, entry.workspace or "-", entry.address or "-")
        # Details quote names of clusters, which users choose.
        words = (one_line(word) for word in said)
        click.echo(row.format(*(f"{w} " for w in words), one_line(entry.detail)).rstrip())
