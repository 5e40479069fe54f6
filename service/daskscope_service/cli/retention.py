"""``daskscope retention``: for how long what is kept, in each workspace."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from daskscope_service.cli.options import database, settings_options

if TYPE_CHECKING:
    from sqlalchemy import Engine

#: Seconds between two lines about how far it is.
_SAY_EVERY = 2.0


@click.group("retention")
def retention_group() -> None:
    """See and set for how long data is kept, and remove what is older.

    \b
    The service removes what is too old by itself, every hour. The defaults, in days:
      clusters      400   since they were last heard of; all that is left of them goes along
      computations  180   with their task groups
      failures      180   exceptions and lost workers
      events         90
      profiles       30
      spans          30
      logs           30
      series-full     7   each point of a time series; then one for 5 minutes
      series-5min    60   a point for 5 minutes; then one for an hour
      series        400   then none
    Code goes when no computation names it any more. What runs stays, whatever its age: clusters
    that report, and computations on them.
    """


@retention_group.command("show")
@click.option("--workspace", default="default", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: days by kind, null for forever.")
@settings_options("data_dir", "database_url")
def show(workspace: str, as_json: bool, **options: Any) -> None:
    """Show for how long each kind of data is kept in a workspace."""
    with database(options) as (_, engine):
        from daskscope_service.retention import policy

        _check(engine, workspace)
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

    It takes effect with the next round. What has gone by then does not come back.
    """
    with database(options) as (_, engine):
        from daskscope_service.retention import policy

        _check(engine, workspace)
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
                f"{days!r} is not a number of days; right would be 30, forever or default"
            )
        kept = policy.in_words(policy.periods(engine, workspace)[kind])
    click.echo(f"{workspace} keeps {kind}: {kept}")


@retention_group.command("run")
@settings_options("data_dir", "database_url")
def run(**options: Any) -> None:
    """Remove what is too old in all workspaces, now, and tell how much went.

    It may be ended at any moment; the next time does the rest. The service may run meanwhile.
    """
    with database(options) as (_, engine):
        from daskscope_service.db.lease import Lease
        from daskscope_service.periodic import SomeFailed
        from daskscope_service.retention.rounds import WORK, run_round
        from daskscope_service.retention.throttle import Step, Throttle

        lease = Lease(engine, WORK)
        if not lease.take():
            raise click.ClickException(
                "another process is already removing old data; its log shows the progress"
            )
        removed: Counter[tuple[str, str]] = Counter()
        said = time.monotonic()

        def tell(workspace: str, step: Step) -> None:
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
            run_round(engine, lease, Throttle(0.5), on_step=tell)
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


def _check(engine: Engine, workspace: str) -> None:
    from daskscope_service.retention.expiry import workspaces

    known = workspaces(engine)
    if workspace not in known:
        raise click.UsageError(
            f"there is no workspace {workspace!r}; the workspaces are: {', '.join(known)}"
        )
