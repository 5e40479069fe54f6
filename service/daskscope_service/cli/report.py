"""``daskscope report``: the page of a cluster or a computation, as a file to send to someone."""

from __future__ import annotations

import click

from daskscope.errors import DaskscopeError


@click.command()
@click.argument("cluster")
@click.argument("computation", required=False)
@click.option(
    "--code/--no-code",
    default=False,
    show_default=True,
    help="Include users' code, tracebacks and log lines; the last two may contain code, too.",
)
def report(cluster: str, computation: str | None, code: bool) -> None:
    """Print a report of a cluster, or of a computation on it, as one HTML file.

    \b
    CLUSTER is an id, or a name that only one cluster has, and COMPUTATION is an id, as
    `daskscope list` shows them. The file can be opened and printed without the service:
      daskscope report Scheduler-1f0c > cluster.html
      daskscope report Scheduler-1f0c 5b2e --code > computation.html

    The command queries the service with a token of scope read, like `daskscope list`. The service's
    audit log records who created the report, and whether it contains code.
    """
    import daskscope.api

    try:
        click.echo(daskscope.api.make_report(cluster, computation, code=code))
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
