"""``daskscope list``: the service's data, as tables, or as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from daskscope.errors import DaskscopeError
from daskscope.one_line import one_line

F = TypeVar("F", bound=Callable[..., Any])

#: A column: its heading, the field that it shows, and its width; the last one takes the rest.
ListColumns = Sequence[tuple[str, str, int]]

_CLUSTERS: ListColumns = (
    ("STATUS", "status", 9),
    ("STARTED", "started_at", 18),
    ("UP FOR", "duration", 18),
    ("USER", "user", 16),
    ("WORKERS", "workers", 9),
    ("FAILURES", "failures", 10),
    ("FINDING", "cause", 24),
    ("NAME", "name", 24),
    ("ID", "id", 0),
)
_COMPUTATIONS: ListColumns = (
    ("STATUS", "status", 11),
    ("STARTED", "started_at", 18),
    ("TOOK", "duration", 18),
    ("USER", "user", 16),
    ("TASKS", "tasks", 10),
    ("ERRED", "erred", 8),
    ("FINDING", "cause", 18),
    ("CLUSTER", "cluster_name", 24),
    ("TITLE", "title", 0),
)
_EXCEPTIONS: ListColumns = (
    ("LAST SEEN", "last_at", 18),
    ("COUNT", "count", 8),
    ("CLUSTERS", "clusters", 10),
    ("TYPE", "type", 26),
    ("FUNCTION", "function", 26),
    ("MESSAGE", "message", 0),
)
_EVENTS: ListColumns = (
    ("AT", "at", 18),
    ("CLUSTER", "cluster_name", 24),
    ("TOPIC", "topic", 28),
    ("MESSAGE", "message", 0),
)


_FINDINGS: ListColumns = (
    ("BEGAN", "at", 18),
    ("SEVERITY", "severity", 10),
    ("RULE", "rule", 18),
    ("CLUSTER", "cluster_name", 20),
    ("COMPUTATION", "computation", 34),
    ("FINDING", "sentence", 0),
)

_JOBS: ListColumns = (
    ("RAN LAST", "last_at", 18),
    ("TAKES", "duration", 18),
    ("RUNS", "runs", 8),
    ("BY", "level", 7),
    ("STATUS", "status", 11),
    ("USER", "user", 16),
    ("ID", "id", 18),
    ("JOB", "title", 0),
)


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
            type=click.Choice(["last", "cost", "change"]),
            help="Order: newest run (last, the default), highest cost in the last 30 days, or "
            "latest change.",
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
    _list("list_clusters", _CLUSTERS, **options)


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
    _list("list_computations", _COMPUTATIONS, **options)


@list_group.command("exceptions")
@_options("cluster", "since", "user", "limit", "as_json")
def exceptions(**options: Any) -> None:
    """List exceptions, grouped if equal, by the time they were last seen.

    \b
    For example, with tracebacks:
      daskscope list exceptions --since "1 day" --json
    """
    _list("list_exceptions", _EXCEPTIONS, **options)


@list_group.command("events")
@_options("cluster", "since", "limit", "as_json")
def events(**options: Any) -> None:
    """List the events of clusters. A cluster sends only topics that its settings allow.

    \b
    For example:
      daskscope list events --cluster Scheduler-1f0c
    """
    _list("list_events", _EVENTS, **options)


@list_group.command("findings")
@_options("cluster", "since", "user", "limit", "as_json")
def findings(**options: Any) -> None:
    """List the findings of the service, by the start of their computation or cluster.

    \b
    For example, the three that lost most time today:
      daskscope list findings --since "1 day" --json | jq -s 'sort_by(.seconds)[-3:]'
    """
    _list("list_findings", _FINDINGS, **options)


@list_group.command("jobs")
@_options("since", "user", "sort", "limit", "as_json")
def jobs(**options: Any) -> None:
    """List jobs (the same work over time), with their usual duration and number of runs.

    \b
    For example, jobs that became slower or faster:
      daskscope list jobs --sort change --json | jq 'select(.change != null)'
    """
    _list("list_jobs", _JOBS, **options)


def _list(
    function: str,
    columns: ListColumns,
    *,
    since: str,
    limit: int,
    as_json: bool,
    **filters: str | None,
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
    click.echo(_line(columns, {field: head for head, field, _ in columns}))
    for row in rows:
        click.echo(_line(columns, row))
    if len(rows) == limit:
        click.echo(f"… only the first {limit} are shown; a higher --limit shows more", err=True)


def _line(columns: ListColumns, row: Mapping[str, Any]) -> str:
    texts = (_cell(row.get(field), width) for _, field, width in columns)
    return "".join(texts).rstrip()


def _cell(value: Any, width: int) -> str:
    if value is None:
        text = "–"
    elif isinstance(value, datetime):
        text = value.astimezone().strftime("%Y-%m-%d %H:%M")
    elif isinstance(value, dict):  # the main cause
        text = one_line(str(value.get("rule", "–")))
    elif isinstance(value, float):
        text = str(timedelta(seconds=round(value)))
    else:
        text = one_line(str(value))
    if width and len(text) >= width:
        text = text[: width - 2] + "…"
    return text.ljust(width)
