"""``daskscope findings``: their thresholds, and computing them again."""

from __future__ import annotations

from typing import Any

import click

from daskscope_service.cli.options import check_workspace, database, settings_options


@click.group("findings")
def findings_group() -> None:
    """Compute findings again, and set the thresholds above which something is a finding."""


@findings_group.command("thresholds")
@click.argument("settings", nargs=-1, metavar="[NAME=NUMBER]...")
@click.option("--workspace", default="default", show_default=True)
@settings_options("data_dir", "database_url")
def thresholds(settings: tuple[str, ...], workspace: str, **options: Any) -> None:
    """Show the thresholds of a workspace, or set some: NAME=NUMBER, or NAME=default.

    docs/findings.md describes the thresholds. After a change, the service computes all findings of
    the workspace again.
    """
    with database(options) as (_, engine):
        from daskscope_service.accounts import audit
        from daskscope_service.accounts.change import Change
        from daskscope_service.db.engine import writing
        from daskscope_service.findings.own_thresholds import change_thresholds
        from daskscope_service.insight.findings.thresholds import TABLE
        from daskscope_service.queries.thresholds import own_thresholds
        from daskscope_service.web.fields import Unfit

        check_workspace(engine, workspace)
        if settings:
            changes = dict(map(_setting, settings))
            try:
                with writing(engine) as connection:
                    change_thresholds(Change(connection, workspace, audit.OPERATOR), changes)
            except Unfit as error:
                raise click.UsageError(str(error)) from None
        with engine.connect() as connection:
            own = dict(own_thresholds(connection, workspace))
    for one in TABLE:
        its_own = f" (default: {one.value:g})" if one.name in own else ""
        click.echo(f"{one.name} = {own.get(one.name, one.value):g} {one.unit}{its_own}")


def _setting(text: str) -> tuple[str, float | None]:
    name, _, value = text.partition("=")
    if value == "default":
        return name, None
    try:
        return name, float(value)
    except ValueError:
        raise click.UsageError(
            f"{text!r} is not a setting: write NAME=NUMBER or NAME=default"
        ) from None


@findings_group.command("rebuild")
@click.option("--workspace", default="default", show_default=True)
@settings_options("data_dir", "database_url")
def rebuild(workspace: str, **options: Any) -> None:
    """Compute all findings of a workspace again, for example after rules have changed.

    The service does this in the background, the oldest findings first. Until it is done, lists
    still show some of the earlier findings.
    """
    with database(options) as (_, engine):
        from daskscope_service.findings.evaluator import mark_all

        check_workspace(engine, workspace)
        marked = mark_all(engine, workspace)
    click.echo(f"{workspace}: the service computes the findings of {marked:,} computations again.")
