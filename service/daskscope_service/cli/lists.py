"""``daskscope list``: the service's data, as tables, or as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from daskscope.errors import DaskscopeError

F = TypeVar("F", bound=Callable[..., Any])


@click.group("list")
def list_group() -> None:
    """List clusters, computations, exceptions, events, findings and jobs, newest first.

    \b
    The commands query the service, so they work from anywhere, with a token of scope read:
      export DASK_DASKSCOPE__ENDPOINT=https://monitor.example
      export DASK_DASKSCOPE__TOKEN=dsk_…
      daskscope list clusters --since "2 days"
    You can also set both in Dask's configuration, below daskscope:.
    """


def _options(*names: str) -> Callable[[F], F]:
    known = {
        "cluster": click.option("--cluster", help="Only data of the cluster with this name or id."),
        "user": click.option("--user", help="Only data of this user."),
        "finding": click.option(
            "--finding", metavar="RULE", help="Only those with this finding, such as tiny-tasks."
        ),
        "rule": click.option(
            "--rule", metavar="RULE", help="Only findings of this rule, such as tiny-tasks."
        ),
        "severity": click.option(
            "--severity",
            type=click.Choice(["critical", "warning", "notice"]),
            help="Only findings of this severity.",
        ),
        "effects": click.option(
            "--effects", is_flag=True, help="Include findings that another finding explains."
        ),
        "status": click.option(
            "--status",
            type=click.Choice(["running", "lost", "erred", "cancelled", "finished"]),
            help="Only computations with this status.",
        ),
        "by": click.option(
            "--sort",
            type=click.Choice(["started", "status"]),
            help="Order: newest first (started, the default), or by status, running first.",
        ),
        "sort": click.option(
            "--sort",
            type=click.Choice(["last", "cost", "change", "saving"]),
            help="Order: newest run (last, the default), highest cost in the last 30 days, latest "
            "change, or most saved without the costliest cause of the last 30 days (saving).",
        ),
        "since": click.option(
            "--since",
            default="7 days",
            show_default=True,
            metavar="TIME",
            help='How far to look back: "12 hours", "2026-01-31 12:00", or "all".',
        ),
        "limit": click.option(
            "--limit",
            type=click.IntRange(min=1),
            default=50,
            show_default=True,
            help="The most rows to list.",
        ),
        "as_json": click.option(
            "--json", "as_json", is_flag=True, help="Print one line of JSON for each row."
        ),
    }

    def decorate(command: F) -> F:
        for name in reversed(names):
            command = known[name](command)
        return command

    return decorate


@list_group.command("clusters")
@_options("since", "user", "finding", "limit", "as_json")
def clusters(**options: Any) -> None:
    """List clusters and their status, by start time.

    \b
    For example, the users whose clusters were lost today:
      daskscope list clusters --since "1 day" --json | jq 'select(.status == "lost").user'
    """
    _list("list_clusters", **options)


@list_group.command("computations")
@_options("cluster", "since", "user", "status", "finding", "by", "limit", "as_json")
def computations(**options: Any) -> None:
    """List computations of one cluster or of all, by start time or by status.

    \b
    For example:
      daskscope list computations --status erred
      daskscope list computations --user maria --since "12 hours"
      daskscope list computations --finding spilling
    """
    _list("list_computations", **options)


@list_group.command("exceptions")
@_options("cluster", "since", "user", "limit", "as_json")
def exceptions(**options: Any) -> None:
    """List exceptions, grouped if equal, by the time they were last seen.

    \b
    For example, with tracebacks:
      daskscope list exceptions --since "1 day" --json
    """
    _list("list_exceptions", **options)


@list_group.command("events")
@_options("cluster", "since", "limit", "as_json")
def events(**options: Any) -> None:
    """List the events of clusters. A cluster sends only topics that its settings allow.

    \b
    For example:
      daskscope list events --cluster Scheduler-1f0c
    """
    _list("list_events", **options)


@list_group.command("findings")
@_options("cluster", "since", "user", "rule", "severity", "effects", "limit", "as_json")
def findings(**options: Any) -> None:
    """List the findings of the service, by the start of their computation or cluster.

    \b
    For example, what failed today, and the three that lost most time today:
      daskscope list findings --since "1 day" --rule failed
      daskscope list findings --since "1 day" --json | jq -s 'sort_by(.seconds)[-3:]'
    """
    _list("list_findings", **options)


@list_group.command("jobs")
@_options("since", "user", "sort", "limit", "as_json")
def jobs(**options: Any) -> None:
    """List jobs (the same work over time), with their usual duration and number of runs.

    \b
    For example, jobs that became slower or faster:
      daskscope list jobs --sort change --json | jq 'select(.change != null)'
    """
    _list("list_jobs", **options)


@list_group.command("repeats")
@_options("since", "limit", "as_json")
def repeats(**options: Any) -> None:
    """List work that ran more than once on the same inputs, the most repeated time first.

    \b
    For example, what it cost and what would have run it once:
      daskscope list repeats --json | jq '.sentence, .advice'
    """
    _list("list_repeats", **options)


def _list(
    function: str,
    *,
    since: str,
    limit: int,
    as_json: bool,
    **filters: str | bool | None,
) -> None:
    import daskscope.api

    if "cluster" in filters:
        filters["cluster_id"] = filters.pop("cluster")
    given = {name: value for name, value in filters.items() if value is not None}
    try:
        rows = getattr(daskscope.api, function)(
            since=None if since == "all" else since, limit=limit, **given
        )
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, default=datetime.isoformat))
        return
    click.echo(rows.table())
    if len(rows) == limit:
        click.echo(f"… only the first {limit} are shown; a higher --limit shows more", err=True)
