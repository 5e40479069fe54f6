"""``daskscope budget``: fails if a computation took more than is allowed, for CI."""

from __future__ import annotations

import json
from datetime import datetime

import click

from daskscope.errors import DaskscopeError


@click.command("budget")
@click.argument("id")
@click.option("--max-seconds", metavar="TIME", help='What it may take: 90, or "2 minutes".')
@click.option("--max-cost", type=float, help="What it may cost, in the currency of its prices.")
@click.option(
    "--max-memory", metavar="SIZE", help='What any worker of its cluster may have: "4 GiB".'
)
@click.option(
    "--slower-than-usual",
    type=float,
    metavar="SHARE",
    help="By how much it may take longer than usual: 0.2 for 20 %.",
)
@click.option(
    "--timeout",
    default="1 minute",
    show_default=True,
    help="How long to wait for the run to arrive and to end.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON where it passes.")
def budget(
    id: str,
    max_seconds: str | None,
    max_cost: float | None,
    max_memory: str | None,
    slower_than_usual: float | None,
    timeout: str,
    as_json: bool,
) -> None:
    """Fail where the computation ID took more than is allowed.

    \b
    ID may be that of a job, too, for the newest of its runs that has ended. It queries the service,
    with a token of scope read. For example, after a benchmark in CI:
      id=$(daskscope list computations --limit 1 --json | jq -r .id)
      daskscope budget "$id" --max-seconds 90 --slower-than-usual 0.2
    The exit code is 0 where it took no more, and 1 where it took more or where that is not known.
    """
    import daskscope.budget

    if all(one is None for one in (max_seconds, max_cost, max_memory, slower_than_usual)):
        raise click.UsageError(
            "set at least one of --max-seconds, --max-cost, --max-memory and --slower-than-usual"
        )
    try:
        run = daskscope.budget.assert_budget(
            id,
            max_seconds=max_seconds,
            max_cost=max_cost,
            max_memory=max_memory,
            slower_than_usual=slower_than_usual,
            timeout=timeout,
        )
    except DaskscopeError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps(run, default=datetime.isoformat))
    else:
        click.echo(f"within its budget: {daskscope.budget.say_seconds(run['duration'])}")
        click.echo(run["url"])
