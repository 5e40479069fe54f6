"""``daskscope retention``: how long each workspace keeps each kind of data."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import click

from daskscope_service.cli.options import check_workspace, database, settings_options

#: Seconds between two lines of progress.
_SAY_EVERY = 2.0


@click.group("retention")
def retention_group() -> None:
    """Show and set how long data is kept, and remove older data.

    \b
    The service removes old data every hour. The defaults, in days:
      clusters      400   since their last heartbeat; with all their other data
      computations  180   with their task groups
      failures      180   exceptions and lost workers
      events         90
      profiles       30
      spans          30
      logs           30
      series-full     7   time series in full resolution; then one point per 5 minutes
      series-5min    60   one point per 5 minutes; then one point per hour
      series        400   time series in any resolution
    Code is removed when no computation refers to it any more. Clusters that still report, and
    running computations on them, are never removed.
    """


@retention_group.command("show")
@click.option("--workspace", default="default", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: days by kind, null for forever.")
@settings_options("data_dir", "database_url")
def show(workspace: str, as_json: bool, **options: Any) -> None:
    """Show how long a workspace keeps each kind of data."""
    with database(options) as (_, engine):
        from daskscope_service.retention import policy

        check_workspace(engine, workspace)
        kept = policy.periods(engine, workspace)
        own = policy.periods_set(engine, workspace)
    if as_json:
        click.echo(json.dumps(kept))
        return
    row = "{:<14}{:<12}{:<9}{}"
    click.echo(row.format("KIND", "KEPT FOR", "", "WHAT"))
    for kind in policy.KINDS:
        how = "set" if kind.name in own else "default"
        click.echo(row.format(kind.name, policy.in_words(kept[kind.name]), how, kind.help))


@retention_group.command("set")
@click.argument("kind")
@click.argument("days")
@click.option("--workspace", default="default", show_default=True)
@settings_options("data_dir", "database_url")
def set_one(kind: str, days: str, workspace: str, **options: Any) -> None:
    """Keep KIND for DAYS days in a workspace: a whole number, "forever" or "default".

    \b
    For example:
      daskscope retention set logs 14
      daskscope retention set clusters forever --workspace finance

    The setting applies from the next round on. Removed data cannot be restored.
    """
    with database(options) as (_, engine):
        from daskscope_service.retention import policy

        check_workspace(engine, workspace)
        if kind not in policy.BY_NAME:
            raise click.UsageError(
                f"there is no kind {kind!r}; the kinds are: {', '.join(policy.BY_NAME)}"
            )
        if days == "default":
            policy.unset_period(engine, workspace, kind)
        elif days == "forever":
            policy.set_period(engine, workspace, kind, None)
        elif days.isdecimal():
            policy.set_period(engine, workspace, kind, int(days))
        else:
            raise click.UsageError(
                f"{days!r} is not a number of days; for example 30, or forever, or default"
            )
        kept = policy.in_words(policy.periods(engine, workspace)[kind])
    click.echo(f"{workspace} keeps {kind}: {kept}")


@retention_group.command("run")
@settings_options("data_dir", "database_url")
def run(**options: Any) -> None:
    """Remove old data of all workspaces now, and print how much was removed.

    You can interrupt it at any time; the next run does the rest. The service may keep running.
    """
    with database(options) as (_, engine):
        from daskscope_service.periodic import Lease, SomeFailed
        from daskscope_service.retention.rounds import WORK, run_round
        from daskscope_service.retention.throttle import Removed, Throttle

        lease = Lease(engine, WORK)
        if not lease.take():
            raise click.ClickException(
                "another process is already removing old data; its log shows the progress"
            )
        removed: Counter[tuple[str, str]] = Counter()
        said = time.monotonic()

        def show(workspace: str, step: Removed) -> None:
            nonlocal said
            removed[workspace, step.table] += step.rows
            if time.monotonic() - said > _SAY_EVERY:
                said = time.monotonic()
                click.echo(
                    f"{workspace}: at {step.table}; {removed.total():,} rows removed so far",
                    err=True,
                )

        failed: SomeFailed | None = None
        done = False
        try:
            run_round(engine, lease, Throttle(0.5), on_step=show)
            done = True
        except SomeFailed as error:
            failed = error
        finally:
            lease.give_back(done=done)
    for (workspace, table), rows in sorted((+removed).items()):
        click.echo(f"{workspace}: {rows:,} rows of {table} removed")
    if failed is not None:
        raise click.ClickException(f"some old data was not removed: {failed}")
    if not +removed:
        click.echo("No data is old enough to remove.")
