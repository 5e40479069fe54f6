"""``daskscope budget``: fails if a computation exceeded a limit, for CI."""

from __future__ import annotations

import json
from datetime import datetime

import click

from daskscope.errors import DaskscopeError
from daskscope.one_line import one_line


@click.command("budget")
@click.argument("id")
@click.option("--max-seconds", metavar="TIME", help='The longest time: 90, or "2 minutes".')
@click.option("--max-cost", type=float, help="The highest cost, in the currency of its prices.")
@click.option(
    "--max-memory", metavar="SIZE", help='The most memory of any worker of its cluster: "4 GiB".'
)
@click.option(
    "--slower-than-usual",
    type=float,
    metavar="SHARE",
    help="How much longer than usual it may take: 0.2 for 20 %.",
)
@click.option(
    "--timeout",
    default="1 minute",
    show_default=True,
    help="How long to wait until the service has the computation, and until it has ended.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="If it passes, print the computation as JSON."
)
def budget(
    id: str,
    max_seconds: str | None,
    max_cost: float | None,
    max_memory: str | None,
    slower_than_usual: float | None,
    timeout: str,
    as_json: bool,
) -> None:
    """Fail if the computation ID took more than a limit allows.

    \b
    ID may also be the id of a job: then the command checks the job's newest run that has ended. It
    queries the service with a token of scope read. For example, after a benchmark in CI:
      id=$(daskscope list computations --limit 1 --json | jq -r .id)
      daskscope budget "$id" --max-seconds 90 --slower-than-usual 0.2
    The exit status is 0 if it exceeded no limit, and 1 if it exceeded one or if that is not known.
    """
    import daskscope.budget
    from daskscope.durations import say_seconds

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
        click.echo(f"within its budget: {say_seconds(run['duration'])}")
        click.echo(one_line(run["url"]))
