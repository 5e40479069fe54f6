"""``daskscope trace``: the task stream of a cluster, as a file for Perfetto."""

from __future__ import annotations

import json

import click

from daskscope.errors import DaskscopeError


@click.command()
@click.argument("cluster")
@click.option(
    "--since",
    default="all",
    show_default=True,
    metavar="TIME",
    help='How far to look back: "12 hours", "2026-01-31 12:00", or "all".',
)
@click.option("--until", metavar="TIME", help="Only runs before this time.")
def trace(cluster: str, since: str, until: str | None) -> None:
    """Print when and where each task of a cluster ran, as trace events.

    \b
    CLUSTER is an id, or a name that only one cluster has, as `daskscope list` shows them. Open the
    file at https://ui.perfetto.dev or in chrome://tracing, which need no service:
      daskscope trace Scheduler-1f0c > trace.json

    The command queries the service with a token of scope read, like `daskscope list`.
    """
    import daskscope.api

    try:
        file = daskscope.api.make_trace(cluster, None if since == "all" else since, until)
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
    click.echo(file, nl=False)
    if json.loads(file)["otherData"]["more"]:
        click.echo("Earlier runs are left out: there are too many. Use --until.", err=True)
